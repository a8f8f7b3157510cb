"""A process that runs user code, whole and restored at each event; each request and response is a line of JSON.

    {"language": ..., "code": ...}   a program, which gets its own events
    {"case": ..., "path": ...}       a project with its input, in the form of tests/cases

A response has the results of each event (`whole`, `restored`), digests of the `states` that were restored, and that of the last
`state` of the whole run. `unkept` is the reason why no state was restored from some event on, `refused` why a program does not
load, `failure` why the response lacks results.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from hotspare.base.errors import ProjectError, StateError
from hotspare.base.interpreter import fix_environment
from hotspare.model.code import Code, CodeLimits, Language, Script
from hotspare.model.types import Field, FieldType, Schema
from hotspare.scripting.contract import CodeFailure, InputEvents, Instance, ProgramText
from hotspare.scripting.languages import compile_user_code
from tests.cases.case import outputs_by_cause, parse_case, raw_batches, run

GIVEN = Schema(
    (Field("n", FieldType.INT64), Field("s", FieldType.STRING), Field("x", FieldType.DOUBLE), Field("t", FieldType.STAMP))
)
MADE = Schema(
    (Field("n", FieldType.INT64), Field("s", FieldType.STRING), Field("x", FieldType.DOUBLE), Field("t", FieldType.STAMP))
)
COUNT = 6
LIMITS = CodeLimits(steps_max=50_000, state_bytes_max=200_000)
_DAY_US = 86_400_000_000


def events(first: int, count: int) -> InputEvents:
    """Returns events from number `first` on: each text occurs twice, some values are null."""
    numbers = np.arange(first, first + count)
    texts = [f"s{n // 2}é" if n % 5 else None for n in numbers.tolist()]
    times = numbers * 7 * _DAY_US + 1_700_000_000_123_456
    doubles = [n * 0.37 if n % 4 else None for n in numbers.tolist()]
    columns = [
        pa.array(numbers * 3 + 1),
        pa.array(texts, pa.string()),
        pa.array(doubles, pa.float64()),
        pa.array(times).cast(pa.timestamp("us")),
    ]
    return InputEvents("in", GIVEN, columns, np.ones(count, np.uint8), times, numbers.astype(np.uint64) * np.uint64(7919), numbers)


def _given(instance: Instance, first: int, count: int) -> list[str]:
    """Returns the results of each event, with the bits of doubles."""
    made = instance.make_events("f", events(first, count), MADE, 10_000)
    results: list[list[Any]] = [[] for _ in range(count)]
    columns = [column.view(pa.int64()) if pa.types.is_floating(column.type) else column for column in made.columns]
    for row, *values in zip(made.row.tolist(), made.opcode.tolist(), *(column.to_pylist() for column in columns), strict=True):
        results[row].append(values)
    for failed in made.failed:
        results[failed.row].append(f"{failed.reason}: {failed.message}")
    return [repr(each) for each in results]


def _digest(state: bytes) -> str:
    return hashlib.sha256(state).hexdigest()[:16]


def of_program(language: str, code: str) -> dict[str, Any]:
    try:
        program = compile_user_code(ProgramText("q/w", Script(Language(language), Code(code), "f", limits=LIMITS)))
    except ProjectError as error:
        return {"refused": str(error)}
    whole, restored = program.open(), program.open()
    answer: dict[str, Any] = {"whole": _given(whole, 0, COUNT), "restored": [], "states": [], "unkept": ""}
    for n in range(COUNT):
        answer["restored"] += _given(restored, n, 1)
        try:
            state = restored.save()
        except CodeFailure as failure:
            return {**answer, "unkept": failure.text}
        answer["states"].append(_digest(state))
        restored = program.open()
        restored.load(state)
    return {**answer, "state": _digest(whole.save())}


def of_case(case: str, path: str) -> dict[str, Any]:
    parsed = parse_case(case, path)
    batches = raw_batches(parsed)
    whole, state = run(parsed, [batches], restarts=False)
    try:
        restored, restored_state = run(parsed, [[batch] for batch in batches], restarts=True)
    except StateError as error:
        return {"whole": _texts(whole), "unkept": error.detail}
    return {
        "whole": _texts(whole),
        "restored": _texts(restored),
        "states": [_digest(restored_state)],
        "unkept": "",
        "state": _digest(state),
    }


def _texts(outputs: Sequence[tuple[str, pa.RecordBatch]]) -> list[str]:
    return [
        f"{cause} {stream}: {line}"
        for cause, by_stream in sorted(outputs_by_cause(outputs).items())
        for stream, lines in sorted(by_stream.items())
        for line in lines
    ]


def main() -> None:
    fix_environment()  # as every engine does; the hash seed stays that of this process
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = of_case(**request) if "case" in request else of_program(**request)
        except Exception as error:
            answer = {"failure": f"{type(error).__name__}: {error}"}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()

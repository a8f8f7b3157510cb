"""Reads a case and runs it over the real head and pipeline. The form is described in README.md."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pyarrow as pa

from hotspare.flow.head.head import Head
from hotspare.flow.pipeline import Pipeline
from hotspare.flow.plan import Plan, compile_plan
from hotspare.formats.csv.rows import CsvStyle, rows_to_csv
from hotspare.projects.load import load_text
from hotspare.rows.batch import BAD_STREAM, END_FORM, RAW_SCHEMA, MessageFormat
from tests.raw_rows import RawRow, raw_of

_FOLDER = Path(__file__).parent / "windows"
CASES = sorted(_FOLDER.glob("*.case"))
OF_EVERY_TYPE = tuple(
    _FOLDER / f"{name}.case"
    for name in (
        *("opcodes_everywhere", "aggregate_collect", "counter_reports", "custom_lua", "geofence_centres", "lua_events"),
        *("pattern_diamond", "python_arrays", "python_columns", "remove_state_inserts", "statedb_reader", "statedb_writer"),
        "transpose_changes",
    )
)
"""A few cases that together have windows of all types, for laws that are too expensive for every case."""

UNIT_US = {"us": 1, "ms": 1_000, "s": 1_000_000, "min": 60_000_000}
MESSAGE = re.compile(r"at (\d+) (us|ms|s|min) (?:(tick)|(\S+): (.*))")
OUTPUT = re.compile(r" +(\S+): (.*)")
ROW_SEPARATOR = " | "


@dataclass(frozen=True)
class Message:
    """A bus message: a row of RAW_SCHEMA without its offset. `topic` -1 is a tick for every topic."""

    time_us: int
    source: str
    value: str


@dataclass(frozen=True)
class Case:
    """`expected[i]`: lines `window: text` that message i causes, in order per window."""

    plan: Plan
    messages: tuple[Message, ...]
    expected: tuple[tuple[str, ...], ...]


@cache
def read_case(path: Path) -> Case:
    """Reads and compiles a case once per process. Raises ValueError with the line that cannot be parsed."""
    return parse_case(path.read_text(), str(path))


def parse_case(text: str, path: str) -> Case:
    """Parses and compiles a case as `read_case` does; `path` names the text in places of errors."""
    project, _, script = text.partition("\n---\n")
    messages: list[Message] = []
    expected: list[list[str]] = []
    for number, line in enumerate(script.splitlines(), project.count("\n") + 3):
        if not line.strip() or line.startswith("#"):
            continue
        if match := MESSAGE.fullmatch(line):
            amount, unit, tick, source, rows = match.groups()
            messages.append(Message(int(amount) * UNIT_US[unit], "" if tick else source, rows or ""))
            expected.append([])
        elif (match := OUTPUT.fullmatch(line)) and messages:
            expected[-1].append(f"{match[1]}: {match[2]}")
        else:
            raise ValueError(f"{path}:{number}: not understood: {line}")
    plan = compile_plan(load_text(project, path).resolved)
    return Case(plan, tuple(messages), tuple(tuple(lines) for lines in expected))


def raw_batches(case: Case) -> list[pa.RecordBatch]:
    """Returns a raw batch per message; a tick has a row for each topic, and with the value `end` it ends the input."""
    topics = {source.window: i for i, source in enumerate(case.plan.resolved.sources)}
    offsets = dict.fromkeys(topics.values(), 0)
    batches = []
    for message in case.messages:
        rows: list[RawRow] = []
        for topic in [topics[message.source]] if message.source else sorted(topics.values()):
            value = message.value.replace(ROW_SEPARATOR, "\n").encode()
            form = END_FORM if not message.source and message.value == "end" else MessageFormat.CSV
            rows.append((topic, 0, offsets[topic], message.time_us, not message.source, form, value))
            offsets[topic] += 1
        batches.append(raw_of(rows))
    return batches


def outputs_by_cause(outputs: Iterable[tuple[str, pa.RecordBatch]]) -> dict[tuple[int, int], dict[str, list[str]]]:
    """Returns outputs as text, by the (topic, offset) that caused them, and by stream."""
    found: dict[tuple[int, int], dict[str, list[str]]] = {}
    for stream, batch in outputs:
        lines = rows_to_csv(batch, CsvStyle.EXACT).decode().splitlines()
        causes = zip(batch.column("hs:topic").to_pylist(), batch.column("hs:offset").to_pylist(), strict=True)
        for cause, line in zip(causes, lines, strict=True):
            found.setdefault(cause, {}).setdefault(stream, []).append(line)
    return found


def expected_by_cause(case: Case) -> dict[tuple[int, int], dict[str, list[str]]]:
    """Returns the expected outputs in the form of `outputs_by_cause`. Outputs of a tick belong to its row in the first topic."""
    streams = {name.rpartition("/")[2]: name for name, _ in case.plan.streams} | {BAD_STREAM: BAD_STREAM}
    found: dict[tuple[int, int], dict[str, list[str]]] = {}
    for raw, lines in zip(raw_batches(case), case.expected, strict=True):
        cause = (raw.column("topic")[0].as_py(), raw.column("offset")[0].as_py())
        for line in lines:
            window, _, text = line.partition(": ")
            found.setdefault(cause, {}).setdefault(streams[window], []).append(text)
    return found


def run(
    case: Case, groups: Sequence[Sequence[pa.RecordBatch]], *, restarts: bool
) -> tuple[list[tuple[str, pa.RecordBatch]], bytes]:
    """Returns outputs, and the last snapshot as bytes. Each group is one batch for the head.

    With `restarts`, each group is followed by a restore from a snapshot, and input that the snapshot does not cover is read again.
    """
    head = Head.from_plan(case.plan)
    pipeline = Pipeline.fresh(case.plan)
    outputs: list[tuple[str, pa.RecordBatch]] = []
    snapshot = b""
    rest = RAW_SCHEMA.empty_table()
    for group in groups:
        raw = pa.concat_tables([rest, pa.Table.from_batches(group)]).combine_chunks()
        outputs += pipeline.feed(head.decode(raw.to_batches()[0])).items()
        frozen = pipeline.freeze()
        pages = dict(frozen.pages())
        snapshot = frozen.header + b"".join(pages[name] for name in sorted(pages))
        if restarts:
            following = pipeline.next_offsets
            pipeline = Pipeline.restore(case.plan, frozen.header, pages)
            where = zip(raw["topic"].to_pylist(), raw["partition"].to_pylist(), raw["offset"].to_pylist(), strict=True)
            rest = raw.filter(pa.array([offset >= following.get((topic, number), 0) for topic, number, offset in where]))
    return outputs, snapshot

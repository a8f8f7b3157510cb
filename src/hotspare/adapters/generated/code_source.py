"""Publishers in user code: a function that is called repeatedly and returns events (SPEC I11).

The code runs as in windows (`scripting`): a deterministic function of the calls before it, whose variables are retained. Their
values are written with the events of each call, so an engine that takes over continues with the next call, and no event is
published twice.

Python returns `{"events": an event or a list of them, "done": whether it was the last call}`. Lua calls `esp_inject` with an event
or a list of them, or `esp_injectCsv` with rows, and returns true when it is done.
"""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hotspare.adapters.files.canonical import FlagColumn, OpcodeColumn, RowForm
from hotspare.adapters.files.cutters import rows_of_text
from hotspare.adapters.generated.steps import GeneratedPosition, GeneratedStep, StepOutcome
from hotspare.base.errors import UsageError
from hotspare.formats.csv.grammar import quoted
from hotspare.model.events import OPCODE_LETTER
from hotspare.model.types import Schema
from hotspare.scripting.contract import OPCODE_KEY, CodeFailure, Instance, TimeAndSeed

CSV_KEY = "hs:csv"
"""The member of an event that holds rows in CSV, without opcode and flags, in place of fields."""


@dataclass(frozen=True, slots=True)
class CodeOptions:
    """Options of a publisher in user code. `function` is called every `interval_us`; `events_max` 0 means no limit.

    `source_files_digest`: a digest of the files that the code reads, which must be equal in every engine.
    """

    schema: Schema
    function: str
    interval_us: int
    events_max: int = 0
    source_files_digest: str = ""


class CodeSource:
    """A `Generator` with one call per step."""

    def __init__(self, open_: Callable[[], Instance], options: CodeOptions) -> None:
        self._options = options
        self._instance = open_()
        self._began_us = self._steps = self._events = 0

    def resume(self, position: GeneratedPosition) -> None:
        self._began_us, self._steps, self._events = position.began_us, position.steps, position.events
        if not position.generator_state:
            return
        check, _, variables = position.generator_state.partition(" ")
        if check != self._options.source_files_digest:
            raise UsageError(
                "the files that a publisher's code reads have changed since it started", hint="rename the connector to start over"
            )
        self._instance.load(zlib.decompress(base64.b85decode(variables)))

    def next_step(self) -> GeneratedStep:
        options = self._options
        moment = TimeAndSeed(self._began_us + self.due_us(self._steps), _seed(self._steps))
        try:
            returned = self._instance.call(options.function, (), moment)
        except CodeFailure as failure:
            line = f", line {failure.line}" if failure.line else ""
            raise UsageError(f"call {self._steps + 1} of a publisher's code failed{line}: {failure.text}") from failure
        events, is_done = _parse_result(returned)
        rows = [row for event in events for row in _rows(event, options.schema)]
        left = options.events_max - self._events if options.events_max else len(rows)
        is_done |= bool(options.events_max) and len(rows) >= left
        self._steps, self._events = self._steps + 1, self._events + min(left, len(rows))
        return GeneratedStep(rows[:left], StepOutcome.DONE if is_done else StepOutcome.GOES_ON)

    def save_state(self) -> str:
        try:
            return f"{self._options.source_files_digest} {base64.b85encode(zlib.compress(self._instance.save())).decode()}"
        except CodeFailure as failure:
            raise UsageError(f"the variables of a publisher's code cannot be stored: {failure.text}") from failure

    def due_us(self, step: int) -> int:
        return step * self._options.interval_us


def _seed(step: int) -> int:
    """Returns the random seed of a call: different for each call, equal in every process."""
    return int.from_bytes(hashlib.blake2b(b"%d" % step, digest_size=8).digest(), "big")


def _parse_result(returned: Any) -> tuple[Sequence[Mapping[str, Any]], bool]:
    """Returns the events, and whether it was the last call. None counts as no events. Raises UsageError for any other result."""
    if returned is None:
        return (), False
    if not isinstance(returned, dict):
        what = f"a publisher's code returned a value of type {type(returned).__name__}, not its events"
        raise UsageError(what, hint='return {"events": [...], "done": False}')
    events = returned.get("events") or []
    listed = [events] if isinstance(events, dict) else events
    if not isinstance(listed, list) or not all(isinstance(event, dict) for event in listed):
        raise UsageError("a publisher's code returned invalid events", hint="return each event as a dict by field names")
    return listed, returned.get("done") is True


def _rows(event: Mapping[str, Any], schema: Schema) -> list[bytes]:
    """Returns an event as one row for inbound topics, or as the rows of its CSV text."""
    opcode = str(event.get(OPCODE_KEY) or "insert").lower()
    letter = _encoded(_LETTERS.get(opcode, opcode))
    if CSV_KEY in event:
        form = RowForm(opcode=OpcodeColumn.ABSENT, flag=FlagColumn.NORMAL, schema=schema)
        rows = form.canonicalize_rows(rows_of_text(_encoded(str(event[CSV_KEY]))))
        return [letter + row[row.index(b",") :] for row in rows]
    return [b",".join([letter, b"n", *(_column(event.get(name)) for name in schema.names)])]


_OPCODE_NAMES = {"insert": "INSERT", "update": "UPDATE", "upsert": "UPSERT", "delete": "DELETE", "safedelete": "SAFE_DELETE"}
_LETTERS = {
    word: OPCODE_LETTER[opcode].lower() for opcode in OPCODE_LETTER for word, name in _OPCODE_NAMES.items() if opcode.name == name
}


def _column(value: Any) -> bytes:
    """Returns a value in CSV; null is empty."""
    if value is None:
        return b""
    if isinstance(value, bool):
        return b"1" if value else b"0"
    if isinstance(value, int | float):
        return repr(value).encode()
    if isinstance(value, bytes):
        return quoted(base64.b64encode(value))
    if isinstance(value, list):
        return b"[" + b";".join(b"null" if item is None else repr(item).encode() for item in value) + b"]"
    return quoted(_encoded(str(value)))


def _encoded(text: str) -> bytes:
    """Returns the bytes of a text. With half a surrogate pair they are not UTF-8, so the row becomes a bad event."""
    return text.encode(errors="surrogatepass")

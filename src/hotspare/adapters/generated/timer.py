"""The timer: an event per interval, which holds its time (SPEC I13).

Event k, from 0 on, has the time `basetime + k intervals`, independent of any clock; it is published k intervals after the first
one. Without a basetime, the times are those at which the events fall due.
"""

from __future__ import annotations

import calendar
import datetime
from dataclasses import dataclass

import pyarrow as pa

from hotspare.adapters.files.canonical import KeyPresence
from hotspare.adapters.generated.steps import GeneratedPosition, GeneratedStep, StepOutcome
from hotspare.base.errors import UsageError
from hotspare.formats.csv.grammar import quoted
from hotspare.model.durations import UNIT_US
from hotspare.model.types import TIME_TYPES, FieldType, Schema
from hotspare.rows.times import DateFormat
from hotspare.rows.values import parse

FORMAT_DEFAULT = "%Y-%m-%d %H:%M:%S"
MONTHS = {"month": 1, "year": 12}
"""Units whose length depends on the calendar, in months."""
UNITS = {**UNIT_US, "week": 7 * UNIT_US["day"]}
_ID_TYPES = (FieldType.INT32, FieldType.INT64, FieldType.STRING)
_PER_SECOND = {FieldType.DATE: 1_000_000, FieldType.STAMP: 1}
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


@dataclass(frozen=True, slots=True)
class TimerOptions:
    """Options of a timer. `interval` in units of `unit`; `base_us` in microseconds since 1970, None for the time at which the first
    event falls due; `events_max` 0 means no limit. `key` is absent if the window generates its keys."""

    schema: Schema
    interval: int
    unit: str
    label: str = ""
    base_us: int | None = None
    events_max: int = 0
    key: KeyPresence = KeyPresence.PRESENT

    def __post_init__(self) -> None:
        if self.interval < 1:
            raise UsageError(f"interval {self.interval} of a timer is too short", hint="use at least 1, with a unit such as second")
        if self.unit not in UNITS and self.unit not in MONTHS:
            raise UsageError(f"unit {self.unit!r} of a timer does not exist", hint="use " + ", ".join((*MONTHS, "week", *UNIT_US)))
        fits = len(self.schema) == len(_FORMS) and all(
            each.type in types for each, types in zip(self.schema.fields, _FORMS, strict=True)
        )
        if not fits or self.schema.key_indexes != (0,):
            raise UsageError(
                f"a timer does not fit the schema {self.schema}",
                hint="give the window the fields id (the key; int32, int64 or string), time (stamp or date) and label (string)",
            )


_FORMS = (_ID_TYPES, TIME_TYPES, (FieldType.STRING,))


def base_time_us(text: str, time_format: str) -> int:
    """Parses a time in UTC by a strptime format. Returns microseconds since 1970. Raises UsageError if the text does not match the
    format."""
    form = DateFormat.from_format(time_format or FORMAT_DEFAULT)
    values, _ = parse(pa.array([text.strip()]), FieldType.STAMP, form)
    found = values.cast(pa.int64())[0].as_py()
    if found is None:
        raise UsageError(
            f"basetime {text!r} of a timer does not match timeformat {time_format or FORMAT_DEFAULT}",
            hint="correct one of them",
        )
    return int(found)


class Timer:
    """A `Generator` with one event per step."""

    def __init__(self, options: TimerOptions) -> None:
        self._options = options
        self._base_us = options.base_us or 0
        self._steps = 0

    def resume(self, position: GeneratedPosition) -> None:
        self._steps = position.steps
        if self._options.base_us is None:
            self._base_us = position.began_us

    def next_step(self) -> GeneratedStep:
        options, self._steps = self._options, self._steps + 1
        is_last = 0 < options.events_max <= self._steps
        return GeneratedStep([self._row(self._steps - 1)], StepOutcome.DONE if is_last else StepOutcome.GOES_ON)

    def save_state(self) -> str:
        return ""

    def due_us(self, step: int) -> int:
        return self.time_us(step) - self.time_us(0)

    def time_us(self, step: int) -> int:
        """Returns the time of event `step`, microseconds since 1970. In a month without the base time's day, the last day of that
        month counts."""
        count = step * self._options.interval
        if self._options.unit in UNITS:
            return self._base_us + count * UNITS[self._options.unit]
        base = _EPOCH + datetime.timedelta(microseconds=self._base_us)
        months = base.year * 12 + base.month - 1 + count * MONTHS[self._options.unit]
        year, month = divmod(months, 12)
        if year > datetime.MAXYEAR:
            raise UsageError(
                f"the next event of a timer is in the year {year}, after {datetime.MAXYEAR}", hint="limit it with maxevents"
            )
        day = min(base.day, calendar.monthrange(year, month + 1)[1])
        return (base.replace(year=year, month=month + 1, day=day) - _EPOCH) // datetime.timedelta(microseconds=1)

    def _row(self, step: int) -> bytes:
        key = b"%d" % (step + 1) if self._options.key is KeyPresence.PRESENT else b""
        time = self.time_us(step) // _PER_SECOND[self._options.schema.fields[1].type]
        return b"i,n,%b,%d,%b" % (key, time, quoted(self._options.label.encode()) if self._options.label else b"")

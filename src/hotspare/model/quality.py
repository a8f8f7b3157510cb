"""Qualities of service, one per output stream: which outputs spares hold, and when the stream's progress is written (SPEC D1-D7,
D9, D15).

A quality never decides who may publish. Its text is one form for YAML, ESP XML, the command line and a group's facts:

    precise
    simple
    buffered 15 seconds          buffered 1000 events
    trimmed 10 events            trimmed 1 second            trimmed 10 events or 1 second

docs/qualities.md describes what a receiver may see under each after a failure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from hotspare.base.errors import UsageError
from hotspare.model.durations import format_duration, parse_duration

COUNT_MAX = 1_000_000_000
"""The largest number of events in a quality. As `progress_events`, it means that only `progress_ms` counts."""
_MS_US = 1_000
_MS_MAX = 24 * 3_600_000


class QualityKind(Enum):
    """The kinds, from the weakest promise to the strongest."""

    SIMPLE = "simple"
    """Spares discard their outputs: a new active publishes only what it computes from then on."""
    BUFFERED = "buffered"
    """Spares keep their newest outputs, by time or by count, and replay those that are not committed."""
    TRIMMED = "trimmed"
    """Progress is written at intervals of outputs or of time; spares hold the outputs after it and replay them: at least once."""
    PRECISE = "precise"
    """Progress is written with every output; spares hold the outputs after it and replay them: exactly once."""


@dataclass(frozen=True, slots=True)
class Quality:
    """A kind with its parameters; parameters of other kinds are 0. Raises UsageError if kind and parameters do not fit together.

    `window_ms`, `window_events`         buffered: the outputs that a spare keeps, by exactly one of age and count
    `progress_events`, `progress_ms`     trimmed: progress is written after this count of outputs or this time, whichever is first
    """

    kind: QualityKind = QualityKind.PRECISE
    window_ms: int = 0
    window_events: int = 0
    progress_events: int = 0
    progress_ms: int = 0

    def __post_init__(self) -> None:
        window, progress = (self.window_ms, self.window_events), (self.progress_events, self.progress_ms)
        if self.kind is QualityKind.BUFFERED and (sum(map(bool, window)) != 1 or any(progress)):
            raise UsageError("quality buffered needs exactly one window, a time or a number of events", hint=_HINT)
        if self.kind is QualityKind.TRIMMED and (not all(progress) or any(window)):
            raise UsageError("quality trimmed needs a number of events and a time", hint=_HINT)
        if self.kind in (QualityKind.SIMPLE, QualityKind.PRECISE) and any((*window, *progress)):
            raise UsageError(f"quality {self.kind.value} has no parameters", hint=_HINT)
        if any(not 0 <= n <= COUNT_MAX for n in (self.window_events, self.progress_events)):
            raise UsageError("the number of events of a quality is too large", hint=f"use at most {COUNT_MAX}")
        if any(not 0 <= n <= _MS_MAX for n in (self.window_ms, self.progress_ms)):
            raise UsageError("the time of a quality is too long", hint="use at most 1 day")

    @property
    def holds_all(self) -> bool:
        """Whether a spare holds every output that follows the committed progress, so that none can be lost."""
        return self.kind in (QualityKind.TRIMMED, QualityKind.PRECISE)

    def __str__(self) -> str:
        """The text that `parse_quality` reads back as an equal quality."""
        counts = [n for n in (self.window_events, self.progress_events) if n and n != COUNT_MAX]
        parts = [f"{n} event" if n == 1 else f"{n} events" for n in counts]
        parts += [format_duration(ms * _MS_US) for ms in (self.window_ms, self.progress_ms) if ms]
        return f"{self.kind.value} {' or '.join(parts)}".strip()


_HINT = "write precise, simple, buffered 15 seconds, buffered 1000 events, or trimmed 10 events or 1 second"
PRECISE = Quality()
"""The quality of an output stream for which the project requests none."""
SIMPLE = Quality(QualityKind.SIMPLE)
BUFFERED = Quality(QualityKind.BUFFERED, window_ms=15_000)
"""The meaning of the text `buffered` without parameters, as in SAS examples (SPEC D7)."""
TRIMMED = Quality(QualityKind.TRIMMED, progress_events=10, progress_ms=1_000)
"""The meaning of the text `trimmed` without parameters, as in SAS examples (SPEC D9); progress is never later than a second."""

_DEFAULTS = {q.kind.value: q for q in (PRECISE, SIMPLE, BUFFERED, TRIMMED)}
_EVENTS = re.compile(r"([0-9]{1,10})\s+events?", re.ASCII)


def parse_quality(text: str) -> Quality:
    """Returns the quality that `text` names; an omitted parameter has its default. Raises UsageError with the reason."""
    name, _, rest = " ".join(text.split()).partition(" ")
    default = _DEFAULTS.get(name)
    if default is None:
        raise UsageError(f"quality {name[:40]!r} does not exist", hint=_HINT)
    if not rest:
        return default
    events = times_ms = 0
    for part in rest.split(" or "):
        count = _EVENTS.fullmatch(part)
        is_second = bool(events if count else times_ms)
        events, times_ms = (int(count[1]), times_ms) if count else (events, _milliseconds(part))
        if is_second or not (events if count else times_ms):
            raise UsageError(f"quality {text.strip()[:80]!r} cannot be read", hint=_HINT)
    if default.kind is QualityKind.BUFFERED:
        return Quality(default.kind, window_ms=times_ms, window_events=events)
    if default.kind is QualityKind.TRIMMED:
        return Quality(default.kind, progress_events=events or COUNT_MAX, progress_ms=times_ms or default.progress_ms)
    raise UsageError(f"quality {name} has no parameters", hint=_HINT)


def _milliseconds(text: str) -> int:
    try:
        span_us = parse_duration(text)
    except ValueError as error:
        raise UsageError(f"a quality has the parameter {text[:40]!r}", detail=str(error), hint=_HINT) from None
    if span_us % _MS_US:
        raise UsageError(f"a quality has the parameter {text[:40]!r}", detail="it is finer than a millisecond", hint=_HINT)
    return span_us // _MS_US

"""Decides, for an engine that makes its state from recent input, when its outputs count, what it adopts, and when it is eligible.
Pure.

If all state is bounded by time, an engine needs neither a snapshot nor the group's origin (SPEC F11). It begins to read some time
back. From the time at which no older input matters (`until_us`), its windows hold what those of all other engines hold. Only the
count of earlier outputs and their digest have no bound. The engine adopts these from what is committed, stream by stream:

    the committed output is one of its own     adopted there: sequence and digest of that very output
    input from before its own caused it        adopted where its own outputs begin, once the active engine reports, with input
                                               beyond that place, no newer output: nothing may be under way
    input that it has processed caused it,     its state is not the group's: it ends
      and it is not one of its own

Digests are chained, so each committed digest that agrees afterwards proves all outputs since the adopted one. The engine is
eligible after `matches_min` of these, and not before: an adopted digest itself proves nothing.

An insert of an existing key is refused. So a key that recurs can depend on a much older row, from one refusal to the next, for
longer than any window. Such refusals are bad events; each one moves `until_us`, except the first of a key, which this engine may
take for new. `span_us` is twice what windows remember, so that such a chain is over by then. A gap between ticks moves `until_us`,
too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from itertools import pairwise

from hotspare.bus.contract import OutputId, Progress
from hotspare.ha.rules.facts import Leadership, OtherMember, StreamFacts, Warming

Offsets = Mapping[tuple[int, int], int]
_REFUSED = "an event was refused because of a row that may be older than the input read"
_NO_TICKS = "a gap between ticks kept rows beyond their time"


def after_input(known: Warming, time_us: int, refused: int, offsets: Offsets) -> Warming:
    """Returns the facts after all input before `offsets` was processed, at system time `time_us`. `refused`: the count of bad
    events so far. New bad events move `until_us`. Otherwise the engine becomes warm once `time_us`, and the newest tick of each
    partition but for a permitted gap, have reached it."""
    if known.is_warm:
        return known
    if refused != known.refused_events:
        return replace(_extended(known, time_us, _REFUSED), refused_events=refused)
    if time_us < known.until_us or min(known.ticked.values(), default=known.until_us) < known.until_us - known.tick_gap_us:
        return known  # ticks that have not arrived yet may show a gap
    return replace(known, is_warm=True, begin_offsets={**known.begin_offsets, **offsets})


def after_ticks(known: Warming, partition: tuple[int, int], times_us: Sequence[int]) -> Warming:
    """Returns the facts after ticks of one partition, with append times `times_us` in order. Rows expire at ticks, so a long gap
    kept rows for that time, and moves `until_us`."""
    if known.is_warm or not times_us:
        return known
    ticked = [*([known.ticked[partition]] if partition in known.ticked else ()), *times_us]
    gaps = (after for before, after in pairwise(ticked) if after - before > known.tick_gap_us)
    known = replace(known, ticked={**known.ticked, partition: times_us[-1]})
    return _extended(known, max(gaps, default=0), _NO_TICKS)


def _extended(known: Warming, from_us: int, why: str) -> Warming:
    """Returns the facts with a later `until_us`, because a row that exists at `from_us` may matter for `span_us`; `why` is the
    reason for users."""
    until_us = from_us + known.span_us
    return replace(known, until_us=until_us, extended_because=why) if until_us > known.until_us else known


class OutputPlace(Enum):
    """The position of an output's input relative to the input from which this engine's own outputs count."""

    BEFORE = "before its own outputs begin"
    AHEAD = "of input that it has not taken"
    TAKEN = "of input that it has taken"


def output_place(at: OutputId | None, begun: Offsets, next_offsets: Offsets) -> OutputPlace:
    """Returns the place of the output `at`. `begun`: where this engine's own outputs begin; `next_offsets`: up to where it has
    read. None, for a stream without outputs, is BEFORE."""
    if at is None or at.offset < begun.get((at.topic, at.partition), 0):
        return OutputPlace.BEFORE
    return OutputPlace.AHEAD if at.offset >= next_offsets.get((at.topic, at.partition), 0) else OutputPlace.TAKEN


def output_to_adopt(known: StreamFacts) -> Progress | None:
    """Returns the committed output to adopt: the recorded `adoption_target`, or the newest committed one without a target.

    If the target moved with each commit, a spare that lags would always search for an output that it has not computed yet.
    """
    return known.adoption_target or known.committed


def is_silent(known: StreamFacts, stream: str, warming: Warming, leadership: Leadership, others: Iterable[OtherMember]) -> bool:
    """Whether the active engine is known to have computed no output of the stream between the committed one and the place where
    this engine's outputs begin. False also if that is unknown: no engine is active, or its record is missing or of another epoch.

    Both engines count input alike. So an engine with a greater sum of positions has processed all input before that place. At an
    equal sum it may be in the middle of a message, which counts from its first row on.
    """
    leader = leadership.leader
    told = None if leader is None else next((o for o in others if o.engine == leader.holder), None)
    if leader is None or told is None or told.active_epoch_age is None or told.active_epoch_age[0] != leader.epoch:
        return False
    return told.order > sum(warming.begin_offsets.values()) and told.sequences.get(stream) == known.committed_sequence


def after_adoption(known: StreamFacts, newest: Progress | None) -> StreamFacts:
    """Returns the facts of a stream after it adopted the committed output `newest`; None: no output was ever committed."""
    return replace(
        known, is_unadopted=False, adoption_target=None, verified=0 if newest is None else newest.sequence, difference=None
    )


def after_match(known: Warming) -> Warming:
    return replace(known, matched=known.matched + 1)


def is_eligible(known: Warming, streams: Iterable[StreamFacts]) -> bool:
    return known.is_warm and known.matched >= known.matches_min and not any(each.is_unadopted for each in streams)


def warming_sentence(known: Warming, streams: Mapping[str, StreamFacts]) -> str:
    """Returns a sentence for users on the progress of a warming engine."""
    if not known.is_warm:
        return "reads until its state is complete" + (
            f"; the time was extended: {known.extended_because}" if known.extended_because else ""
        )
    waits = [name for name, each in sorted(streams.items()) if each.is_unadopted]
    agreed = f"{known.matched} of {known.matches_min} committed records matched"
    return f"{agreed}; output numbers are unknown for {', '.join(waits)}" if waits else agreed

"""The times of snapshots by the settings: by time, by events, by a schedule, never; and the engine that takes them (SPEC G9,
H4)."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.base.errors import UsageError
from hotspare.ha.calls.store_jobs import Candidate, StoreJobKind
from hotspare.ha.rules import actions as do
from hotspare.ha.rules import snapshots as rules
from hotspare.ha.rules.cron import parse_cron
from hotspare.ha.rules.decide import decide, duties, next_due_ms
from hotspare.ha.rules.facts import NewestSnapshot, OtherMember, Snapshots
from hotspare.ha.rules.roles import Role
from hotspare.ha.rules.settings import GroupSettings
from hotspare.ha.rules.snapshots import CRON_TURN_MS, EVENTS_TURN_MS, LATE_INTERVALS, SNAPSHOT_RETRY_MS
from hotspare.ha.rules.view import CoreView, View
from tests.ha.views import NOW_MS, SETTINGS, active, standby

MINUTE_MS = 60_000
OFF = replace(SETTINGS, snapshot_interval_ms=0)
NEW = {"core": CoreView(order=1)}


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1_000)


def due_ms(view: View) -> int | None:
    found = [duty.due_ms for duty in duties(view) if isinstance(duty.action, do.TakeSnapshot)]
    return found[0] if found else None


def other(name: str, priority: int = 1) -> OtherMember:
    return OtherMember(name, Role.STANDBY.value, 1, snapshot_priority=priority)


@pytest.mark.parametrize(
    ("text", "after", "then"),
    [
        ("* * * * *", "2026-01-31T23:59:59.999", "2026-02-01T00:00"),
        ("30 4 * * *", "2026-01-31T04:29", "2026-01-31T04:30"),
        ("30 4 * * *", "2026-01-31T04:30", "2026-02-01T04:30"),
        ("*/20 8-9 * * 1-5", "2026-01-30T09:40", "2026-02-02T08:00"),
        ("0 0 29 2 *", "2026-03-01T00:00", "2028-02-29T00:00"),
        ("0 12 13 * 5", "2026-02-01T00:00", "2026-02-06T12:00"),
        ("0 12 */2 * 5", "2026-02-01T13:00", "2026-02-13T12:00"),
        ("5,10 0 1 1 7", "2026-01-01T00:06", "2026-01-01T00:10"),
        ("0 0 * * 7", "2026-01-31T00:00", "2026-02-01T00:00"),
    ],
)
def test_the_next_time_of_a_schedule(text: str, after: str, then: str) -> None:
    assert parse_cron(text).next_ms(ms(after)) == ms(then)


@given(
    st.tuples(
        st.sampled_from(["*", "7", "*/13", "50-59/4", "0,30"]),
        st.sampled_from(["*", "3", "8-17/3"]),
        st.sampled_from(["*", "31", "1-5"]),
        st.sampled_from(["*", "2-4", "1,7"]),
        st.sampled_from(["*", "0", "1-5"]),
    ),
    st.datetimes(datetime(2024, 1, 1), datetime(2026, 1, 1)),
)
def test_the_next_time_is_the_first_minute_that_every_field_allows(fields: tuple[str, ...], after: datetime) -> None:
    """Compared with a search minute by minute, by an independent reading of the fields."""
    cron = parse_cron(" ".join(fields))
    at = datetime.fromtimestamp(cron.next_ms(int(after.replace(tzinfo=UTC).timestamp() * 1_000)) / 1_000, UTC)

    def allows(field: str, value: int, least: int) -> bool:
        for part in field.split(","):
            span, _, step = part.partition("/")
            first, _, last = span.partition("-")
            low, high = (least, 99) if span == "*" else (int(first), int(last or (first if not step else 99)))
            if low <= value <= high and (value - low) % int(step or 1) == 0:
                return True
        return False

    def matches(moment: datetime) -> bool:
        days = allows(fields[2], moment.day, 1), allows(fields[4], moment.isoweekday() % 7, 0)
        is_day = any(days) if "*" not in (fields[2][0], fields[4][0]) else all(days)
        parts = (fields[0], moment.minute, 0), (fields[1], moment.hour, 0), (fields[3], moment.month, 1)
        return is_day and all(allows(*part) for part in parts)

    assert matches(at)
    begin = after.replace(tzinfo=UTC, second=0, microsecond=0)
    hours = min(int((at - begin).total_seconds() // 60), 3_000)
    assert not any(matches(begin + timedelta(minutes=i)) for i in range(1, hours))
    assert at > begin


@pytest.mark.parametrize("text", ["", "* * * *", "60 * * * *", "* * 0 * *", "* * * * 8", "5-1 * * * *", "*/0 * * * *", "a * * * *"])
def test_what_is_no_schedule_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        GroupSettings(snapshot_cron=text or " ")


def test_a_schedule_without_a_day_is_refused() -> None:
    with pytest.raises(UsageError, match="its day never occurs"):
        parse_cron("0 0 31 2 *")


def test_whichever_comes_first_of_time_and_events_says_when() -> None:
    """SPEC G9: checkpoints at the smaller of both."""
    both = replace(SETTINGS, snapshot_interval_ms=1_000, snapshot_events=100)
    waits = standby(settings=both, snapshot_ms=NOW_MS - 400, events_taken=99, **NEW)
    assert due_ms(waits) == NOW_MS + 600
    assert do.TakeSnapshot() in decide(standby(settings=both, snapshot_ms=NOW_MS - 400, events_taken=100, **NEW))
    assert do.TakeSnapshot() in decide(standby(settings=both, snapshot_ms=NOW_MS - 1_000, events_taken=0, **NEW))
    since = standby(settings=both, snapshot_ms=NOW_MS, events_taken=150, written_events=100, **NEW)
    assert due_ms(since) == NOW_MS + 1_000


def test_none_is_taken_where_nothing_says_when() -> None:
    """SPEC G9: enabled=false."""
    off = standby(settings=OFF, snapshot_ms=0, events_taken=10**9, wall_ms=10**12, **NEW)
    assert due_ms(off) is None
    assert due_ms(active(settings=OFF, snapshot_ms=0, **NEW)) is None


def test_a_schedule_is_kept_by_one_spare_and_by_the_next_where_that_takes_none() -> None:
    """SPEC H4: the schedule itself finds a spare."""
    settings = replace(OFF, snapshot_cron="30 4 * * *")
    half_past, written = ms("2026-01-31T04:30"), ms("2026-01-30T04:30")

    def at(offset_ms: int, others: tuple[OtherMember, ...], seen_wall_ms: int) -> int | None:
        newest = NewestSnapshot(0, "", NOW_MS, seen_wall_ms)
        known = {"written_wall_ms": written, "newest": newest, "others": others, **NEW}
        return due_ms(standby(settings=settings, wall_ms=half_past + offset_ms, **known))

    assert at(-10_000, (other("z"),), written) == NOW_MS + 10_000
    assert at(-10_000, (other("a"),), written) == NOW_MS + 10_000 + CRON_TURN_MS
    assert at(-10_000, (other("a"), other("b")), written) == NOW_MS + 10_000 + 2 * CRON_TURN_MS
    tomorrow = at(20_000, (other("a"),), half_past + 10_000)
    assert tomorrow == NOW_MS + 24 * 60 * MINUTE_MS - 20_000 + CRON_TURN_MS, "one was confirmed on time"


def test_by_events_the_next_engine_goes_when_those_before_it_take_none() -> None:
    settings = replace(OFF, snapshot_events=100)
    late = {"settings": settings, "others": (other("a"),), "newest": NewestSnapshot(0, "a", NOW_MS - EVENTS_TURN_MS), **NEW}
    assert do.TakeSnapshot() not in decide(standby(events_taken=100 * LATE_INTERVALS - 1, **late))
    assert do.TakeSnapshot() in decide(standby(events_taken=100 * LATE_INTERVALS, **late))
    fast = late | {"events_taken": 100_000, "newest": NewestSnapshot(0, "a", NOW_MS - 1)}
    assert due_ms(standby(**fast)) == NOW_MS + EVENTS_TURN_MS - 1, "so many come while the other one writes"


def test_spares_of_greater_priority_take_the_snapshots_and_those_of_none_never() -> None:
    due = {"snapshot_ms": 0, **NEW}
    mine = {n: replace(SETTINGS, snapshot_priority=n) for n in (0, 1, 5)}
    assert do.TakeSnapshot() in decide(standby(settings=mine[5], others=(other("a"),), **due))
    assert do.TakeSnapshot() not in decide(standby(others=(other("z", 5),), newest=NewestSnapshot(0, "me", NOW_MS), **due))
    assert do.TakeSnapshot() in decide(standby(others=(other("a", 0),), **due))
    assert due_ms(standby(settings=mine[0], **due)) is None
    assert do.TakeSnapshot() in decide(active(others=(other("a", 0),), **due)), "no spare takes any"
    assert due_ms(active(settings=mine[0], others=(other("a", 0),), **due)) is None


@pytest.mark.parametrize("settings", [replace(OFF, snapshot_events=10), replace(OFF, snapshot_cron="* * * * *")])
def test_a_state_that_could_not_be_written_is_tried_again_but_not_at_once(settings: GroupSettings) -> None:
    failed = rules.after_failing(Snapshots(snapshot_ms=NOW_MS, snapshot_order=1), StoreJobKind.WRITE, "down")
    known = {"snapshot_order": failed.snapshot_order, "snapshot_ms": NOW_MS, "events_taken": 99, "wall_ms": ms("2026-01-01T00:00")}
    view = standby(settings=settings, **known, **NEW)
    assert (due_ms(view), next_due_ms(view)) != (None, None)
    assert due_ms(view) == NOW_MS + SNAPSHOT_RETRY_MS
    written = rules.after_writing(Snapshots(), Candidate("x", 1, {}, taken_wall_ms=5, taken_events=7))
    assert (written.written_wall_ms, written.written_events) == (5, 7)


def test_how_far_apart_snapshots_are_is_known_of_times_and_schedules() -> None:
    assert GroupSettings(snapshot_cron="30 4 * * *", snapshot_interval_ms=0).snapshot_gap_ms == 24 * 60 * MINUTE_MS
    assert GroupSettings(snapshot_cron="0 0 * * 1-5", snapshot_interval_ms=0).snapshot_gap_ms == 3 * 24 * 60 * MINUTE_MS
    assert GroupSettings(snapshot_cron="30 4 * * *").snapshot_gap_ms == 5_000
    assert (replace(OFF, snapshot_events=1).snapshot_gap_ms, OFF.snapshot_gap_ms) == (None, 0)

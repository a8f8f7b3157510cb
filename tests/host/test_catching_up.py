"""An engine that catches up reports how far it is, how fast, and how long it still takes (SPEC H8)."""

from __future__ import annotations

from hotspare.host.hosted_group import CatchUp

KEYS = (0, 0), (1, 0)


def test_progress_rate_and_time_left_are_told_once_a_second_until_it_is_done() -> None:
    work = CatchUp({KEYS[0]: 100}, {KEYS[0]: 1_100, KEYS[1]: 1_000}, begun_ms=0)
    assert work.total == 2_000
    assert work.due_report({KEYS[0]: 300}, 1_000) is None, "not before it is known to take long"
    assert work.due_report({KEYS[0]: 600}, 2_000) == (
        "catches up: 25 % of 2000 messages, 250 per second, 6 s left",
        {"messages_left": 1_500, "per_s": 250, "left_s": 6},
    )
    assert work.due_report({KEYS[0]: 700}, 2_900) is None
    told = work.due_report({KEYS[0]: 1_100, KEYS[1]: 500}, 4_000)
    assert told is not None
    assert told[0] == "catches up: 75 % of 2000 messages, 375 per second, 2 s left"
    assert work.due_report({KEYS[0]: 9_000, KEYS[1]: 1_000}, 5_000) == (
        "caught up: 2000 messages in 5.0 s",
        {"messages": 2_000, "per_s": 400},
    )
    assert work.due_report({}, 9_000) is None


def test_the_mark_at_the_end_of_a_transaction_is_not_waited_for_for_long() -> None:
    """The mark takes an offset, and no reader receives it."""
    work = CatchUp({KEYS[0]: 100}, {KEYS[0]: 111, KEYS[1]: 1}, begun_ms=0)
    assert work.due_report({KEYS[0]: 105}, 1_000) is None
    assert work.due_report({KEYS[0]: 110}, 1_500) is None
    assert work.due_report({KEYS[0]: 110}, 3_400) is not None, "it still says how much is left"
    assert not work.is_done
    assert work.due_report({KEYS[0]: 110}, 3_500) is not None
    assert work.is_done
    slow = CatchUp({}, {KEYS[0]: 2}, begun_ms=0)
    slow.due_report({}, 60_000)
    assert not slow.is_done, "two are no mark"


def test_a_short_way_is_told_at_its_end_and_none_never() -> None:
    short = CatchUp({}, {KEYS[0]: 10}, begun_ms=0)
    assert short.due_report({KEYS[0]: 10}, 5) is not None
    assert CatchUp({KEYS[0]: 10}, {KEYS[0]: 10}, begun_ms=0).due_report({}, 5_000) is None


def test_who_stands_still_does_not_say_how_long_it_takes() -> None:
    told = CatchUp({}, {KEYS[0]: 10}, begun_ms=0).due_report({}, 60_000)
    assert told is not None
    assert told[1]["left_s"] == -1
    assert "time left unknown" in told[0]

"""The patience for the first client of a fence: longer if the brokers are slow to answer anything (docs/failover.md)."""

from hotspare.bus.kafka.writer import WAIT_TIMEOUT_S, patience_s


def test_brokers_that_answer_at_once_are_not_waited_for_longer() -> None:
    assert patience_s(0.0) == patience_s(0.01) == WAIT_TIMEOUT_S


def test_slow_brokers_get_the_time_that_a_fence_takes_there_but_no_more_than_a_part_of_a_lease() -> None:
    assert WAIT_TIMEOUT_S < patience_s(0.03) < patience_s(0.05)
    assert patience_s(5.0) == patience_s(10.0) < 1.0

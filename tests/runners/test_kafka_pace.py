"""The pace of reading Kafka: batches stay near their bytes for any message size, and no partition runs far ahead."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hotspare.runners.contract import BatchLimits
from hotspare.runners.spark.kafka.pace import AHEAD_MAX, BATCHES_AT_ONCE, Pacer, Share

MOST = 1_000
LIMITS = BatchLimits(messages_max=MOST // BATCHES_AT_ONCE, bytes_max=100_000)
A, B = (0, 0), (0, 1)


def batch(pacer: Pacer, bytes_each: int) -> bool:
    """Returns a full batch of one partition."""
    messages = pacer.pace.messages_max
    return pacer.adjust_to_batch({A: Share(messages, 5)}, messages * bytes_each)


def test_a_first_batch_fits_what_the_sample_weighed() -> None:
    assert Pacer(LIMITS, 0.0).pace.messages_max == 1000
    assert Pacer(LIMITS, 1_000.0).pace.messages_max == 100
    assert Pacer(LIMITS, 1e9).pace.messages_max == 1


@given(st.lists(st.integers(1, 10_000_000), min_size=1, max_size=8), st.floats(0, 1e7))
def test_whatever_comes_the_next_batch_of_its_kind_is_near_the_limit(sizes: list[int], mean: float) -> None:
    pacer = Pacer(LIMITS, mean)
    for bytes_each in sizes:
        batch(pacer, bytes_each)
        changed = batch(pacer, bytes_each)
        assert not changed
        messages = pacer.pace.messages_max
        assert messages == 1 or messages * bytes_each <= 2 * LIMITS.bytes_max
        assert messages * 4 >= min(MOST, LIMITS.bytes_max // bytes_each)


def test_a_batch_that_is_not_full_says_nothing_about_more() -> None:
    pacer = Pacer(LIMITS, 10_000.0)
    assert not pacer.adjust_to_batch({A: Share(3, 5)}, 30)
    assert pacer.pace.messages_max == 10


def test_a_partition_far_ahead_waits_until_the_others_have_its_time() -> None:
    pacer = Pacer(LIMITS, 1.0)
    read_of_b = 0
    for time in range(1, 100):
        held = pacer.pace.paused_partitions
        shares = {A: Share(500 if not held else 1000, time)}
        if B not in held:
            shares[B] = Share(500, 1_000 + time)
            read_of_b += 500
        pacer.adjust_to_batch(shares, 1000)
    assert pacer.pace.paused_partitions == {B}
    assert read_of_b <= AHEAD_MAX * MOST + 1000
    assert pacer.pace.positions({A: 1, B: 2}) == {A: 1}
    assert pacer.adjust_to_batch({A: Share(1000, 2_000)}, 1000)
    assert pacer.pace.paused_partitions == frozenset()


def test_few_messages_of_many_bytes_are_as_far_ahead_as_many() -> None:
    """Rows that wait in the merge for the partition behind are bounded by bytes as well."""
    bytes_each = LIMITS.bytes_max // 10
    pacer, read_of_b = Pacer(LIMITS, bytes_each), 0
    for time in range(1, 100):
        held, most = pacer.pace.paused_partitions, pacer.pace.messages_max
        shares = {A: Share(most if held else most // 2, time)}
        if B not in held:
            shares[B] = Share(most // 2, 1_000 + time)
            read_of_b += most // 2
        pacer.adjust_to_batch(shares, sum(share.messages for share in shares.values()) * bytes_each)
    assert pacer.pace.paused_partitions == {B}
    assert read_of_b * bytes_each <= 2 * LIMITS.bytes_max


def test_a_held_partition_is_read_again_when_nothing_else_waits() -> None:
    pacer = Pacer(LIMITS, 1.0)
    for _ in range(20):
        pacer.adjust_to_batch(
            {A: Share(500, 1), B: Share(500, 50)} if not pacer.pace.paused_partitions else {A: Share(1000, 1)}, 1000
        )
    assert pacer.pace.paused_partitions == {B}
    assert pacer.adjust_to_batch({A: Share(3, 2)}, 10)
    assert pacer.pace.paused_partitions == frozenset()


def test_partitions_that_keep_together_are_never_held() -> None:
    pacer = Pacer(LIMITS, 1.0)
    for time in range(0, 200, 2):
        assert (
            not pacer.adjust_to_batch({A: Share(500, time + time % 3), B: Share(500, time + 1)}, 1000)
            or not pacer.pace.paused_partitions
        )


def test_after_failures_less_is_read_at_once_until_a_batch_says_that_more_fits() -> None:
    pacer = Pacer(LIMITS, 1.0)
    for _ in range(5):
        pacer.shrink()
    assert pacer.pace.messages_max == 1
    assert batch(pacer, 1)
    assert pacer.pace.messages_max == MOST

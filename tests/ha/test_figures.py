"""The estimate of how far an engine's clock is ahead of the bus's, which `hotspare status` shows."""

from hypothesis import given
from hypothesis import strategies as st

from hotspare.ha.group_state import SKEW_WINDOW_MS, ClockSkew


@given(st.integers(-(10**9), 10**9), st.lists(st.integers(0, 10**6), min_size=1, max_size=30))
def test_it_is_the_least_delay_beyond_the_difference_of_the_clocks(skew_us: int, delays_us: list[int]) -> None:
    skew = ClockSkew()
    assert skew.ahead_ms is None
    for number, delay_us in enumerate(delays_us):
        skew.add_sample(number, 10**12 + skew_us + delay_us, 10**12)
    assert skew.ahead_ms == (skew_us + min(delays_us)) // 1000


def test_what_was_long_ago_is_forgotten() -> None:
    """A clock was corrected meanwhile."""
    skew = ClockSkew()
    skew.add_sample(0, 0, 5_000_000)
    for now_ms in range(100, 3 * SKEW_WINDOW_MS, 100):
        skew.add_sample(now_ms, 2_000, 0)
        if now_ms < SKEW_WINDOW_MS:
            assert skew.ahead_ms == -5_000
    assert skew.ahead_ms == 2
    skew.add_sample(9 * SKEW_WINDOW_MS, 7_000, 0)
    assert skew.ahead_ms == 7

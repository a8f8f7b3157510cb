"""Retries: how many, for how long, with which pauses, and what ends them."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.base.retry import Pauses, Retry


class Busy(Exception):
    """A retryable error."""


def is_busy(error: Exception) -> bool:
    return isinstance(error, Busy)


@given(tries_max=st.integers(1, 30), needed=st.integers(1, 40))
def test_the_first_try_counts_and_the_last_error_is_raised(tries_max: int, needed: int) -> None:
    tried: list[int] = []

    def call() -> str:
        tried.append(len(tried) + 1)
        if len(tried) < needed:
            raise Busy(len(tried))
        return "done"

    retry, pauses = Retry(tries_max=tries_max, pause_s=1), list[float]()
    if needed <= tries_max:
        assert retry.call(call, is_busy, pauses.append) == "done"
    else:
        with pytest.raises(Busy, match=f"^{tries_max}$"):
            retry.call(call, is_busy, pauses.append)
    assert len(tried) == min(needed, tries_max)
    assert pauses == [1] * (len(tried) - 1), "a pause between two tries, and none behind the last"


def test_what_does_not_pass_is_raised_at_once() -> None:
    def call() -> None:
        raise ValueError

    with pytest.raises(ValueError, match=r"^$"):
        Retry().call(call, is_busy, pytest.fail)


@given(tries=st.integers(1, 12), pause_max_s=st.sampled_from([0.0, 1.0, 5.0, 100.0]))
def test_pauses_double_up_to_their_bound(tries: int, pause_max_s: float) -> None:
    pauses: list[float] = []
    assert list(Retry(tries_max=tries, pause_s=1, pause_max_s=pause_max_s).tries(pauses.append)) == list(range(tries))
    assert pauses == [max(1.0, min(2.0**n, pause_max_s)) for n in range(tries - 1)]


def test_random_pauses_last_no_longer_than_their_bound() -> None:
    pauses: list[float] = []
    list(Retry(tries_max=200, pause_s=1, pause_max_s=4, pauses=Pauses.RANDOM).tries(pauses.append))
    assert all(0 <= pause <= 4 for pause in pauses)
    assert len(set(pauses)) > 100


def test_no_try_begins_when_the_time_is_up() -> None:
    assert list(Retry(lasting_s=0).tries(pytest.fail)) == [0]


@given(lasting_s=st.integers(0, 20), took_s=st.integers(1, 7))
def test_a_try_begins_as_long_as_the_time_lasts(lasting_s: int, took_s: int) -> None:
    """The clock decides, with or without pauses: a call may take long."""
    now_s = itertools.count(0, took_s)
    tries = list(Retry(lasting_s=lasting_s).tries(pytest.fail, lambda: next(now_s)))
    assert len(tries) == max(1, -(-lasting_s // took_s))


def test_what_the_pause_raises_ends_the_tries() -> None:
    class Stopped(Exception):
        pass

    def wait(_: float) -> None:
        raise Stopped

    tries = Retry(pause_s=1).tries(wait)
    assert next(tries) == 0
    with pytest.raises(Stopped):
        next(tries)


def test_without_a_bound_it_never_ends() -> None:
    assert len(list(itertools.islice(Retry(pause_s=1).tries(lambda _: None), 5_000))) == 5_000

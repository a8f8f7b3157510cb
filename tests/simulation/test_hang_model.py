"""The rule for calls that do not end holds within small bounds, and each planted error of it is found."""

from dataclasses import replace

import pytest

from tests.simulation.hang_model import HARMLESS, PLANTED, SMALL, Bounds, Ends, Model, Restore, Retain

_ONE_SNAPSHOT = replace(SMALL, writes=1)
_HOLDS = {
    "a silent event": _ONE_SNAPSHOT,
    "a loud event": replace(_ONE_SNAPSHOT, silent=()),
    "two events": replace(SMALL, hangs=(1, 2)),
    "two decisions": replace(_ONE_SNAPSHOT, hangs=(1, 2), ends=Ends.NEVER),
    "a lost answer": replace(SMALL, lost=1, ends=Ends.NEVER),
    "committed positions": replace(_ONE_SNAPSHOT, retain=Retain.POSITION),
}
_LARGE = Bounds(engines=3, hangs=(1, 3), silent=(1,), crashes=3, epochs=5, writes=3, restore=Restore.ANY)


@pytest.mark.parametrize("name", _HOLDS)
def test_the_rule_holds_in_all_states(name: str) -> None:
    _, violation, trace = Model(_HOLDS[name]).explore()
    assert not violation, "\n".join([violation, *trace])


@pytest.mark.parametrize("retain", [Retain.OUTPUT, Retain.POSITION])
def test_the_rule_holds_on_random_walks(retain: Retain) -> None:
    _, violation, trace = Model(replace(_LARGE, retain=retain)).walk(10, seed=1)
    assert not violation, "\n".join([violation, *trace])


@pytest.mark.parametrize("bug", PLANTED)
def test_the_planted_error_is_found(bug: str) -> None:
    _, violation, _ = Model(PLANTED[bug], bug).explore()
    assert violation not in ("", "limit reached")


@pytest.mark.parametrize("bug", HARMLESS)
def test_the_change_is_harmless(bug: str) -> None:
    _, violation, trace = Model(HARMLESS[bug], bug).explore()
    assert not violation, "\n".join([violation, *trace])

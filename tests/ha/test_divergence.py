"""The consequences if an engine's outputs are not those committed."""

from dataclasses import replace

import pytest

from hotspare.ha.rules import actions as do
from hotspare.ha.rules.decide import decide
from hotspare.ha.rules.facts import Difference, OtherMember
from hotspare.ha.rules.roles import Reason, Role, Step
from hotspare.ha.rules.settings import GroupSettings, OnDivergence
from hotspare.ha.rules.view import PeerStatus, View
from tests.ha.views import HELD, NOW_MS, SETTINGS, active, changed, differing, pending, promoting, standby, vacant


def test_a_difference_is_an_end_for_the_active_and_after_a_while_for_a_lone_spare() -> None:
    """SPEC Z9."""
    difference = Difference("s", 3, 4, 7, NOW_MS)
    owes = {**differing(difference)["streams"], **pending(NOW_MS)["streams"]}
    assert decide(active(streams=owes)) == (do.Diverge(),)
    assert decide(promoting(Step.CHECKED, **differing(difference))) == (do.Diverge(),)
    alone = standby(**differing(difference))
    late = {"now_ms": NOW_MS + SETTINGS.divergence_wait_ms}
    assert decide(alone) == ()
    assert do.Diverge() in decide(changed(alone, **late))
    awaited = changed(alone, awaited_ms=NOW_MS + 1)
    assert do.Diverge() not in decide(changed(awaited, **late))
    assert do.Diverge() in decide(changed(awaited, now_ms=NOW_MS + 1 + SETTINGS.divergence_wait_ms))
    continues_row = changed(alone, settings=GroupSettings(on_divergence=OnDivergence.CONTINUE), **late)
    assert do.Diverge() not in decide(continues_row)


def test_two_spares_that_agree_campaign_against_the_epoch_that_committed_otherwise() -> None:
    difference = Difference("s", 3, 4, 7, NOW_MS)
    agrees = OtherMember("a", Role.STANDBY.value, 1, difference)
    view = standby(
        **differing(difference), others=(agrees,), own_digests={"a": difference.digest}, vacancy=vacant(Reason.SPARES_AGREE)
    )
    assert decide(view)[0] == do.Campaign(7, Reason.SPARES_AGREE)
    deposed = changed(view, leader=replace(HELD, epoch=8), vacancy=vacant(Reason.SPARES_AGREE, epoch=8))
    assert decide(deposed)[0] == do.RecordVacancy(8, None)


CONTINUES = GroupSettings(on_divergence=OnDivergence.CONTINUE)
DIFFERS = Difference("s", 3, 4, 7, NOW_MS)
OVER = replace(HELD, lease_left_ms=0)


def last_one(**changes: object) -> View:
    """Returns a spare that differs and is set to continue, long after the active's lease was over."""
    vacancy = vacant(Reason.NOBODY_ELSE, NOW_MS - CONTINUES.divergence_wait_ms)
    return standby(
        **{"settings": CONTINUES, "streams": differing(DIFFERS)["streams"], "leader": OVER, "vacancy": vacancy} | changes
    )


def test_a_spare_that_differs_takes_over_where_nobody_else_can() -> None:
    """A single one raises an alarm, and on_divergence decides."""
    assert decide(last_one())[0] == do.Campaign(7, Reason.NOBODY_ELSE)
    others = (OtherMember("a", Role.STANDBY.value, 1, DIFFERS), OtherMember("b", "diverged", 1))
    assert decide(last_one(others=others))[0] == do.Campaign(7, Reason.NOBODY_ELSE)
    assert do.Campaign(7, Reason.NOBODY_ELSE) not in decide(last_one(now_ms=NOW_MS - 1))
    overruling = promoting(Step.CHECKED, settings=CONTINUES, **differing(DIFFERS), is_overruling=True)
    assert decide(overruling)[0] == do.BecomeActive()


@pytest.mark.parametrize(
    "changes",
    [
        {"settings": SETTINGS},
        {"leader": HELD},
        {"leader": HELD, "peer": PeerStatus.CLOSED},
        {"others": (OtherMember("a", Role.STANDBY.value, 1),)},
        {"others": (OtherMember("a", Role.PROMOTING.value, 1),)},
    ],
)
def test_it_does_not_where_somebody_else_can_or_the_active_may_live(changes: dict[str, object]) -> None:
    assert decide(last_one(**changes))[0] == do.RecordVacancy(7, None)

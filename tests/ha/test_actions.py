"""Every action has a sentence over its fields, and is performed."""

from __future__ import annotations

from dataclasses import fields
from string import Formatter

from hotspare.ha.effects.perform import PERFORMERS
from hotspare.ha.rules import actions as do
from hotspare.ha.rules.roles import Reason

ACTIONS = [
    each for each in vars(do).values() if isinstance(each, type) and issubclass(each, do.HaAction) and each is not do.HaAction
]


def test_every_action_has_one_performer() -> None:
    assert set(PERFORMERS) == set(ACTIONS)


def test_a_sentence_names_nothing_but_fields() -> None:
    for kind in ACTIONS:
        names = {each.name for each in fields(kind)}
        for _, name, _, _ in Formatter().parse(getattr(kind, "template", "")):
            assert name is None or name.partition(".")[0] in names, kind


def test_an_action_that_goes_wrong_is_told_with_its_values() -> None:
    assert do.Tick(3, Reason.IDLE_PARTITION).sentence == "ticks inbound partition 3: idle partition holds up the merge"
    assert do.DiscardSnapshot("s").sentence == "discards snapshot s: outputs differ from those committed"
    assert do.GiveUp("", Reason.STOP_ASKED).sentence == "releases the role to any spare: stop requested"
    assert do.Leave(Reason.REFUSED, "no").sentence == "stops: no"
    assert do.RecordVacancy(7, None).sentence == "the role of epoch 7 is held"


def test_actions_are_equal_by_class_and_fields() -> None:
    assert do.Renew() == do.Renew() != do.Publish()
    assert do.Fence(1) != do.Fence(2)

"""A view is the whole input of a decision: it holds the engine's own records, and nothing in it changes afterwards."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest

from hotspare.ha.effects import ha_loop
from hotspare.ha.group_state import GroupState, view_of
from hotspare.ha.ports import Ports
from hotspare.ha.rules import facts
from hotspare.ha.rules.actions import Duty
from hotspare.ha.rules.decide import duties
from hotspare.ha.rules.view import View
from tests.simulation.script import Script


def test_decisions_can_be_repeated_from_their_views_after_everything_went_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through a start, traffic, a crash and a promotion."""
    seen: list[tuple[View, list[Duty]]] = []

    def recording(state: GroupState, ports: Ports) -> View:
        view = view_of(state, ports)
        for record in facts.__dict__.values():
            if is_dataclass(record) and hasattr(state, record.__name__.lower()):
                name = record.__name__.lower()
                assert getattr(view, name) is getattr(state, name), "what is written once is not copied"
        seen.append((view, list(duties(view))))
        return view

    monkeypatch.setattr(ha_loop, "view_of", recording)
    script = Script(tmp_path, "e0", "e1")
    script.start("e0")
    script.until_active("e0")
    script.start("e1")
    script.publish(*range(6))
    script.until(lambda: script.delivered() >= 6)
    script.world.kill("e0")
    script.until_active("e1")
    script.publish(*range(6, 12))
    script.finish()
    assert len(seen) > 30
    assert len({view.role_state.role for view, _ in seen}) >= 3
    for view, decided in seen:
        assert list(duties(view)) == decided


@pytest.mark.parametrize("record", [each for each in facts.__dict__.values() if is_dataclass(each)])
def test_a_record_is_replaced_and_never_changed(record: type) -> None:
    frozen = record.__dataclass_params__.frozen  # type: ignore[attr-defined]
    assert frozen
    changeable = ("list[", "dict[", "set[", "deque[")
    assert not [each.name for each in fields(record) if str(each.type).startswith(changeable)]

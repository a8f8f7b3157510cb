"""The epoch is requested again concurrently with reading progress (law 7): the fate of that request."""

from types import SimpleNamespace
from typing import Any

import pytest

from hotspare.base.errors import CoordinationSuspended
from hotspare.coordination.contract import Leader
from hotspare.ha.calls.pending_call import run_inline
from hotspare.ha.effects.perform import await_epoch, request_epoch
from hotspare.ha.ports import Ports
from hotspare.ha.rules.facts import Projects

NEWEST = Leader(8, "e1", "", 1_000)


class Coordination:
    """A coordination that returns the given answers in order."""

    def __init__(self, *answers: Leader | Exception) -> None:
        self.left = list(answers)

    def fact(self, group: str, name: str) -> bytes | None:
        """Returns None: no decision was ever made about another project."""

    def leader(self, group: str) -> Leader:
        answer = self.left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def world(*answers: Leader | Exception) -> tuple[Any, Ports]:
    ports: Any = SimpleNamespace(
        coordination=Coordination(*answers), start_call=run_inline, unlocked=Ports.__dataclass_fields__["unlocked"].default
    )
    return SimpleNamespace(group="g", project_hash="a", epoch_request=None, projects=Projects()), ports


def test_the_answer_is_the_one_that_was_asked_for() -> None:
    state, ports = world(NEWEST)
    request_epoch(state, ports)
    assert await_epoch(state, ports) == (NEWEST, None)
    assert state.epoch_request is None


def test_a_later_promotion_asks_anew_and_forgets_what_an_earlier_one_asked() -> None:
    state, ports = world(Leader(7, "e0", "", 1_000), NEWEST)
    request_epoch(state, ports)
    request_epoch(state, ports)
    assert await_epoch(state, ports) == (NEWEST, None)


def test_where_the_question_failed_it_is_asked_once_more() -> None:
    state, ports = world(CoordinationSuspended("no answer"), NEWEST)
    request_epoch(state, ports)
    with pytest.raises(CoordinationSuspended):
        await_epoch(state, ports)
    assert await_epoch(state, ports) == (NEWEST, None)

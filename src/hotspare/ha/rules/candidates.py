"""Who of several standbys goes first: who has come farther, so that the least is to be caught up; of equals, each in turn.

Whose turn it is differs from shard to shard, so that the shards of one project are not all with the engine of the first name.
Nobody waits longer for it than for a better candidate, and nobody gives a role up for it.
"""

from __future__ import annotations

from hotspare.ha.rules import beside
from hotspare.ha.rules.facts import OtherMember
from hotspare.ha.rules.roles import Role
from hotspare.ha.rules.view import View


def is_outranked(view: View) -> bool:
    """Whether this engine, a standby, lets another one go first."""
    own = (-view.membership.rank, _turn(view, view.engine))
    return any((-other.rank, _turn(view, other.engine)) < own for other in _standbys(view))


def is_anothers_turn(view: View) -> bool:
    """Whether another standby has the first turn, however far each has come."""
    own = _turn(view, view.engine)
    return any(_turn(view, other.engine) < own for other in _standbys(view))


def best_standby(view: View) -> str:
    """To whom this engine gives its role; "" where there is nobody."""
    return _best(view, successors(view))


def successors(view: View) -> list[OtherMember]:
    """The standbys that may have the role next: those of the project that leads, and where there are none, of this engine's own."""
    standbys = [other for other in view.membership.others if other.role == Role.STANDBY.value]
    leading = [other for other in standbys if other.is_of(view.projects.leading)]
    return leading or _standbys(view)


def _best(view: View, standbys: list[OtherMember]) -> str:
    ranked = sorted((-other.rank, _turn(view, other.engine), other.engine) for other in standbys)
    return ranked[0][2] if ranked else ""


def _standbys(view: View) -> list[OtherMember]:
    return [other for other in beside.same(view) if other.role == Role.STANDBY.value]


def _turn(view: View, engine: str) -> int:
    """Its place among the standbys, this engine counted as one: by name, but shard k begins with the one at place k."""
    names = sorted({view.engine, engine, *(other.engine for other in _standbys(view))})
    return (names.index(engine) - view.shard.number) % len(names)

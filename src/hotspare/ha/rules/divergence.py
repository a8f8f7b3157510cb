"""Rules for outputs that differ: which engine is believed, which takes over, which ends (SPEC Z9)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hotspare.ha.rules import actions as do
from hotspare.ha.rules import holding
from hotspare.ha.rules.actions import Duty
from hotspare.ha.rules.facts import Difference, OtherMember
from hotspare.ha.rules.roles import Role
from hotspare.ha.rules.settings import OnDivergence
from hotspare.ha.rules.view import View


def is_same_difference(view: View, other: OtherMember) -> bool:
    """Whether another engine's evidence against what is committed is this engine's own output too."""
    evidence = other.evidence
    stream = None if evidence is None else view.streams.get(evidence.stream)
    if evidence is None or stream is None or stream.facts.difference is None:
        return False
    return view.own_digests.get(other.engine) == evidence.digest


def has_agreeing_spare(view: View) -> bool:
    """Whether another spare has the same outputs as this one, against those that the present holder committed."""
    leader, difference = view.leadership.leader, view.difference
    if leader is None or difference is None or difference.epoch != leader.epoch or leader.holder in ("", view.engine):
        return False
    others = view.membership.others
    return any(is_same_difference(view, o) and o.role == Role.STANDBY.value and o.engine != leader.holder for o in others)


def is_last_candidate(view: View) -> bool:
    """Whether a spare that differs is the last one left: the role is certainly free, and no spare agrees with what is committed.

    A closed connection is not proof that the role is free.
    """
    leader = view.leadership.leader
    if leader is None or view.settings.on_divergence is not OnDivergence.CONTINUE:
        return False
    is_free = leader.epoch == 0 or leader.holder in ("", view.engine) or leader.lease_left_ms <= 0
    able = (Role.STANDBY.value, Role.PROMOTING.value)
    return is_free and not any(o.role in able and not o.is_differing for o in view.membership.others)


def divergence_duties(view: View) -> Iterator[Duty]:
    """Yields when a spare that differs ends: it waits a while for another one that agrees with it, then `on_divergence` decides.

    A spare that has yet to compute the differing output may agree. Without that wait, two right spares behind a wrong active
    engine would end one after the other.
    """
    difference, leader = view.difference, view.leadership.leader
    if difference is None or leader is None or difference.epoch != leader.epoch or has_agreeing_spare(view):
        return
    if view.settings.on_divergence is OnDivergence.STOP:
        since_ms = max(difference.seen_ms, view.membership.awaited_ms)
        yield Duty(since_ms + view.settings.divergence_wait_ms, do.Diverge())


def may_spare_agree(differences: Sequence[Difference], others: Sequence[OtherMember]) -> bool:
    """Whether another spare may agree with this engine once it computes the outputs at which this one differs.

    A spare that does not report its sequence in a stream never does.
    """
    able = [o for o in others if o.role == Role.STANDBY.value and not o.is_differing]
    return any(other.sequences.get(each.stream, each.sequence) < each.sequence for each in differences for other in able)


def missing_outputs_reason(view: View) -> str:
    """Returns why this engine may not publish: its state begins after what is committed, so it cannot emit what lies between. "" if
    it may.

    If the stream's quality allows loss, or it was changed, these outputs are lost (SPEC D15).
    """
    for name, stream in view.streams.items():
        if holding.has_missing_outputs(stream) and not stream.was_changed:
            base, committed = stream.base_sequence, stream.facts.committed_sequence
            return f"state begins after output {base} of stream {name}, but only {committed} are committed"
    return ""

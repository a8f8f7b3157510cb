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
    """Whether `other` reports a difference from what is committed, and this engine computed the same output there."""
    evidence = other.evidence
    stream = None if evidence is None else view.streams.get(evidence.stream)
    if evidence is None or stream is None or stream.facts.difference is None:
        return False
    return view.own_digests.get(other.engine) == evidence.digest


def has_agreeing_spare(view: View) -> bool:
    """Whether another spare agrees with this engine at a difference from the outputs that the present holder of the role
    committed."""
    leader, difference = view.leadership.leader, view.difference
    if leader is None or difference is None or difference.epoch != leader.epoch or leader.holder in ("", view.engine):
        return False
    others = view.membership.others
    return any(is_same_difference(view, o) and o.role == Role.STANDBY.value and o.engine != leader.holder for o in others)


def is_last_candidate(view: View) -> bool:
    """Whether a spare that differs from what is committed may take over as the last candidate, with `on_divergence` CONTINUE.

    By coordination's record the role must be free: never held, released, this engine's own, or its lease over. A closed connection
    does not count. No standby or promoting engine may agree with what is committed.
    """
    leader = view.leadership.leader
    if leader is None or view.settings.on_divergence is not OnDivergence.CONTINUE:
        return False
    is_free = leader.epoch == 0 or leader.holder in ("", view.engine) or leader.lease_left_ms <= 0
    able = (Role.STANDBY.value, Role.PROMOTING.value)
    return is_free and not any(o.role in able and not o.is_differing for o in view.membership.others)


def divergence_duties(view: View) -> Iterator[Duty]:
    """Yields the end of a spare that differs, if `on_divergence` is STOP: after `divergence_wait_ms` without another spare that
    agrees with it.

    A spare that has yet to compute the differing output may agree. Without that wait, two correct spares of a wrong active engine
    would end one after the other.
    """
    difference, leader = view.difference, view.leadership.leader
    if difference is None or leader is None or difference.epoch != leader.epoch or has_agreeing_spare(view):
        return
    if view.settings.on_divergence is OnDivergence.STOP:
        since_ms = max(difference.seen_ms, view.membership.awaited_ms)
        yield Duty(since_ms + view.settings.divergence_wait_ms, do.Diverge())


def may_spare_agree(differences: Sequence[Difference], others: Sequence[OtherMember]) -> bool:
    """Whether another spare has yet to compute an output at which this engine differs, so that it may agree with this engine later.

    A spare that does not report its sequence in the stream does not count.
    """
    able = [o for o in others if o.role == Role.STANDBY.value and not o.is_differing]
    return any(other.sequences.get(each.stream, each.sequence) < each.sequence for each in differences for other in able)


def missing_outputs_reason(view: View) -> str:
    """Returns the reason why this engine may not publish: its state begins after what is committed, so it cannot emit the outputs
    between. "" if it may.

    If the stream's quality allows loss, or was changed, it may: these outputs are lost (SPEC D15).
    """
    for name, stream in view.streams.items():
        if holding.has_missing_outputs(stream) and not stream.was_changed:
            base, committed = stream.base_sequence, stream.facts.committed_sequence
            return f"state begins after output {base} of stream {name}, but only {committed} are committed"
    return ""

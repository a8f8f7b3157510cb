"""Decides about engines of two projects in one group, while a changed project runs together with the one before it (`upgrading`).
Pure.

One of the two projects leads: its engines have the role as long as any of them can. An engine of the other project takes the role
only if no engine of the leading project takes it within a time, or if the holder names it as successor. Only engines of one project
rank each other, share the snapshot turns, and are compared in all streams. Engines of two projects are compared in the streams that
are the same in both. An active engine appends no ticks to topics that only the other project reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from hotspare.ha.rules import actions as do
from hotspare.ha.rules.actions import Duty
from hotspare.ha.rules.facts import InboundFacts, OtherMember, Projects
from hotspare.ha.rules.roles import PARTICIPATING, Reason, Role
from hotspare.ha.rules.view import View


def own_project_engines(view: View) -> list[OtherMember]:
    """Returns the descriptions of the other engines that run this engine's project."""
    return of_own_project(view.membership.others, view.projects)


def of_own_project(others: tuple[OtherMember, ...], projects: Projects) -> list[OtherMember]:
    return [other for other in others if other.is_of(projects.own)]


def with_shared_streams(others: tuple[OtherMember, ...], projects: Projects) -> list[OtherMember]:
    """Returns the other engines, each with the sequences of only those streams that are the same in its project and in this
    engine's."""
    if projects.group_agreement is None:
        return of_own_project(others, projects)
    differing = projects.group_agreement.changed_streams_of({projects.group_agreement.leading.number, projects.own})

    def shared(sequences: Mapping[str, int]) -> Mapping[str, int]:
        return {stream: sequence for stream, sequence in sequences.items() if stream not in differing}

    return [each if each.is_of(projects.own) else replace(each, sequences=shared(each.sequences)) for each in others]


def is_other_leading(view: View) -> bool:
    """Whether the group runs two projects and this engine's does not lead."""
    return view.projects.has_two and view.projects.leading != view.projects.own


def is_yielding_to_leading(view: View) -> bool:
    """Whether this engine has to wait because a live engine of the leading project could take the role.

    A holder whose process has ended could not. A successor that the holder names does not wait. Nor do two spares that agree
    against the holder: all engines of the leading project may be wrong in the same way.
    """
    vacant, leader = view.leadership.vacancy, view.leadership.leader
    reason = None if vacant is None else vacant.reason
    ended = leader.holder if leader is not None and reason is Reason.PROCESS_ENDED else ""
    leading = [o for o in view.membership.others if o.is_of(view.projects.leading) and o.engine != ended]
    is_chosen = reason in (Reason.NAMED_SUCCESSOR, Reason.SPARES_AGREE)
    return is_other_leading(view) and not is_chosen and any(o.role in PARTICIPATING and not o.is_differing for o in leading)


def partitions_for_spare_ticks(view: View, inbound: Iterable[tuple[int, InboundFacts]]) -> Iterator[tuple[int, InboundFacts]]:
    """Yields (index, facts) of the partitions to which this spare has to append ticks, because the active engine's project does not
    read them.

    Without ticks there, all input of the spare's project would wait. Only the participating engine with the first name in its
    project appends them.
    """
    known, spares = view.projects.group_agreement, [other for other in own_project_engines(view) if other.role in PARTICIPATING]
    if known is None or not view.projects.has_two or any(o.role == Role.ACTIVE.value or o.engine < view.engine for o in spares):
        return
    for index, partition in inbound:
        if not known.is_read_by_both(partition.topic_index):
            yield index, partition


def project_read_duties(view: View) -> Iterator[Duty]:
    """Yields the next read of the group's projects; nothing while one project runs alone, as far as this engine knows."""
    known, retry_ms = view.projects, view.contacts.coordination_retry_ms
    if known.reported_cut_overs > known.cut_overs:
        yield Duty(max(known.read_ms + view.settings.project_poll_ms // 4, retry_ms), do.ReadProjects())
    elif known.has_two:
        yield Duty(max(known.read_ms + view.settings.project_poll_ms, retry_ms), do.ReadProjects())


def with_reported_cut_overs(known: Projects, others: tuple[OtherMember, ...]) -> Projects:
    """Returns the facts with the greatest count of cut-over steps that other engines reported; the count never falls."""
    told = max((other.cut_overs for other in others), default=0)
    return replace(known, reported_cut_overs=told) if told > known.reported_cut_overs else known

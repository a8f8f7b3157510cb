"""Copies a persisted snapshot into the stores of a project's groups, from which their engines start (SPEC H2, H6, H9, Z6)."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass

from hotspare.coordination.open import default_coordination_url, open_coordination
from hotspare.flow.plan import compile_plan
from hotspare.flow.semantics import SEMANTICS
from hotspare.ha.effects.restoring import PersistedSource, RestoreCandidate, RestoreTarget, adopt_persisted, find_persisted
from hotspare.ha.effects.upgrading import OwnSnapshotGroup
from hotspare.host.restoring import destinations, store_url
from hotspare.operate.groups import ServiceUrls, existing_bus, existing_store
from hotspare.projects.load import LoadedProject
from hotspare.stores.open import default_store_url, open_store
from hotspare.stores.renamed_groups import RenamedGroupsStore


@dataclass(frozen=True, slots=True)
class RestoreRequest:
    """A project with `shards` groups under a prefix, and a snapshot of each: the path or URL of the store that has them, and the
    choice among them (`stores.snapshot_choice`)."""

    loaded: LoadedProject
    prefix: str
    shards: int
    source: str
    snapshot: str


@dataclass(frozen=True, slots=True)
class PlannedRestore:
    """The persisted snapshot of a group, compared with the bus, and the group that receives it."""

    to: RestoreTarget
    found: RestoreCandidate


def plan_restore(stack: ExitStack, request: RestoreRequest, urls: ServiceUrls) -> list[PlannedRestore]:
    """Returns the plan for each group of the project; bus and stores are closed with `stack`. Changes no group. Creates
    coordination and store next to the bus if they do not exist, since a project may be restored where it never ran.

    Raises UsageError if the bus or the source does not exist, or the choice matches no snapshot; also as `find_persisted`.
    """
    bus = existing_bus(stack, urls.bus)
    service = open_coordination(urls.coordination or default_coordination_url(urls.bus))
    stack.callback(service.close)
    source = existing_store(stack, store_url(request.source), "")
    assert source is not None
    own = open_store(urls.store or default_store_url(urls.bus))
    stack.callback(own.close)
    plan = compile_plan(request.loaded.resolved)
    store = RenamedGroupsStore(own, OwnSnapshotGroup(service, plan.project_hash, SEMANTICS))
    groups: list[RestoreTarget] = destinations(request.loaded.project, plan, request.prefix, request.shards, bus, service, store)
    return [PlannedRestore(to, find_persisted(PersistedSource(source, to.group, request.snapshot), to)) for to in groups]


def restore(planned: PlannedRestore) -> bool:
    """Copies the snapshot into the group's store; the next engine that starts restores it. Returns False, without a copy, if the
    store has a snapshot that is at least as new. Raises PositionLost or StateError if the snapshot is refused."""
    return adopt_persisted(planned.found, planned.to)

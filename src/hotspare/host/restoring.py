"""Restores a persisted snapshot: before an engine joins, if its project or command line names one, or by a command."""

from __future__ import annotations

import contextlib
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from hotspare.base.errors import StoreError, UsageError
from hotspare.base.places import absolute_path_or_url, local_file_path
from hotspare.base.shard import shards_of
from hotspare.bus.contract import Bus
from hotspare.bus.naming import group_name
from hotspare.coordination.contract import Coordination
from hotspare.flow.plan import Plan
from hotspare.ha.effects.restoring import PersistedSource, RestoreTarget, adopt_persisted, choose_persisted, find_persisted
from hotspare.ha.rules.joining import restorable
from hotspare.host.definition import PipelineFactory
from hotspare.host.topics import group_topics
from hotspare.model.project import Project
from hotspare.stores.contract import Store
from hotspare.stores.encryption import KEY
from hotspare.stores.open import open_existing_store
from hotspare.telemetry.log import Log

_SECRETS = "password", "secret", "token", "account_key", ".pem", "connection_string"
"""The endings of names of store client options that are secrets."""


def store_url(text: str, folder: Path | None = None) -> str:
    """Returns the URL of a store, given as a URL or as the path of its folder; relative paths begin at `folder`, by default the
    current one. Raises UsageError for a URL with a password: requests become facts that all engines of the group read."""
    place = absolute_path_or_url(text, folder)
    if "://" not in place:
        return local_file_path(place).as_uri()
    try:
        parts = urlsplit(place)
        options = [name for name, _ in parse_qsl(parts.query, keep_blank_values=True)]
        has_password = bool(parts.password) or any(name == KEY or name.lower().endswith(_SECRETS) for name in options)
    except ValueError:
        return place  # opening the store reports it
    if has_password:
        hint = "name a file that holds it: password_file=..., or key_file=..."
        raise UsageError("a password must not be in this URL, which all engines read", hint=hint)
    return place


def snapshot_url(named: str, folder: Path | None = None) -> str:
    """Returns `PATH-OR-URL#SNAPSHOT` with its place made absolute by `store_url`."""
    place, mark, snapshot = named.partition("#")
    return f"{store_url(place, folder)}{mark}{snapshot}" if place else named


def restore_named(named: str, to: RestoreTarget) -> str:
    """Restores the snapshot that `PATH-OR-URL#SNAPSHOT` names and returns a sentence about the result. Raises what
    `choose_persisted` and `adopt_persisted` raise, unless the group has a snapshot of its own: then an unreachable place does not
    stop the start."""
    place, _, snapshot = named.partition("#")
    if not place:
        raise UsageError(f"{named!r}: no store to restore from", hint="write PATH, or PATH#time:2026-01-31T08:00")
    try:
        with contextlib.closing(open_existing_store(store_url(place))) as store:
            return _restored(PersistedSource(store, to.group, snapshot), to)
    except (StoreError, UsageError) as error:
        if not restorable(to.store.list(to.group)):
            raise
        return f"nothing is restored from another store, and the group uses its own snapshots: {error.message}"


def _restored(source: PersistedSource, to: RestoreTarget) -> str:
    info, further = choose_persisted(source, to)
    if further is not None:
        return f"the group's own snapshot {further.name} is as far as {info.name} or further"
    found = find_persisted(source, to)
    adopt_persisted(found, to)
    return f"snapshot {info.name} is restored, with {found.messages_left} messages to catch up with"


def destinations(
    project: Project, plan: Plan, prefix: str, shards: int, bus: Bus, coordination: Coordination, store: Store
) -> list[RestoreTarget]:
    """Returns a restore target for each shard of a project; one if the project is not divided."""
    resolved = plan.resolved
    found = bus.topics() if any(resolved.reads(source) is not None for source in resolved.sources) else {}
    return [
        RestoreTarget(
            group=group_name(prefix, project.name, shard),
            topics=group_topics(project, plan, prefix, shard, found),
            cores=PipelineFactory(plan, Log(), shard),
            bus=bus,
            coordination=coordination,
            store=store,
        )
        for shard in shards_of(shards)
    ]

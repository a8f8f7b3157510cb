"""An application's requests to coordination, outside its driver's main thread because they may be slow: which engine is active for
which shard, to share the roles as sharing.py decides, and whether the groups still run its project."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence

from hotspare.base.errors import CoordinationError, ProjectChanged
from hotspare.base.shard import shards_of
from hotspare.bus.naming import group_name
from hotspare.coordination.contract import Coordination, Member
from hotspare.coordination.open import default_coordination_url, open_coordination
from hotspare.ha.effects.upgrading import current_agreement
from hotspare.ha.member_record import spares_of
from hotspare.host.clock import monotonic_ms
from hotspare.host.options import EngineOptions
from hotspare.host.partitioned import sharing
from hotspare.host.partitioned.sharing import Hosting, RequestRole, RoleSharingState, ShardRole
from hotspare.telemetry.log import Log, LogEvent

_LOOK_S = 0.5
_SILENT_MS_MAX = 10_000
"""The role is not requested for an engine that was silent for longer."""


class RoleSharing:
    """Requests active roles for one application from a background thread, until no application has two roles more than it.
    `project`, `project_hash`: the project that it hosts; `after_ms` as in `sharing.is_poll_due`.

    Raises UsageError for an invalid URL, CoordinationSuspended if no server answers.
    """

    def __init__(self, options: EngineOptions, project: str, project_hash: str, after_ms: int, log: Log) -> None:
        self._project_hash = project_hash
        self._own, self._after_ms, self._log = options.engine, after_ms, log
        self._groups = {shard.number: group_name(options.prefix, project, shard) for shard in shards_of(options.shards)}
        self._coordination = open_coordination(options.coordination_url or default_coordination_url(options.bus_url))
        self._hosting = Hosting.SOME
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="hotspare-role-sharing", daemon=True)
        self._thread.start()

    def set_hosting(self, hosting: Hosting) -> None:
        """Sets whether the application hosts all shards now."""
        self._hosting = hosting

    def exclusion_reason(self) -> str:
        """Returns why engines of this project may not take part any more, as after an upgrade; "" if they may. Callable from any
        thread. Raises what coordination raises."""
        try:
            for group in self._groups.values():
                current_agreement(self._coordination, group, None, self._project_hash)
        except ProjectChanged as error:
            return str(error)
        return ""

    def close(self) -> None:
        self._is_over.set()
        self._thread.join(2.0)
        self._coordination.close()

    def _run(self) -> None:
        state = RoleSharingState()
        while not self._is_over.wait(_LOOK_S):
            state = sharing.with_hosting(state, self._hosting, monotonic_ms())
            if sharing.is_poll_due(state, monotonic_ms(), self._after_ms):
                with contextlib.suppress(CoordinationError):
                    state = self._look(state)

    def _look(self, state: RoleSharingState) -> RoleSharingState:
        roles = {shard: shard_role(self._coordination, group) for shard, group in self._groups.items()}
        state, action = sharing.after_roles_read(state, self._own, roles, monotonic_ms())
        if isinstance(action, RequestRole):
            self._log.event(LogEvent.SHARE_TAKEN, f"requests the active role of shard {action.shard}", to=action.engine)
            self._coordination.request_switchover(self._groups[action.shard], action.engine)
        elif action is not None:
            self._coordination.withdraw_switchover(self._groups[action.shard])
        return state


def shard_role(coordination: Coordination, group: str) -> ShardRole:
    """Returns the roles in the group of a shard. Raises what coordination raises."""
    return role_of(coordination.members(group), coordination.leader(group).holder)


def role_of(members: Sequence[Member], holder: str) -> ShardRole:
    """Returns the roles in a group from its records. An engine that no application hosts counts as an application with its own
    name."""
    application = {member.engine: member.detail.get("application", member.engine) for member in members}
    spares = {application[member.engine]: member.engine for member in spares_of(members, holder, _SILENT_MS_MAX)}
    return ShardRole(application.get(holder, holder), spares)

"""The rules of role, epoch and lease as pure functions over one record, shared by every implementation that stores records.

A transition returns the new record, or None if its compare failed. The implementation reads the record, applies the transition and
writes the result in one transaction. Times are the service's clock in milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from hotspare.base.errors import UsageError
from hotspare.coordination.contract import Leader, Member

GROUP_NAME_LENGTH_MAX = 500
ENGINE_NAME_LENGTH_MAX = 200
FACT_BYTES_MAX = 32 * 1024 * 1024
LEASE_MS_MAX = 24 * 3600 * 1000
MEMBERS_MAX = 1000
SILENT_MS_MAX = 3_600_000
"""Members silent for longer have crashed; they are removed when another engine joins."""
SILENT_MS_MIN = 60_000
SILENT_MEMBERS_MAX = 20
"""The maximum of members silent for SILENT_MS_MIN that are retained.

An engine that restarts again and again under new names would otherwise leave hundreds, which every engine reads twice a second.
"""


@dataclass(frozen=True, slots=True)
class RoleRecord:
    """The holder of a group's newest epoch. `asked`: the requested successor of a switch-over, "" for any engine; None without a
    request."""

    epoch: int = 0
    holder: str = ""
    successor: str = ""
    lease_end_ms: int = 0
    address: str = ""
    host: str = ""
    process_id: int = 0
    process_start: int = 0
    asked: str | None = None
    process_space: str = ""


def leader_of(record: RoleRecord, now_ms: int) -> Leader:
    return Leader(
        epoch=record.epoch,
        holder=record.holder,
        successor=record.successor,
        lease_left_ms=record.lease_end_ms - now_ms if record.holder else 0,
        address=record.address,
        host=record.host,
        process_id=record.process_id,
        process_start=record.process_start,
        process_space=record.process_space,
    )


def after_campaign(record: RoleRecord, expected_epoch: int, member: Member, lease_end_ms: int) -> RoleRecord | None:
    """Returns the record after a won campaign; None if the epoch is not the expected one."""
    if record.epoch != expected_epoch:
        return None
    return RoleRecord(
        epoch=expected_epoch + 1,
        holder=member.engine,
        lease_end_ms=lease_end_ms,
        address=member.address,
        host=member.host,
        process_id=member.process_id,
        process_start=member.process_start,
        process_space=member.process_space,
    )


def _holds(record: RoleRecord, epoch: int, engine: str) -> bool:
    return bool(engine) and record.epoch == epoch and record.holder == engine


def after_renewal(record: RoleRecord, epoch: int, engine: str, lease_end_ms: int) -> RoleRecord | None:
    if not _holds(record, epoch, engine):
        return None
    return replace(record, lease_end_ms=lease_end_ms)


def after_release(record: RoleRecord, epoch: int, engine: str, successor: str) -> RoleRecord | None:
    """Returns the record after a release: the epoch and the `successor`, without a holder. None if `engine` does not hold
    `epoch`."""
    if not _holds(record, epoch, engine):
        return None
    return RoleRecord(epoch=epoch, successor=successor)


def after_reset(record: RoleRecord) -> RoleRecord:
    return RoleRecord(epoch=record.epoch)


def expired_members(seen_ms: Mapping[str, int], holder: str, now_ms: int) -> list[str]:
    """Returns the engines to remove when another one joins, given when each was last refreshed; never the holder of the role.

    An engine is removed after a silence of SILENT_MS_MAX. After SILENT_MS_MIN it is removed unless it is among the
    SILENT_MEMBERS_MAX refreshed last.
    """
    silent = [engine for engine, at_ms in seen_ms.items() if engine != holder and now_ms - at_ms >= SILENT_MS_MIN]
    silent.sort(key=lambda engine: -seen_ms[engine])
    kept = [engine for engine in silent[:SILENT_MEMBERS_MAX] if now_ms - seen_ms[engine] <= SILENT_MS_MAX]
    return [engine for engine in silent if engine not in kept]


def check_group(group: str) -> None:
    if not group or len(group) > GROUP_NAME_LENGTH_MAX:
        raise UsageError(f"group name {group[:40]!r} cannot be used", hint=f"use 1 to {GROUP_NAME_LENGTH_MAX} characters")


def check_engine(engine: str) -> None:
    if not engine or len(engine) > ENGINE_NAME_LENGTH_MAX:
        raise UsageError(f"engine name {engine[:40]!r} cannot be used", hint=f"use 1 to {ENGINE_NAME_LENGTH_MAX} characters")


def check_lease(lease_ms: int) -> None:
    if not 1 <= lease_ms <= LEASE_MS_MAX:
        raise UsageError(f"a lease of {lease_ms} ms is out of range", hint=f"use 1 to {LEASE_MS_MAX} ms")


def check_fact(name: str, value: bytes) -> None:
    if not name or len(value) > FACT_BYTES_MAX:
        raise UsageError(
            f"fact {name[:40]!r} of {len(value)} bytes cannot be stored", hint=f"use a name and at most {FACT_BYTES_MAX} bytes"
        )


def too_many_members_error(group: str, members_max: int) -> UsageError:
    return UsageError(
        f"group {group} already has {members_max} members", hint="some may be engines that ended without leaving the group"
    )

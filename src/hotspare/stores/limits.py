"""Checks and errors that all stores share, the order of snapshots, and the rule that selects snapshots to discard."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from uuid import uuid4

from hotspare.base.errors import SnapshotDamaged, SnapshotFormat, StoreError, UsageError
from hotspare.stores.contract import SnapshotInfo, SnapshotStatus

NAME_LENGTH_MAX = 300
"""Limit on the characters of a name: enough for the name of a window, at most 201 characters, with that of a page of its rows."""
ORDER_MAX = 2**63 - 1
_IDENTITY = re.compile(r"[0-9a-f]{32}")


def new_identity() -> str:
    return uuid4().hex


def is_identity(text: str) -> bool:
    return _IDENTITY.fullmatch(text) is not None


def check_name(what: str, name: str) -> None:
    """Raises UsageError for an invalid name: empty, too long for NAME_LENGTH_MAX, not printable, or ending in a blank, which some
    databases ignore. `what` is group, snapshot, engine or page."""
    if not name or len(name) > NAME_LENGTH_MAX or not name.isprintable() or name.endswith(" "):
        hint = f"use 1 to {NAME_LENGTH_MAX} printable characters; the last one must not be a blank"
        raise UsageError(f"{what} name {name[:40]!r} cannot be used in a store", hint=hint)


def check_snapshot(group: str, name: str, engine: str, order: int) -> None:
    for what, text in (("group", group), ("snapshot", name), ("engine", engine)):
        check_name(what, text)
    check_order(order)


def check_order(order: int) -> None:
    if not 0 <= order <= ORDER_MAX:
        raise UsageError(f"a snapshot cannot have order {order}", hint="it is the sum of the input positions, so 0 or more")


def check_confirmed_max(confirmed_max: int) -> None:
    if confirmed_max < 1:
        raise UsageError(f"cannot keep {confirmed_max} confirmed snapshots", hint="keep at least 1")


def newest_first(infos: Iterable[SnapshotInfo]) -> Sequence[SnapshotInfo]:
    """Returns the snapshots in the order of `Store.list`."""
    return sorted(infos, key=lambda info: (-info.order, info.name))


def excess_snapshots(infos: Iterable[SnapshotInfo], confirmed_max: int) -> Sequence[str]:
    """Returns the names of the confirmed snapshots that `prune_snapshots` discards; `infos` in the order of `list`."""
    return [info.name for info in infos if info.status is SnapshotStatus.CONFIRMED][confirmed_max:]


def snapshot_missing(group: str, name: str) -> StoreError:
    return StoreError(f"snapshot {name} of group {group} is not in the store", hint="it may have been discarded just now")


def snapshot_damaged(group: str, name: str, detail: str) -> SnapshotDamaged:
    return SnapshotDamaged(
        f"snapshot {name} of group {group} is damaged", detail=detail, hint="an older snapshot is used if there is one"
    )


def missing_or_changed(subject: str) -> str:
    """Returns the detail of `snapshot_damaged` for a part whose content is missing or is not the written one."""
    return f"{subject} is missing or its checksum differs"


def damaged_identity(store: str, found: str) -> StoreError:
    return StoreError(f"the id of {store} is damaged", detail=found[:40])


def request_failed(store: str, detail: str) -> StoreError:
    return StoreError(f"a request to {store} failed", detail=detail[:300])


def invalid_url(subject: str, form: str) -> UsageError:
    """Returns the error for a URL that cannot be parsed. It does not quote the URL, which may hold a password."""
    return UsageError(f"the URL of {subject} cannot be read", hint=f"write {form}")


def check_format(subject: str, found: object, known: int) -> None:
    """Raises SnapshotFormat unless `found`, the version in which `subject` is written, is the `known` one."""
    if found != known:
        raise SnapshotFormat(f"{subject} has format {found}, this hotspare reads {known}", hint="use the hotspare that wrote it")


def already_confirmed(group: str, name: str) -> StoreError:
    return StoreError(
        f"snapshot {name} of group {group} is confirmed and has another content",
        hint="a confirmed snapshot is never replaced: check that no two engines have the same name, and that all use the same key",
    )


def pages_deleted_repeatedly(name: str) -> StoreError:
    return StoreError(f"snapshot {name} cannot be written: its pages were deleted at every attempt")


def duplicate_page(name: str, page: str) -> StoreError:
    return StoreError(f"snapshot {name} was given page {page} twice")

"""Shows in member records what an engine's start is at: compiling kernels takes minutes once, Spark half a minute.

A record under this engine's name that another process wrote stays as it is: joining decides by it whether the name is free.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from enum import Enum

from hotspare.base.errors import CoordinationError
from hotspare.coordination.contract import Coordination, Member
from hotspare.ha.rules import membership
from hotspare.host.alive import is_alive

STARTING = "starting"
"""The detail of a member record that names the phase."""
POLL_S = 1.0


class StartPhase(Enum):
    """The phases of an engine's start, as `hotspare status` shows them."""

    COMPILING = "compiling kernels"
    LOADING = "loading kernels"
    STATE = "state"
    SPARK = "Spark"


@contextlib.contextmanager
def shown_start(
    coordination: Coordination, groups: Sequence[tuple[str, Member]], phase: StartPhase, poll_s: float = POLL_S
) -> Iterator[None]:
    """Keeps the records of `groups` (name, this process as the group knows it) at `phase` while the block runs. A block that raises
    leaves no record; after any other the record stays until the engine writes its own. Coordination errors are ignored."""
    end = threading.Event()
    shown = [(group, replace(member, detail={**member.detail, STARTING: phase.value})) for group, member in groups]

    def write() -> None:
        left, written = dict(shown), set[str]()
        while not end.is_set():
            for group, member in list(left.items()):
                with contextlib.suppress(CoordinationError):
                    if group in written and _wrote_its_own(coordination, group, member):
                        del left[group]
                    elif _may_write(coordination, group, member):
                        coordination.join(group, member)
                        written.add(group)
            end.wait(poll_s)

    thread = threading.Thread(target=write, name="start-shown", daemon=True)
    thread.start()
    try:
        yield
    except BaseException:
        _end(end, thread)
        for group, member in shown:
            with contextlib.suppress(CoordinationError):
                if _may_write(coordination, group, member):
                    coordination.leave(group, member.engine)
        raise
    _end(end, thread)


def _end(end: threading.Event, thread: threading.Thread) -> None:
    end.set()
    thread.join()


def _wrote_its_own(coordination: Coordination, group: str, member: Member) -> bool:
    """Whether the engine replaced the record of its start: it takes part in the group, whatever is still starting."""
    own = [each for each in coordination.members(group) if each.engine == member.engine]
    return any(membership.process_of(each) == membership.process_of(member) and STARTING not in each.detail for each in own)


def _may_write(coordination: Coordination, group: str, member: Member) -> bool:
    """Whether no other process that lives, or may live, has a record under this engine's name."""
    members = coordination.members(group)
    if membership.unseen_namesake(members, member) is not None:
        return False
    other = membership.namesake(members, member)
    return other is None or not is_alive(other)

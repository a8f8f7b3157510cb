"""Mistakes that could be made in the rules of failover, each as a small patch, to prove that the simulation would find it.

The first six are those that the model of the protocol finds too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from hotspare.bus.contract import Commit, Progress
from hotspare.errors import Fenced, UnknownResult
from hotspare.ha import actions as do
from hotspare.ha import committed, decide, group_state, perform, publishing
from hotspare.ha.group_state import GroupState
from hotspare.ha.held import HeldStream
from hotspare.ha.ports import Ports
from hotspare.ha.roles import Reason, Role, Step
from hotspare.ha.view import View

Patch = Callable[[], Any]


def _performer(kind: type[Any], function: Callable[[Any, GroupState, Ports], None]) -> Any:
    return patch.dict(perform.PERFORMERS, {kind: function})


def snapshot_ahead() -> Any:
    """A snapshot may be restored before what stands before it was published."""
    return patch.object(group_state, "_is_settled", lambda state, candidate: True)


def drop_held_only() -> Any:
    """Outputs that a spare behind the active has not yet computed are not dropped at promotion."""
    whole = committed.note_progress

    def clipped(state: GroupState, ports: Ports, progress: Mapping[str, Progress]) -> None:
        known = {}
        for stream, news in progress.items():
            held = state.held.streams[stream]
            mark = held.mark_at(held.last_sequence)
            behind = held.last_sequence < news.sequence and mark is not None and state.role is Role.PROMOTING
            known[stream] = Progress(mark.sequence, mark.output_id, mark.digest, news.epoch) if behind and mark else news
        whole(state, ports, known)

    return patch.object(committed, "note_progress", clipped)


def _no_recheck(_: do.Recheck, state: GroupState, ports: Ports) -> None:
    state.step = Step.CHECKED


def no_recheck() -> Any:
    """The coordination epoch is not read again after fencing."""
    return _performer(do.Recheck, _no_recheck)


def separate_progress() -> Any:
    """Outputs and progress are committed one after the other."""

    def publish(_: do.Publish, state: GroupState, ports: Ports) -> None:
        assert state.producer is not None
        commit = publishing.next_commit(state, ports.codec)
        state.producer.publish(state.epoch, Commit(commit.messages, {}))
        state.producer.publish(state.epoch, Commit({}, commit.progress))
        committed.note_own_commit(state, commit.progress)

    return _performer(do.Publish, publish)


def fenced_is_end() -> Any:
    """Who is fenced never takes part again, though it may hold the newest epoch."""

    def end(state: GroupState, ports: Ports, reason: Reason) -> None:
        state.coordination_retry_ms = 1 << 60
        state.leader = None
        perform.move(state, ports, Role.STANDBY, Reason.NEWER_EPOCH)

    return patch.object(perform, "_fence_again", end)


@contextmanager
def recheck_before_fence() -> Iterator[None]:
    """The coordination epoch is read again before fencing instead of after."""
    checked: set[tuple[str, int]] = set()
    right = perform.PERFORMERS[do.Fence]

    def fence(action: do.Fence, state: GroupState, ports: Ports) -> None:
        key = (state.engine + str(state.identity.process_start), action.epoch)
        if key in checked:
            right(action, state, ports)
        else:
            checked.add(key)
            perform.PERFORMERS[do.ReadLeader](do.ReadLeader(Reason.TIMER), state, ports)

    with _performer(do.Fence, fence), no_recheck():
        yield


def publish_from_zero() -> Any:
    """Without a progress record a stream is taken to be unpublished."""
    return patch.object(publishing, "progress_from_tail", lambda bus, codec, stream, topic: None)


def renew_without_progress() -> Any:
    """The lease is renewed by a living thread, though no batch passes."""
    keep = decide._keep_lease

    def renewed(view: View) -> Iterator[decide.Duty]:
        return keep(replace(view, has_moved=True))

    return patch.object(decide, "_keep_lease", renewed)


def _publish_taking_unknown_as(commit_is_done: str) -> Any:
    def publish(_: do.Publish, state: GroupState, ports: Ports) -> None:
        assert state.producer is not None
        commit = publishing.next_commit(state, ports.codec)
        try:
            state.producer.publish(state.epoch, commit)
        except Fenced:
            perform._fence_again(state, ports, Reason.FENCED)
            return
        except UnknownResult:
            if commit_is_done == "no":
                return
        committed.note_own_commit(state, commit.progress)

    return _performer(do.Publish, publish)


def unknown_is_done() -> Any:
    """An unknown commit result is taken as success."""
    return _publish_taking_unknown_as("yes")


def unknown_is_repeated() -> Any:
    """A commit with an unknown result is sent again as it is."""
    return _publish_taking_unknown_as("no")


def ring_of_held() -> Any:
    """A spare holds a fixed number of outputs (SPEC D15, Z10)."""
    whole = HeldStream.append

    def append(self: HeldStream, batch: Any) -> None:
        whole(self, batch)
        self.drop_through(self.last_sequence - 3)

    return patch.object(HeldStream, "append", append)


def newest_epoch_for_all() -> Any:
    """A thawed engine publishes under whatever epoch the bus has now."""

    def publish(_: do.Publish, state: GroupState, ports: Ports) -> None:
        assert state.producer is not None
        commit = publishing.next_commit(state, ports.codec)
        epoch = max(state.producer.bus.epochs.values())  # type: ignore[attr-defined]
        state.producer.publish(epoch, commit)
        committed.note_own_commit(state, commit.progress)

    return _performer(do.Publish, publish)


PLANTED: dict[str, Patch] = {
    "snapshot-ahead": snapshot_ahead,
    "drop-held-only": drop_held_only,
    "no-recheck": no_recheck,
    "separate-progress": separate_progress,
    "fenced-is-end": fenced_is_end,
    "recheck-before-fence": recheck_before_fence,
    "publish-from-zero": publish_from_zero,
    "renew-without-progress": renew_without_progress,
    "unknown-is-done": unknown_is_done,
    "unknown-is-repeated": unknown_is_repeated,
    "ring-of-held": ring_of_held,
    "newest-epoch-for-all": newest_epoch_for_all,
}

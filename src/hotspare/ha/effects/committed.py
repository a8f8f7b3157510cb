"""Reconciles held outputs with those committed: releases committed ones, and detects differences (SPEC Z9, Z10, D14)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import replace

from hotspare.bus.contract import Progress
from hotspare.ha.effects import recording
from hotspare.ha.events import HaEvent, HaEventKind
from hotspare.ha.group_state import GroupState
from hotspare.ha.outputs.held import NO_OUTPUT, HeldStream, OutputMark
from hotspare.ha.outputs.progress_points import ProgressPoints
from hotspare.ha.ports import Ports
from hotspare.ha.rules import committed as rules
from hotspare.ha.rules import holding, hung_calls, project_changes, renumbering, warming
from hotspare.rows.batch import BAD_STREAM


def record_progress(state: GroupState, ports: Ports, progress: Mapping[str, Progress]) -> None:
    """Records the committed `progress` that was read, by record name, and reconciles the held outputs with it. Progress older than
    the known one is ignored."""
    _record_project_changes(state, progress)
    record_decisions(state, ports, progress)
    for stream, news in progress.items():
        known = state.streams.get(stream)
        if known is not None and not rules.is_older_progress(known, news):
            if rules.is_newer_progress(known, news):
                state.lease = rules.after_commit_seen(state.lease)
            state.streams[stream] = replace(known, committed=news)
            if known.is_shift_unknown:
                _locate_committed_output(state, stream)
            else:
                state.points_ahead.setdefault(stream, ProgressPoints()).add(news)
    for stream in state.projects.own_only_streams & state.streams.keys():
        if state.streams[stream].is_shift_unknown:
            state.held.streams[stream].drop_through(_covered_by_other_project(state, stream))
    reconcile_held_outputs(state, ports)


def _record_project_changes(state: GroupState, progress: Mapping[str, Progress]) -> None:
    """Records in which epochs other projects began to publish, and marks the shift of the affected streams as unknown.

    The numbers on their topics then differ from those of this engine. This also applies if such a project had the role meanwhile
    and published nothing.
    """
    changes = project_changes.parsed_changes(progress)
    if project_changes.newest_change_epoch(changes) > state.projects.newest_change:
        state.projects = replace(state.projects, changes=changes)
    streams = renumbering.streams_with_unknown_shift(state.projects)
    for stream in state.streams if streams is None else streams & state.streams.keys():
        if not state.streams[stream].is_shift_unknown:
            state.streams[stream] = renumbering.with_unknown_shift(state.streams[stream])
            state.points_ahead.pop(stream, None)
    answered = renumbering.with_other_project_outputs(state.projects, progress)
    state.projects = replace(state.projects, changes_epoch=state.projects.newest_change, other_project_outputs=answered)


def record_decisions(state: GroupState, ports: Ports, progress: Mapping[str, Progress]) -> None:
    """Records the decisions about hung calls among the records `progress`, and shows them to the core, which applies them to the
    positions that it has not computed."""
    known = {each.number: each for each in (*state.hung_calls.decisions, *hung_calls.parsed_decisions(progress))}
    if len(known) > len(state.hung_calls.decisions):
        state.hung_calls = replace(state.hung_calls, decisions=tuple(known[number] for number in sorted(known)))
        state.core.set_decisions(state.hung_calls.decisions)
        sentence = state.hung_calls.decisions[-1].sentence
        ports.report(HaEvent(HaEventKind.HUNG_CALL, state.group, state.engine, sentence))
        recording.refresh_member_soon(state)


def reconcile_held_outputs(state: GroupState, ports: Ports) -> None:
    """Compares held outputs with the progress read for their sequences, and releases all that are known to be committed.

    An engine whose outputs lag behind what is committed releases all of them; it compares once it has computed the committed
    sequence. In a state made from recent input, agreement in several streams at once counts as one match.
    """
    has_agreed = False
    for stream, held in state.held.streams.items():
        known = state.streams[stream]
        if known.committed is None or known.is_shift_unknown or known.is_unadopted:
            continue
        for point in state.points_ahead[stream].pop_through(held.last_sequence) if stream in state.points_ahead else ():
            if rules.is_comparison_due(state.streams[stream], point):
                has_agreed |= _compare(state, ports, stream, point) and stream != BAD_STREAM
        known = state.streams[stream]
        through = holding.committed_through(known, held.last_sequence)
        if holding.has_to_keep_digests(known):
            held.release_keeping_digests(through)
        else:
            held.drop_through(through)
            held.forget_digests(through)
    if has_agreed and state.warming is not None:
        state.warming = warming.after_match(state.warming)


def _locate_committed_output(state: GroupState, stream: str) -> None:
    """Releases the outputs that precede the newest committed one. If this engine holds that very output, its numbers in the stream
    become known.

    While another project publishes, its outputs may equal this engine's for a while, so an equal output proves nothing then.
    """
    held, newest = state.held.streams[stream], _newest(state, stream)
    place = held.sequence_at_or_before(newest)
    is_own = renumbering.is_numbering_own(state.projects, stream, state.streams[stream].committed)
    found = held.mark_at(place) if is_own else None
    if found is not None and found.output_id is not None and (found.output_id, found.digest) == (newest.output_id, newest.digest):
        held.renumber_from(newest, place)
        state.streams[stream] = renumbering.with_known_shift(state.streams[stream])
    else:
        held.drop_through(place)


def _covered_by_other_project(state: GroupState, stream: str) -> int:
    """Returns the last held sequence of `stream` whose input the other project already answered; 0 if that project committed
    nothing. 0 also for a stream that both projects have."""
    held = state.held.streams[stream]
    return max(
        (held.sequence_at_or_before(OutputMark(0, at, 0)) for at in renumbering.other_outputs_before(state.projects, stream)),
        default=0,
    )


def renumber_outputs(state: GroupState, streams: Iterable[str]) -> None:
    """Renumbers the held outputs of `streams` so that they follow the newest committed ones. Only the active engine may do so."""
    for stream in streams:
        held, newest = state.held.streams[stream], _newest(state, stream)
        held.renumber_from(newest, max(held.sequence_at_or_before(newest), _covered_by_other_project(state, stream)))
        state.streams[stream] = renumbering.with_known_shift(state.streams[stream])
        state.points_ahead.pop(stream, None)


def _newest(state: GroupState, stream: str) -> OutputMark:
    committed = state.streams[stream].committed
    return NO_OUTPUT if committed is None else OutputMark(committed.sequence, committed.output_id, committed.digest)


def _compare(state: GroupState, ports: Ports, stream: str, point: Progress) -> bool:
    """Compares this engine's output at the sequence of `point` with that committed progress. Returns whether they agree; records
    and reports a difference."""
    held, known = state.held.streams[stream], state.streams[stream]
    mark = held.mark_at(point.sequence)
    own = rules.OwnOutput(held.digest_at(point.sequence)) if mark is None else rules.OwnOutput(mark.digest, mark.output_id)
    now = state.streams[stream] = rules.after_comparison(stream, known, point, own, ports.clock_ms())
    has_agreed = now.verified > known.verified
    if now.difference is None or now.difference is known.difference:
        return has_agreed
    recording.refresh_member_soon(state)  # another spare may agree
    sentence = f"output {point.sequence} of stream {stream} differs from the one committed under epoch {point.epoch}"
    ports.report(HaEvent(HaEventKind.DIFFERENCE_SEEN, state.group, state.engine, sentence))
    return has_agreed


def accept_committed(state: GroupState) -> None:
    """Makes this engine continue after what is committed although its own outputs differ, and releases the held outputs up to
    there.

    The caller has made sure that another spare agrees with this engine against the committer, or that no other engine can take
    over.
    """
    for stream, known in state.streams.items():
        state.streams[stream] = rules.after_overruling(known)
        if known.committed is not None:
            state.held.streams[stream].drop_through(known.committed.sequence)
    state.points_ahead.clear()
    state.role_state = replace(state.role_state, is_overruling=False)


def record_own_commit(state: GroupState, published: Mapping[str, Progress], sent: Mapping[str, int], now_ms: int) -> None:
    """Records a commit of this engine: `published` is the progress in it, `sent` the newest committed sequence by stream.

    Outputs that are on the topic but not in the progress stay held. If this engine dies, another one repeats them; if it only loses
    the role for a while, it must be able to repeat them itself.
    """
    for stream, sequence in sent.items():
        state.streams[stream] = rules.after_sending(state.streams[stream], sequence, now_ms)
    changes = project_changes.parsed_changes(published)
    if changes:
        known_changes = (*state.projects.changes, *changes)
        state.projects = replace(state.projects, changes=known_changes, changes_epoch=project_changes.newest_change_epoch(changes))
    for stream, progress in ((name, each) for name, each in published.items() if project_changes.is_stream_record(name)):
        known = state.streams[stream]
        state.streams[stream] = rules.after_recording(known, progress)
        if rules.is_newer_progress(known, progress):
            state.held.streams[stream].drop_through(progress.sequence)


def reset_sent_sequences(state: GroupState) -> None:
    """Resets, in every stream, the sequences that this engine sent under older epochs. It must have won a new epoch."""
    for stream, known in state.streams.items():
        state.streams[stream] = rules.after_new_epoch(known)


def release_by_quality(state: GroupState, now_ms: int) -> None:
    """Releases the held outputs that a spare need not retain, by each stream's quality. To be called each time after outputs were
    held.

    The digests of released outputs are retained, to be compared with what is committed.
    """
    if holding.has_to_hold_all(state.role_state.role):
        state.arrivals.clear()
        return
    for stream, held in state.held.streams.items():
        quality = state.qualities.stream_quality(stream)
        arrivals = _with_newest_arrival(state, stream, held, now_ms) if quality.window_ms else deque[tuple[int, int]]()
        through = holding.releasable_through(quality, held.last_sequence, arrivals, now_ms)
        while arrivals and arrivals[0][0] <= through:
            arrivals.popleft()
        held.release_keeping_digests(through)


def _with_newest_arrival(state: GroupState, stream: str, held: HeldStream, now_ms: int) -> deque[tuple[int, int]]:
    """Returns the (sequence, time computed) pairs of the stream, after adding one for the newest held output if it is new."""
    arrivals = state.arrivals.setdefault(stream, deque())
    if held.last_sequence > (arrivals[-1][0] if arrivals else held.base.sequence):
        arrivals.append((held.last_sequence, now_ms))
    return arrivals


def report_lost_outputs(state: GroupState, ports: Ports) -> None:
    """Counts and reports the outputs that an engine taking over has released although they are not committed: they are never
    published (SPEC D15: never silently)."""
    for stream, held in state.held.streams.items():
        known, through = state.streams[stream], held.base.sequence
        if known.is_shift_unknown:
            continue
        now = state.streams[stream] = rules.with_lost_outputs(known, through)
        lost = now.lost - known.lost
        if not lost:
            continue
        sentence = f"outputs {through - lost + 1} to {through} of stream {stream} were no longer held and are lost"
        numbers = {"outputs": lost}
        ports.report(HaEvent(HaEventKind.OUTPUTS_LOST, state.group, state.engine, sentence, numbers))

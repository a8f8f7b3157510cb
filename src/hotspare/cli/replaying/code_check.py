"""Checks that user code depends only on its events and its saved state: repeated runs of recorded input must give equal outputs.
The first run is compared with three others: an equal run, a run in batches of 7 messages, and a run in batches of one message that
is restored from a snapshot after each batch. Outputs differ if the code depends on the machine, keeps state that snapshots lack,
or, for code over columns, if the result of a row depends on other rows.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

import numpy as np
import pyarrow as pa

from hotspare.adapters.recording import RecordingProgress
from hotspare.cli.replaying.run import Replay, replay_batches
from hotspare.flow.head.head import Head
from hotspare.flow.pipeline import Pipeline
from hotspare.flow.plan import Plan, compile_plan
from hotspare.formats.csv.rows import CsvStyle, row_texts
from hotspare.model.publishing import with_published_windows
from hotspare.projects.resolve import resolve
from hotspare.runners.local import decode_iterable

_ALL = 5_000


class Restoring(Enum):
    NEVER = "never"
    AFTER_EACH_BATCH = "after each batch"


@dataclass(frozen=True, slots=True)
class CheckRun:
    """A run of the input in batches of at most `messages_max` messages. `run_label` describes the run in messages."""

    run_label: str
    messages_max: int
    restoring: Restoring = Restoring.NEVER


FIRST_RUN = CheckRun("in the first run", _ALL)
OTHER_RUNS = (
    CheckRun("in a second run", _ALL),
    CheckRun("in batches of 7 messages", 7),
    CheckRun("in batches of one message, restored from a snapshot after each", 1, Restoring.AFTER_EACH_BATCH),
)


@dataclass(frozen=True, slots=True)
class CodeDifference:
    """The first output of a stream that differs between the first run and `differing_run`. `expected` and `found` are its texts in
    the two runs, "" in a run without an output of this sequence."""

    stream: str
    sequence: int
    differing_run: CheckRun
    expected: str
    found: str


@dataclass(frozen=True, slots=True)
class CheckedCode:
    """The result of a check: the number of events, and the differences, at most one for each of `OTHER_RUNS`."""

    events: int
    differences: tuple[CodeDifference, ...]


def check_code(replay: Replay) -> CheckedCode:
    """Performs all runs and returns the differences in the outputs of all windows, also of those that the project does not
    publish."""
    project = replay.plan.resolved.project
    replay = dataclasses.replace(
        replay, plan=compile_plan(resolve(with_published_windows(project, {window.id for window in replay.plan.resolved.windows})))
    )
    progress = RecordingProgress()
    expected = _digests(replay, FIRST_RUN, progress)
    found = (_difference(replay, expected, way) for way in OTHER_RUNS)
    return CheckedCode(progress.events, tuple(each for each in found if each is not None))


def _difference(replay: Replay, expected: Mapping[str, np.ndarray], way: CheckRun) -> CodeDifference | None:
    found = _digests(replay, way, RecordingProgress())
    for stream in replay.plan.stream_schemas:
        one, two = expected.get(stream, _NONE), found.get(stream, _NONE)
        common = min(len(one), len(two))
        differ = np.flatnonzero(one[:common] != two[:common])
        if len(differ) or len(one) != len(two):
            sequence = (int(differ[0]) if len(differ) else common) + 1
            rows = (_row(replay, each, stream, sequence) for each in (FIRST_RUN, way))
            return CodeDifference(stream, sequence, way, *rows)
    return None


_NONE = np.empty(0, np.uint64)


def _digests(replay: Replay, way: CheckRun, progress: RecordingProgress) -> dict[str, np.ndarray]:
    """Returns, by stream, an array with the digest of all outputs up to each output."""
    found: dict[str, list[np.ndarray]] = {}
    for outputs in _outputs(replay, way, progress):
        for stream, batch in outputs.items():
            found.setdefault(stream, []).append(batch.column("hs:digest").to_numpy())
    return {stream: np.concatenate(pieces) for stream, pieces in found.items()}


def _row(replay: Replay, way: CheckRun, stream: str, sequence: int) -> str:
    """Returns the output with that sequence as text, by repeating the run; "" if the run has no such output."""
    for outputs in _outputs(replay, way, RecordingProgress()):
        batch = outputs.get(stream)
        if batch is not None and len(batch):
            first = batch.column("hs:sequence")[0].as_py()
            if first <= sequence < first + len(batch):
                (text,) = row_texts(batch.slice(sequence - first, 1), CsvStyle.EXACT)
                return text
    return ""


def _outputs(replay: Replay, way: CheckRun, progress: RecordingProgress) -> Iterator[Mapping[str, pa.RecordBatch]]:
    """Performs a run with new instances of the code, and yields its outputs by stream."""
    plan: Plan = compile_plan(replay.plan.resolved)
    head, pipeline = Head.from_plan(plan), Pipeline.fresh(plan)
    for raw in replay_batches(replay, progress):
        for decoded in decode_iterable([raw], head, way.messages_max):
            yield from pipeline.compute_parts(decoded)
            if way.restoring is Restoring.AFTER_EACH_BATCH and not pipeline.waiting_rows:
                frozen = pipeline.freeze()
                pipeline = Pipeline.restore(plan, frozen.header, dict(frozen.pages()))

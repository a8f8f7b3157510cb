"""Laws Cut and Crash with very little memory for texts: evictions of texts change no bit of outputs and snapshots, whatever is
evicted when."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from hotspare.flow.head.head import Head
from hotspare.flow.pipeline import Pipeline
from hotspare.flow.plan import Plan, compile_plan
from hotspare.projects.load import load_text
from hotspare.rows.tuning import Tuning, tuning_override
from hotspare.table.page_cache.budget import Budget
from tests.cases.case import Case, Message, raw_batches
from tests.laws.core_scripts import joined, snapshot_bytes

pytestmark = pytest.mark.law

PROJECT = """
project: texts
queries:
  q:
    windows:
      source: {type: source, opcodes: any, index: empty, schema: "name*:string,part:string,fragment:string"}
      kept: {type: copy, publish: true}
      recent: {type: copy, retention: {bytime_sliding: 3 seconds}, publish: true}
      newest: {type: copy, retention: {bycount_sliding: 2, by: [part]}, publish: true}
      longer: {type: filter, condition: "length(fragment) > 420", resident: always, publish: true}
      parts: {type: source, opcodes: any, schema: "part*:string,note:string"}
      noted: {type: join, kind: leftouter, index: empty, conditions: {part: part}, outputs: {fragment: l_fragment, note: r_note},
              publish: true}
      grouped:
        type: aggregate
        schema: "part*:string,n:int64,least:string,most:string,last:string"
        outputs: {n: ESP_aCount(), least: ESP_aMin(fragment), most: ESP_aMax(name), last: ESP_aLast(fragment)}
        publish: true
    edges: [source -> kept, source -> recent, source -> newest, kept -> longer, kept -> grouped, kept -> noted, parts -> noted]
"""
KEYS, EVENTS, SECONDS, PARTS = 4_000, 800, 12, 300


@cache
def plan() -> Plan:
    return compile_plan(load_text(PROJECT).resolved)


def row(opcode: str, key: int, number: int) -> str:
    fragment = f"{number * 7919 % 10_000}:".ljust(250 + number % 200, "f")
    return f"{opcode},N,{f'name {key} '.ljust(60, 'n')},{f'part {key % PARTS} '.ljust(150, 'p')},{fragment}"


@cache
def batches() -> tuple[pa.RecordBatch, ...]:
    """Inserts keys; later events change rows here and there, and delete some. No fragment occurs twice except in deletes."""
    random, messages = np.random.default_rng(5), []
    for second in range(SECONDS):
        first = second * EVENTS
        keys = np.arange(first, first + EVENTS) if second < 5 else random.integers(0, KEYS, EVENTS)
        opcodes = np.where(random.random(EVENTS) < (0.15 if second >= 5 else 0.0), "S", "P")
        rows = [row(opcode, key, first + i) for i, (opcode, key) in enumerate(zip(opcodes, keys.tolist(), strict=True))]
        parts = random.integers(0, PARTS, 20).tolist()
        notes = [f"P,N,{f'part {part} '.ljust(150, 'p')},{f'note {part} {second}'.ljust(300, 'o')}" for part in parts]
        messages += [
            Message(second * 1_000_000 + 1, "source", " | ".join(rows)),
            Message(second * 1_000_000 + 2, "parts", " | ".join(notes)),
            Message(second * 1_000_000 + 3, "", ""),
        ]
    head = Head.from_plan(plan())
    return tuple(head.decode(raw) for raw in raw_batches(Case(plan(), tuple(messages), ())))


@pytest.fixture(autouse=True)
def _forgets_soon() -> Iterator[None]:
    """Makes the collector look for unused strings after some steps, and free them over many."""
    with tuning_override(Tuning(collect_codes_min=1 << 10, looks_min=1 << 9, looks_per_string=2)):
        yield


def fed(pieces: list[pa.RecordBatch], pipeline: Pipeline) -> list[dict[str, pa.RecordBatch]]:
    return [pipeline.feed(piece) for piece in pieces]


@cache
def with_all_memory() -> tuple[dict[str, pa.Table], bytes]:
    pipeline = Pipeline.fresh(plan())
    return joined(fed(list(batches()), pipeline)), snapshot_bytes(pipeline)


def cut() -> list[pa.RecordBatch]:
    return [batch.slice(at, 300) for batch in batches() for at in range(0, batch.num_rows, 300)]


@cache
def state_bytes() -> int:
    """Returns the size of the state under a budget that it does not exhaust."""
    with tempfile.TemporaryDirectory() as folder:
        residence = Budget(1 << 30, Path(folder))
        pipeline = Pipeline.fresh(plan(), residence=residence)
        fed(cut(), pipeline)
        counts = residence.counts()
        del pipeline  # its state was counted
        assert counts["away"] == 0
        return int(counts["may_leave"] + counts["stays"])


def has_evicted(pipeline: Pipeline) -> bool:
    return pipeline._state.strings.has_evicted


@pytest.mark.parametrize("share", [0.01, 1 / 3, 1.0, 16.0])
def test_cut_with_little_memory_for_texts(share: float, tmp_path: Path) -> None:
    """The budget is 1 % of the state's size at its end, a third, all of it, and more than it ever takes (SPEC G1, G2)."""
    pipeline = Pipeline.fresh(plan(), residence=Budget(int(state_bytes() * share), tmp_path))
    outputs, snapshot = with_all_memory()
    made, pieces = [], cut()
    for number, piece in enumerate(pieces):
        made.append(pipeline.feed(piece))
        if number == len(pieces) // 2:
            assert has_evicted(pipeline) == (share < 1)
    assert joined(made) == outputs
    assert snapshot_bytes(pipeline) == snapshot
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("share", [0.01, 1 / 3])
def test_crash_with_little_memory_for_texts(share: float, tmp_path: Path) -> None:
    """A snapshot of evicted texts is taken, written while others are evicted and freed, and restored into as little memory."""
    budget = int(state_bytes() * share)
    outputs, snapshot = with_all_memory()
    pieces = cut()
    pipeline, half = Pipeline.fresh(plan(), residence=Budget(budget, tmp_path)), len(pieces) * 2 // 3
    made = fed(pieces[:half], pipeline)
    frozen = pipeline.freeze()
    made += fed(pieces[half:], pipeline)
    restored = Pipeline.restore(plan(), frozen.header, dict(frozen.pages()), residence=Budget(budget, tmp_path))
    next_offsets = np.array([restored.next_offsets.get((topic, 0), 0) for topic in range(2)])
    for piece in pieces:
        topic, offset = (piece.column(name).to_numpy() for name in ("topic", "offset"))
        restored.feed(piece.filter(pa.array(offset >= next_offsets[topic])))
    assert joined(made) == outputs
    assert snapshot_bytes(pipeline) == snapshot_bytes(restored) == snapshot
    assert restored.digests == pipeline.digests
    assert has_evicted(pipeline)
    assert has_evicted(restored)

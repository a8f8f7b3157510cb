"""Frames return the same batches, by position, whatever the order in which tasks delivered them; errors keep their class."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.base.errors import HotspareError, PositionLost, ProjectError, RunnerError, UsageError
from hotspare.model.types import Field, FieldType, Schema
from hotspare.rows.batch import decoded_schema
from hotspare.runners.spark.failure import WorkerFailure, unpack
from hotspare.runners.spark.frames import FRAME_SCHEMA, frame, unframe

SCHEMA = decoded_schema([Schema(tuple(Field(t.value, t) for t in FieldType))])


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 2**40)), unique=True, max_size=8), st.randoms())
def test_frames_come_back_by_position(keys: list[tuple[int, int, int]], order: random.Random) -> None:
    batches = {key: pa.RecordBatch.from_pydict({"x": [key[2], None]}, schema=pa.schema([("x", pa.int64())])) for key in keys}
    frames = [frame(*key, batch) for key, batch in batches.items()]
    order.shuffle(frames)
    assert unframe(pa.Table.from_batches(frames, FRAME_SCHEMA)) == [batches[key] for key in sorted(keys)]


def test_types_that_spark_lacks_pass_unchanged() -> None:
    """Unsigned opcodes, seconds, decimals, structs with null: the decoded batch of every field type."""
    event = {"int32": 1, "int64": 2**62, "double": 0.1, "string": "é", "date": None, "stamp": 3, "money": None, "blob": b"\0"}
    event |= {"array(i32)": [1, None], "array(i64)": [], "array(dbl)": None}
    row = {"topic": 0, "partition": 0, "offset": 1, "index": 0, "time_us": 5, "kind": 0, "opcode": 200, "flags": 1}
    batch = pa.RecordBatch.from_pylist([{**row, "e0": event, "bad": None}, {**row, "e0": None, "bad": None}], SCHEMA)
    (back,) = unframe(pa.Table.from_batches([frame(0, 0, 1, batch)]))
    assert back.equals(batch, check_metadata=True)
    assert back.schema == SCHEMA


@pytest.mark.parametrize("kind", [PositionLost, UsageError, RunnerError])
def test_an_error_of_a_worker_comes_out_of_sparks_text_as_itself(kind: type[HotspareError]) -> None:
    error = kind("offset 3 is gone", detail="kept from 7 — ünï", hint="keep\nmore")
    text = f"Py4JJavaError: something\nTraceback:\n  WorkerFailure: {WorkerFailure(error)}\n\tat org.apache.spark"
    back = unpack(text)
    assert type(back) is kind
    assert (back.message, back.detail, back.hint) == (error.message, error.detail, error.hint)


def test_a_text_without_an_error_of_ours_is_quoted_in_bounds() -> None:
    back = unpack("x" * 1_000_000)
    assert type(back) is RunnerError
    assert len(str(back)) < 5_000


def test_an_error_that_cannot_be_rebuilt_is_quoted() -> None:
    assert type(unpack(str(WorkerFailure(ProjectError("p", []))))) is RunnerError

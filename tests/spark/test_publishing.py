"""The publishing of rows in a task: chunks that are the same at each attempt, each written once."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.adapters.failover.source_position import SourcePosition
from hotspare.base.errors import MessageTooLarge, UsageError
from hotspare.bus.contract import Partition
from hotspare.bus.memory import MemoryBus
from hotspare.bus.open import open_bus
from hotspare.formats import arrow_block
from hotspare.model.types import Field, FieldType, KeyRole, Schema
from hotspare.rows.batch import FORMAT_OF_HEADER
from hotspare.spark import publishing
from hotspare.spark.columns import Meta, found_column, is_taken
from hotspare.spark.on_bus import WindowName, checked_bus
from hotspare.spark.publishing import chunks, encoded

SCHEMA = Schema((Field("id", FieldType.INT64, KeyRole.KEY), Field("text", FieldType.STRING)))


def rows_of(counts: Sequence[int], sizes: Random) -> list[pa.RecordBatch]:
    """Returns `counts` rows of each partition, in batches of any size."""
    numbers = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
    rows = pa.record_batch(
        {"partition": numbers, "f0_0": np.arange(len(numbers)), "f0_1": [f"row {i}" for i in range(len(numbers))]}
    )
    batches, at = [], 0
    while at < len(rows):
        size = sizes.randint(1, 700)
        batches.append(rows.slice(at, size))
        at += size
    return batches


@given(counts=st.lists(st.integers(0, 2500), min_size=1, max_size=4), seed=st.integers(0, 99))
def test_chunks_do_not_depend_on_where_batches_end(counts: list[int], seed: int) -> None:
    found = [(p, place, chunk["f0_0"].to_pylist()) for p, place, chunk in chunks(iter(rows_of(counts, Random(seed))))]
    again = [(p, place, chunk["f0_0"].to_pylist()) for p, place, chunk in chunks(iter(rows_of(counts, Random(seed + 1))))]
    assert found == again
    assert [number for _, _, numbers in found for number in numbers] == list(range(sum(counts)))
    for partition, count in enumerate(counts):
        mine = [(place, len(numbers)) for p, place, numbers in found if p == partition]
        assert [place for place, _ in mine] == list(range(len(mine)))
        assert all(size == publishing.CHUNK_ROWS for _, size in mine[:-1])
        assert sum(size for _, size in mine) == count


class Site:
    """A topic of three partitions in memory, and a task that publishes to it."""

    def __init__(self) -> None:
        self.bus = MemoryBus().client("test")
        self.bus.create_topic("in", 3)
        self.target = publishing._Target("", "in", "q/w", SCHEMA, None, 3, "load")

    def write(self, number: int, batches: list[pa.RecordBatch], upto: int | None = None) -> int:
        """Runs a task; it ends after `upto` chunks."""
        writing = publishing._write_all(self.bus, self.target, number, iter(batches))
        return sum(islice(writing, upto))

    def ids(self, partition: int) -> list[int]:
        found = []
        for message in self.bus.read(Partition("in", partition), 0, messages_max=10_000, bytes_max=1 << 30):
            assert FORMAT_OF_HEADER[message.header("hotspare-format") or b""].name == "ARROW"
            found += arrow_block.decode(message.value).column("id").to_pylist()
        return found


def test_a_task_that_is_repeated_writes_what_is_left() -> None:
    """The first task ends after any number of chunks; another one repeats it with other batches."""
    for upto in range(7):
        site = Site()
        first = site.write(0, rows_of([2500, 0, 1800], Random(1)), upto)
        assert site.write(0, rows_of([2500, 0, 1800], Random(2))) == 4300 - first
        assert site.write(0, rows_of([2500, 0, 1800], Random(3))) == 0
        assert [site.ids(p) for p in range(3)] == [list(range(2500)), [], list(range(2500, 4300))]


def test_the_next_micro_batch_follows() -> None:
    site = Site()
    for number in range(3):
        assert site.write(number, rows_of([1500], Random(number))) == 1500
    assert site.write(1, rows_of([1500], Random(5))) == 0, "an old task wakes"
    assert site.ids(0) == list(range(1500)) * 3


def test_other_rows_under_the_same_name_are_refused_and_not_passed_over() -> None:
    """Otherwise they would be skipped without an error."""
    given = [2500, 0, 1800]
    for counts in ([2500, 0, 1801], [1000, 0, 1800], [2500, 0, 900]):
        site = Site()
        site.write(0, rows_of(given, Random(1)))
        with pytest.raises(UsageError, match="other rows were published under the name 'load'"):
            site.write(0, rows_of(counts, Random(2)))
    site = Site()
    site.write(0, rows_of(given, Random(1)))
    changed = [rows.set_column(2, "f0_1", pa.array([f"Row {i}" for i in range(len(rows))])) for rows in rows_of(given, Random(1))]
    with pytest.raises(UsageError, match="other rows"):
        site.write(0, changed)
    assert site.write(1, changed) == 4300


def test_rows_that_came_before_checks_were_kept_go_on() -> None:
    site = Site()
    source = site.target.source(site.bus, 0)
    source.read_source_position()
    assert source.append([b""], [SourcePosition(2)], b"arrow")
    assert site.write(0, rows_of([2500], Random(1))) == 500


def test_a_query_that_begins_behind_what_is_published_is_refused(tmp_path: Path) -> None:
    """A new checkpoint under the same name would skip its micro-batches up to the number that was reached."""
    url = f"sqlite:///{tmp_path / 'bus.db'}"
    bus = open_bus(url)
    bus.create_topic("in", 3)
    target = publishing._Target(url, "in", "q/w", SCHEMA, None, 3, "load")
    publishing.check_follows(target, 0)
    sum(publishing._write_all(bus, target, 4, iter(rows_of([0, 1000], Random(1)))))
    bus.close()
    for number in (4, 5):
        publishing.check_follows(target, number)
    for number in (0, 3):
        with pytest.raises(UsageError, match=f"micro-batch 4 of 'load' is published already, and this query begins with {number}"):
            publishing.check_follows(target, number)


def test_a_task_that_was_thought_to_be_dead_writes_nothing_twice() -> None:
    """A task that paused between two chunks continues when another one has written them."""
    site = Site()
    slow = publishing._write_all(site.bus, site.target, 0, iter(rows_of([3000], Random(1))))
    assert next(slow) == 1000
    assert site.write(0, rows_of([3000], Random(2))) == 2000
    assert list(slow) == [0, 0]
    assert site.ids(0) == list(range(3000))


def test_a_chunk_that_is_too_large_for_a_message_is_several() -> None:
    block = pa.record_batch({"id": list(range(100)), "text": ["x" * 100] * 100})
    values = encoded(block, 3_000)
    assert len(values) > 3
    assert [n for value in values for n in arrow_block.decode(value).column("id").to_pylist()] == list(range(100))
    with pytest.raises(MessageTooLarge):
        encoded(block, 50)


@pytest.mark.parametrize(
    ("type_", "taken", "refused"),
    [
        (FieldType.INT32, ["tinyint", "smallint", "int"], ["bigint", "double", "string", "decimal(5,0)"]),
        (FieldType.INT64, ["int", "bigint"], ["double", "decimal(10,0)", "timestamp"]),
        (FieldType.DOUBLE, ["float", "double", "int"], ["bigint", "decimal(4,2)", "string"]),
        (FieldType.STRING, ["string", "varchar(10)", "char(3)"], ["int", "binary"]),
        (FieldType.DATE, ["date", "timestamp", "timestamp_ntz"], ["bigint", "string"]),
        (FieldType.MONEY, ["decimal(18,4)", "decimal(3,1)", "int"], ["decimal(18,5)", "decimal(20,4)", "bigint", "double"]),
        (FieldType.BLOB, ["binary"], ["string"]),
        (FieldType.DOUBLE_ARRAY, ["array<float>"], ["array<string>", "double"]),
    ],
)
def test_columns_are_taken_that_lose_nothing(type_: FieldType, taken: list[str], refused: list[str]) -> None:
    """SPEC A6."""
    field = Field("x", type_)
    assert [name for name in [*taken, *refused] if is_taken(field, name)] == taken


def test_names_of_columns() -> None:
    assert found_column("q/w", "ID", {"id": "int"}) == "id"
    with pytest.raises(UsageError, match="has no column ib"):
        found_column("q/w", "ib", {"id": "int"})
    schema = Schema((Field("Opcode", FieldType.STRING, KeyRole.KEY), Field("sequence", FieldType.INT64)))
    meta = Meta.for_schema(schema)
    assert (meta.opcode, meta.flags, meta.shard, meta.sequence, meta.output_id) == (
        "hs:opcode",
        "flags",
        "shard",
        "hs:sequence",
        "output_id",
    )


def test_places_mean_the_same_in_every_process_or_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="in one process only"):
        checked_bus("memory://here")
    with pytest.raises(UsageError, match=f"no bus is at sqlite:///{tmp_path}/bus.db"):
        checked_bus("sqlite:///bus.db")
    assert not (tmp_path / "bus.db").exists()
    url = f"sqlite:///{tmp_path}/bus.db"
    open_bus(url).close()
    assert checked_bus("sqlite:///bus.db") == checked_bus(url) == url
    with pytest.raises(UsageError, match="not a window"):
        WindowName.parse("q/w")

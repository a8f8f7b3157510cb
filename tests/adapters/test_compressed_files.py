"""Files in gzip and zstd give the events of their content, and a publisher continues in any of them (SPEC I5, E8)."""

from __future__ import annotations

import bz2
import gzip
import lzma
import threading
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.adapters.files.canonical import FileFormat, RowForm
from hotspare.adapters.files.publisher import PublishOptions, PublishProgress, publish_file
from hotspare.adapters.files.row_file import Growth
from hotspare.adapters.files.source_bytes import REWIND_BYTES_MAX, open_bytes
from hotspare.adapters.recording import RecordingProgress, ReplayFile, record_files
from hotspare.base.errors import UsageError
from hotspare.bus.contract import Partition
from hotspare.bus.memory import MemoryBus, MemoryBusClient
from hotspare.model.types import Field, FieldType, KeyRole, Schema

SCHEMA = Schema((Field("id", FieldType.INT64, KeyRole.KEY), Field("text", FieldType.STRING)))
TOPIC = Partition("t")
ROWS = [b'i,n,%d,"%s"' % (number, b"x\n" * (number % 3)) for number in range(60)]
TEXT = b"\n".join(ROWS) + b"\n"


def zstd(data: bytes, level: int = 3) -> bytes:
    return pa.Codec("zstd", level).compress(data, asbytes=True)


PACKED = {".gz": gzip.compress, ".zst": zstd}


def new_bus() -> MemoryBusClient:
    bus = MemoryBus().client("c")
    bus.create_topic(TOPIC.topic)
    return bus


def publish(bus: MemoryBusClient, path: Path, form: RowForm | None = None, **options: object) -> PublishProgress:
    made = PublishOptions(**{"form": form or RowForm(schema=SCHEMA), "source_name": "s", "block_rows": 1} | options)  # type: ignore[arg-type]
    return publish_file(bus, TOPIC, path, made, threading.Event())


def published(bus: MemoryBusClient) -> list[bytes]:
    return [message.value for message in bus.read(TOPIC, 0, messages_max=10_000, bytes_max=1 << 26)]


@pytest.mark.parametrize(("suffix", "pack"), PACKED.items())
def test_the_rows_are_those_of_the_plain_file(suffix: str, pack: Callable[[bytes], bytes], tmp_path: Path) -> None:
    """Also for several concatenated compressed parts, as appending makes them, and for an empty file."""
    for name, data in (("whole", pack(TEXT)), ("parts", pack(TEXT[:50]) + pack(TEXT[50:])), ("UPPER", pack(TEXT))):
        path, bus = tmp_path / f"{name}.csv{suffix.upper() if name.isupper() else suffix}", new_bus()
        path.write_bytes(data)
        assert publish(bus, path).bytes_published == len(TEXT)
        assert published(bus) == ROWS
    (tmp_path / f"empty{suffix}").write_bytes(pack(b""))
    assert publish(new_bus(), tmp_path / f"empty{suffix}").events == 0


@pytest.mark.parametrize(("suffix", "pack"), PACKED.items())
@given(limits=st.lists(st.integers(1, 20), max_size=8), levels=st.lists(st.integers(1, 9), min_size=9, max_size=9))
def test_a_publisher_goes_on_behind_its_last_row(
    suffix: str, pack: Callable[..., bytes], limits: list[int], levels: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The file may be compressed otherwise meanwhile, or no more: only its content counts."""
    folder, bus, total = tmp_path_factory.mktemp("f"), new_bus(), 0
    (folder / "plain").write_bytes(TEXT)
    for limit, level in zip(limits, levels, strict=False):
        total += limit
        path = folder / f"in{suffix}"
        path.write_bytes(pack(TEXT, level))
        publish(bus, path if level % 3 else folder / "plain", events_max=total)
        assert published(bus) == ROWS[:total]
    publish(bus, folder / f"in{suffix}" if limits else folder / "plain")
    assert published(bus) == ROWS


def test_frames_that_are_skipped_stand_anywhere_in_zstd(tmp_path: Path) -> None:
    """Programs that compress in several threads write skippable frames."""
    path, bus, skipped = tmp_path / "in.csv.zst", new_bus(), b"\x50\x2a\x4d\x18\x04\0\0\0size"
    path.write_bytes(skipped + zstd(TEXT[:50]) + skipped + zstd(TEXT[50:]) + skipped)
    publish(bus, path)
    assert published(bus) == ROWS


def test_a_file_is_repeated_as_a_plain_one(tmp_path: Path) -> None:
    path, bus = tmp_path / "in.gz", new_bus()
    path.write_bytes(gzip.compress(TEXT))
    for limit in (10, 70, 0):
        publish(bus, path, repeats=2, events_max=limit)
    assert published(bus) == ROWS * 3


def test_another_file_under_the_position_is_noticed(tmp_path: Path) -> None:
    path, bus = tmp_path / "in.gz", new_bus()
    path.write_bytes(gzip.compress(TEXT))
    publish(bus, path, events_max=5)
    for other in (TEXT.replace(b"i,n,4,", b"i,n,5,"), TEXT[:20]):
        path.write_bytes(gzip.compress(other))
        with pytest.raises(UsageError, match="has changed since its rows were read"):
            publish(bus, path)


@pytest.mark.parametrize(("suffix", "pack"), PACKED.items())
def test_what_is_damaged_is_read_up_to_there_and_gone_on_with_when_it_is_whole(
    suffix: str, pack: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    rows = [b"i,n,%d,%d" % (number, number * 7_919 % 104_729) for number in range(200_000)]
    path, bus, data = tmp_path / f"in{suffix}", new_bus(), pack(b"\n".join(rows) + b"\n")
    path.write_bytes(data[: len(data) * 3 // 4])
    with pytest.raises(UsageError, match=f"file {path} cannot be decompressed"):
        publish(bus, path, block_rows=1000)
    before = b"\n".join(published(bus)).count(b"\n") + 1
    assert 1000 < before < len(rows)
    path.write_bytes(data)
    publish(bus, path, block_rows=1000)
    assert b"\n".join(published(bus)).split(b"\n") == rows


def test_other_formats_and_replay(tmp_path: Path) -> None:
    json_file, csv_file = tmp_path / "in.json.gz", tmp_path / "in.csv.zst"
    json_file.write_bytes(gzip.compress(b'{"id": 1, "text": {"a": 1}}\n'))
    csv_file.write_bytes(zstd(TEXT))
    bus = new_bus()
    publish(bus, json_file, RowForm(schema=SCHEMA, format=FileFormat.JSON))
    assert published(bus) == [b'{"id": 1, "text": {"a": 1}}']
    progress = RecordingProgress()
    batch, _ = record_files([ReplayFile(0, csv_file, SCHEMA, PublishOptions(form=RowForm(schema=SCHEMA)))], 1, 10**9, progress)
    assert batch.column("value").to_pylist()[:-1] == ROWS
    assert (progress.bytes_read, progress.bytes_total) == (len(TEXT), 0)


def test_binary_blocks(tmp_path: Path) -> None:
    sink = pa.BufferOutputStream()
    for first in (0, 3):
        block = pa.RecordBatch.from_pydict({"id": pa.array(range(first, first + 3)), "text": ["a", None, "c"]})
        with pa.ipc.new_stream(sink, block.schema) as writer:
            writer.write_batch(block)
    path, bus = tmp_path / "in.arrow.gz", new_bus()
    path.write_bytes(gzip.compress(sink.getvalue()))
    publish(bus, path, RowForm(schema=SCHEMA, format=FileFormat.BINARY))
    assert published(bus) == [b"I,N,0,a", b"I,N,1,", b"I,N,2,c", b"I,N,3,a", b"I,N,4,", b"I,N,5,c"]


@pytest.mark.parametrize(("suffix", "codec"), [(".gz", "gzip"), (".zst", "zstd")])
def test_a_name_that_does_not_say_it_is_named(suffix: str, codec: str, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_bytes(PACKED[suffix](TEXT))
    with pytest.raises(UsageError, match=f"in.csv is compressed by {codec}, but has no suffix for it") as told:
        publish(new_bus(), tmp_path / "in.csv")
    assert told.value.hint == f"rename it to in.csv{suffix}"
    (tmp_path / f"in{suffix}").write_bytes(TEXT)
    with pytest.raises(UsageError, match=f"in{suffix} is not compressed by {codec}"):
        publish(new_bus(), tmp_path / f"in{suffix}")


def test_a_compressed_file_does_not_grow(tmp_path: Path) -> None:
    (tmp_path / "in.gz").write_bytes(gzip.compress(TEXT))
    with pytest.raises(UsageError, match="is compressed: a growing file must not be"):
        publish(new_bus(), tmp_path / "in.gz", growth=Growth.GROWING)


def test_a_reader_can_go_back_any_way(tmp_path: Path) -> None:
    """Beyond the bytes that are kept, the file is decompressed again."""
    data = b"".join(b"%07d\n" % number for number in range((2 * REWIND_BYTES_MAX + (1 << 20)) // 8))
    (tmp_path / "in.zst").write_bytes(zstd(data, 1))
    source = open_bytes(tmp_path / "in.zst")
    try:
        assert source.size_or_zero() == 0
        for offset in (0, 8, len(data) - 8, len(data) - REWIND_BYTES_MAX + 8, 16, len(data) - 16, len(data), 0):
            assert source.read_at(8, offset) == data[offset : offset + 8]
        assert (source.size(), source.size_or_zero()) == (len(data), len(data))
    finally:
        source.close()


@pytest.mark.parametrize(("name", "pack"), [("bzip2", bz2.compress), ("xz", lzma.compress), ("zip", lambda text: b"PK\3\4" + text)])
def test_what_compresses_otherwise_is_refused_by_name(name: str, pack: Callable[[bytes], bytes], tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_bytes(pack(TEXT))
    with pytest.raises(UsageError, match=f"is compressed by {name}, which is not supported") as told:
        publish(new_bus(), tmp_path / "in.csv")
    assert told.value.hint == "compress it by gzip or zstd, or not at all"

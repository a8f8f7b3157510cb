"""The publisher and the decoder agree on rows, and a subscriber's file can be published again (SPEC 5.2, I14)."""

from __future__ import annotations

import tempfile
import threading
from pathlib import Path

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from hotspare.adapters.changelog_reading import RowChoice, UpdateBlocks
from hotspare.adapters.files.cutters import RowCutter
from hotspare.adapters.files.publisher import PublishOptions, publish_file
from hotspare.bus.contract import Partition
from hotspare.bus.memory import MemoryBus
from hotspare.formats.csv.decode import decode_rows
from hotspare.formats.csv.rows import CsvStyle, rows_to_csv
from hotspare.model.types import Field, FieldType, KeyRole, Schema
from tests.adapters.outputs import SCHEMA, UB, D, I, N, Row, block

STRINGS = Schema((Field("a", FieldType.STRING, KeyRole.KEY), Field("b", FieldType.STRING)))
pieces = [b"a", b",", b'"', b"\n", b"\\", b" ", b"\r\n", b'i,n,"', b'",x\n', b"i,n,1,2\n", b'""', b'i,n,"x\ny",z\n', b"\xff"]


def decoded(messages: list[bytes]) -> tuple[list[dict[str, object]], int]:
    """Returns the values of all good rows in order, and the number of bad rows."""
    events, bad = decode_rows(pa.array(messages, pa.binary()), STRINGS)
    order = sorted(
        (int(m), int(i), tuple(column[place].as_py() for column in rows.columns))
        for rows in events
        for place, (m, i) in enumerate(zip(rows.message, rows.index, strict=True))
    )
    return [dict(zip(STRINGS.names, values, strict=True)) for _, _, values in order], len(bad)


@given(data=st.lists(st.sampled_from(pieces), max_size=25).map(b"".join), rows_per_message=st.integers(1, 4))
def test_rows_as_published_decode_as_the_rows_of_the_file(data: bytes, rows_per_message: int) -> None:
    """The events do not depend on the rows per message, and each row of the file gives one event or bad row."""
    cutter = RowCutter(0)
    rows = [row.text for row in [*cutter.feed(data), *cutter.finish()] if row.text.strip()]
    alone = decoded(rows)
    if b"\xff" not in data:
        assert len(alone[0]) + alone[1] == len(rows)
    assert published(data, rows_per_message) == alone


def test_no_row_vanishes_between_publisher_and_engine() -> None:
    """Two backslashes before a comma end the field for both, so the quote behind it opens a field for both."""
    data = b'i,n,C:\\\\,"a\ni,n,x,b"\ni,n,y,c\n'
    rows = [{"a": "C:\\\\", "b": "a\ni,n,x,b"}, {"a": "y", "b": "c"}]
    for rows_per_message in (1, 256):
        assert published(data, rows_per_message) == (rows, 0)


def published(data: bytes, rows_per_message: int) -> tuple[list[dict[str, object]], int]:
    bus = MemoryBus().client()
    bus.create_topic("t")
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        publish_file(bus, Partition("t"), Path(file.name), PublishOptions(block_rows=rows_per_message), threading.Event())
    return decoded([m.value for m in bus.read(Partition("t"), 0, messages_max=1000, bytes_max=1 << 20)])


@given(st.lists(st.tuples(st.integers(1, 3), st.floats(allow_nan=False) | st.none()), max_size=20), st.sampled_from(CsvStyle))
def test_i14_a_collapsed_output_can_be_published_again(steps: list[tuple[int, float | None]], style: CsvStyle) -> None:
    held: dict[int, float | None] = {}
    rows: list[Row] = []
    for key, value in steps:
        rows += [(UB, N, key, value), (D, N, key, held[key])] if key in held else [(I, N, key, value)]
        held[key] = value
    collapsed = RowChoice(updates=UpdateBlocks.COLLAPSED).select_rows(block(rows, 1), update_open=0)
    lines = rows_to_csv(collapsed, style).splitlines()
    events, bad = decode_rows(pa.array(lines, pa.binary()), SCHEMA)
    assert not len(bad)
    assert sum(len(each.message) for each in events) == len(steps)

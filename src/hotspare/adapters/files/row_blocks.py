"""Cuts the rows of a source into messages, each for the partition that its rows belong in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from hotspare.adapters.failover.spread_source import Piece
from hotspare.adapters.files.row_routing import RowRouting
from hotspare.bus.contract import Partition
from hotspare.formats.csv.quoting import begin_open
from hotspare.formats.utf8 import is_utf8
from hotspare.rows.batch import MessageFormat

BLOCK_BYTES_MAX = 4 << 20
"""Of a message with several rows: half of what the topics take that hotspare makes."""


def topic_partitions(partition: Partition, routing: RowRouting | None) -> Sequence[Partition]:
    """Those of the topic, where rows are routed, else the one."""
    return [partition] if routing is None else [Partition(partition.topic, number) for number in range(routing.count)]


def pieces(
    rows: Sequence[bytes],
    ends: Sequence[int],
    routing: RowRouting | None,
    lacks: Callable[[int, int], bool],
    rows_max: int,
    message_format: MessageFormat = MessageFormat.CSV,
) -> list[list[Piece]]:
    """Per partition the messages of those rows that belong there and that it lacks, by its number and their end."""
    belongs = np.zeros(len(rows), np.int64) if routing is None else routing.partitions(rows, message_format)
    found = []
    for number in range(1 if routing is None else routing.count):
        mine = [i for i in np.flatnonzero(belongs == number).tolist() if lacks(number, ends[i])]
        texts = [rows[i] for i in mine]
        cuts = list(_blocks(texts, rows_max, message_format))
        found.append([Piece(b"\n".join(texts[each]), ends[mine[each.stop - 1]], each.stop - each.start) for each in cuts])
    return found


def _blocks(rows: Sequence[bytes], rows_max: int, message_format: MessageFormat) -> Iterator[slice]:
    """Rows per message, of BLOCK_BYTES_MAX at most if it is not one row. Those that could harm their neighbours stand alone."""
    begin, size = 0, 0
    for index, is_alone in enumerate(_alone(rows, message_format)):
        if begin < index and (is_alone or size + len(rows[index]) > BLOCK_BYTES_MAX):
            yield slice(begin, index)
            begin, size = index, 0
        size += len(rows[index])
        if is_alone or index + 1 - begin == rows_max:
            yield slice(begin, index + 1)
            begin, size = index + 1, 0
    if begin < len(rows):
        yield slice(begin, len(rows))


def _alone(rows: Sequence[bytes], message_format: MessageFormat) -> Iterable[bool]:
    """CSV with an open quote: rows that follow it in a message could close it. JSON that is no object in one line of UTF-8: a
    message with such a text in it has no lines. Avro and Arrow: each is a message."""
    if message_format is MessageFormat.CSV:
        return begin_open(rows)
    return [message_format is not MessageFormat.JSON or not _is_object_line(row) for row in rows]


def _is_object_line(row: bytes) -> bool:
    text = row.strip()
    return text.startswith(b"{") and text.endswith(b"}") and b"\n" not in text and is_utf8(text)

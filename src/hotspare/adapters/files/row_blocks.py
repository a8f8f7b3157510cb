"""Cuts the rows of a source into messages, each for the partition that its rows belong in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from hotspare.adapters.failover.spread_source import Piece
from hotspare.adapters.files.row_routing import RowRouting
from hotspare.bus.contract import Partition
from hotspare.formats.csv.split import begin_open
from hotspare.formats.utf8 import is_utf8
from hotspare.rows.batch import MessageFormat

BLOCK_BYTES_MAX = 4 << 20
"""Limit on a message with several rows: half of the limit of the topics that hotspare creates."""


def topic_partitions(partition: Partition, routing: RowRouting | None) -> Sequence[Partition]:
    """Returns all partitions of the topic if rows are routed, else `partition` alone."""
    return [partition] if routing is None else [Partition(partition.topic, number) for number in range(routing.count)]


def build_pieces(
    rows: Sequence[bytes],
    ends: Sequence[int],
    routing: RowRouting | None,
    lacks: Callable[[int, int], bool],
    rows_max: int,
    message_format: MessageFormat = MessageFormat.CSV,
) -> list[list[Piece]]:
    """Returns, per partition, the messages of the rows that belong there and are not written yet.

    `ends` holds the position after each row; `lacks(number, end)` is true if partition `number` lacks the row. A message has at
    most `rows_max` rows."""
    belongs = np.zeros(len(rows), np.int64) if routing is None else routing.partitions(rows, message_format)
    found = []
    for number in range(1 if routing is None else routing.count):
        mine = [i for i in np.flatnonzero(belongs == number).tolist() if lacks(number, ends[i])]
        texts = [rows[i] for i in mine]
        cuts = list(_blocks(texts, rows_max, message_format))
        found.append([Piece(b"\n".join(texts[each]), ends[mine[each.stop - 1]], each.stop - each.start) for each in cuts])
    return found


def _blocks(rows: Sequence[bytes], rows_max: int, message_format: MessageFormat) -> Iterator[slice]:
    """Yields the slice of `rows` of each message: at most `rows_max` rows, and at most BLOCK_BYTES_MAX unless it is one row. A row
    that could harm its neighbors is alone."""
    begin, size = 0, 0
    for index, is_alone in enumerate(_must_be_alone(rows, message_format)):
        if begin < index and (is_alone or size + len(rows[index]) > BLOCK_BYTES_MAX):
            yield slice(begin, index)
            begin, size = index, 0
        size += len(rows[index])
        if is_alone or index + 1 - begin == rows_max:
            yield slice(begin, index + 1)
            begin, size = index + 1, 0
    if begin < len(rows):
        yield slice(begin, len(rows))


def _must_be_alone(rows: Sequence[bytes], message_format: MessageFormat) -> Iterable[bool]:
    """Returns, for each row, whether it must be alone in its message.

    These are: in CSV a row with an open quote, which later rows of a message could close; in JSON a row that is not an object on
    one line of UTF-8, since a message with it could not be cut into lines; in Avro and Arrow every row."""
    if message_format is MessageFormat.CSV:
        return begin_open(rows)
    return [message_format is not MessageFormat.JSON or not _is_object_line(row) for row in rows]


def _is_object_line(row: bytes) -> bool:
    text = row.strip()
    return text.startswith(b"{") and text.endswith(b"}") and b"\n" not in text and is_utf8(text)

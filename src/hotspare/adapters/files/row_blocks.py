"""Cuts the rows of a source into messages, each for the partition that its rows belong in."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from hotspare.adapters.failover.spread_source import Piece
from hotspare.adapters.files.row_routing import RowRouting
from hotspare.bus.contract import Partition
from hotspare.engine.codec.csv.quoting import begin_open
from hotspare.engine.rows.batch import MessageFormat


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
    belongs = np.zeros(len(rows), np.int64) if routing is None else routing.partitions(rows)
    found = []
    for number in range(1 if routing is None else routing.count):
        mine = [i for i in np.flatnonzero(belongs == number).tolist() if lacks(number, ends[i])]
        texts = [rows[i] for i in mine]
        cuts = list(_blocks(texts, rows_max, message_format))
        found.append([Piece(b"\n".join(texts[each]), ends[mine[each.stop - 1]], each.stop - each.start) for each in cuts])
    return found


def _blocks(rows: Sequence[bytes], rows_max: int, message_format: MessageFormat) -> Iterator[slice]:
    """Rows per message. One with an open quote stands alone: rows that follow it in a message could close it."""
    begin = 0
    for index, is_alone in enumerate(begin_open(rows) if message_format is MessageFormat.CSV else [False] * len(rows)):
        if is_alone:
            if begin < index:
                yield slice(begin, index)
            yield slice(index, index + 1)
            begin = index + 1
        elif index + 1 - begin == rows_max:
            yield slice(begin, index + 1)
            begin = index + 1
    if begin < len(rows):
        yield slice(begin, len(rows))

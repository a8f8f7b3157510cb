"""Inputs for the law Twin of the loops that read CSV and make columns of fields (see `kernel_inputs`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from hotspare.formats import loops
from hotspare.formats.csv import loops as csv
from hotspare.formats.csv.decode import WORD_NUMBERS
from hotspare.formats.csv.split import Messages, TextLayout, byte_kinds, split

Args = tuple[Any, ...]

TEXTS: list[list[bytes | None]] = [
    [b"i,n,1,-2.5e3,a", b"", None, b"\n \t\r\nU,rp, -7 ,.5,\n", b'\xef\xbb\xbfsd,p,+1,1e400,"a""b"\r\r\n'],
    [b'i,n,"1" ,2,"a\nb\\"c"\ni,n,2,2,"open\nx,y"z\ni,n,1,2,"a"b', b'"\n"\n"\n"\n' * 3],
    [
        b"i,n,1,2,a\\,b\\\\\\x\\",
        b"i,n,1,2,\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80",
        b"i,n,1,2,\xc3",
        b"\xed\xa0\x80",
        b"\xe2\x82x",
        b"\xff",
    ],
    [
        b'"i","n",99999999999,1234567890123456789,"\r"',
        b"q,?,-2147483649,0.1e-9,  ",
        b"insert,np,123456789012345678,1.2.3,-",
        b",,,,",
    ],
    [b"D,N,2147483647,1e23,a\nI,R,-,9007199254740993,b\nI,R,x,1e,c\nI,R,0x1,-0,d\nI,safedelete,1,1E+2,e"],
]


def split_rows() -> Iterator[Args]:
    for texts in TEXTS:
        for columns, limit, purpose in ((5, 1 << 20, csv.DECODING), (2, 4, csv.DECODING), (0, 9, csv.CUTTING)):
            messages = Messages.from_values(pa.array(texts, pa.binary()))
            text = csv.Text(messages.data, messages.bounds, byte_kinds(","))
            rows, fields = csv.FoundRows(np.zeros(99, np.int64), *np.zeros((4, 99), np.int32)), np.zeros((2, 999), np.int32)
            filled = loops.Fields(*fields, np.zeros(999, np.uint8))
            yield text, columns, limit, purpose, rows, filled, np.zeros(csv.STATE_WIDTH, np.int64)


def _values(texts: Sequence[bytes | None], columns: int) -> tuple[loops.FieldTexts, int]:
    rows, _ = split(Messages.from_values(pa.array(texts, pa.binary())), TextLayout(columns))
    return rows.values, len(rows)


def read_cells() -> Iterator[Args]:
    for texts in TEXTS:
        for number in (loops.NARROW, loops.WHOLE):
            values, rows = _values(texts, 5)
            if rows:
                kinds = np.array([loops.WORDS, loops.WORDS + 1, number, loops.DOUBLES, loops.TEXTS], np.uint8)
                memory = np.zeros(5 * rows, np.int64)
                views = memory, memory.view(np.float64), memory.view(np.int32), memory.view(np.uint8)
                rest = np.full(5 * rows, 255, np.uint8), np.zeros(999, np.uint8), np.zeros(5 * rows, np.int32)
                cells = loops.Cells(*views, *rest, np.zeros((5, loops.ENDS_WIDTH), np.int64))
                yield values, kinds, WORD_NUMBERS, rows, cells


def gather_values() -> Iterator[Args]:
    for texts in TEXTS:
        values, rows = _values(texts, 5)
        numbers = np.arange(4, 5 * rows, 5)
        yield values, numbers, np.zeros(len(numbers) + 1, np.int32), np.zeros(999, np.uint8)

"""Inputs for the law Twin of the loops that read JSON (see `kernel_inputs`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from hotspare.formats.json import decode
from hotspare.formats.json.loops import events
from tests.formats.every_type import EVERY_TYPE

Args = tuple[Any, ...]

_MESSAGES = [
    [b'{"id":1,"s":"a\\u00e9\\ud83d\\ude00\\n","x":-1.5e3,"n":null,"b":"AA=="}', b'{"id":2} {"s":[1,{"a":"\xc3\xa9"}]}'],
    [b'[{"id":1},\n{"few":[1, null,"2"],"real":[]}]', b'{"few":["a;b"],"id":true,"id":1}', b'{"s":"\\ud800","opcode":1}'],
    [b'{"opcode":"u","event":{"id":3,"flags":"p"}}', b'{"event":5}', b'{"event":{},"event":{}}', b'{"i\\u0064":7,"z":-Infinity}'],
    [
        b'\xef\xbb\xbf null true,-1 "a\\"b" NaN Infinity',
        b'{"id":1}} x\n{"a":1,\n{"id":2}',
        b'{"s":"a\nb"}',
        b'{"a" 1}\n{"s":"\xff"}',
    ],
    [b'{"a":[{"b":]}}', b'{"a":{"b":[1,2}', b'{"x":1,}', b'[{"x":[1,]}', b'{"a":"\\x"}\n{"a":"\\u12"}\n{"a":"\t"}', b"<a/>"],
    [b'{"a":' * 101 + b'"', b'{"a":' + b"[" * 99 + b"]" * 99 + b"}", b'1 {"id":1} 2x', b'{"id":01}', b'{"a":{"b":"c"},"d"}'],
]
"""Messages with every form of row, and every error."""


def read_messages() -> Iterator[Args]:
    for messages in _MESSAGES:
        yield decode._Reading(pa.array(messages, pa.binary()), decode._plan(EVERY_TYPE)).arguments()


def fill_slots() -> Iterator[Args]:
    known = decode._plan(EVERY_TYPE).known
    yield (known._replace(slots=np.full(len(known.slots), events.UNKNOWN)),)

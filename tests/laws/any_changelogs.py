"""Random changelogs for the sources of any graph: mostly valid rows, and among them anything that may arrive from outside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import pyarrow as pa

from hotspare.rows.batch import MessageFormat
from tests.laws.any_graphs import SECOND, Window
from tests.raw_rows import RawRow, raw_of

TICK = -1
"""The topic of a tick for every topic."""
NUMBERS = ("1", "1", "2", "2", "3", "", "0", "-1", "9223372036854775807", "-9223372036854775808")
DOUBLES = (
    *(
        "1",
        "1",
        "2.5",
        "2.5",
        "0.1",
        "0.2",
        "0.7",
        "-3",
        "",
        "0.0",
        "-0.0",
        "NaN",
        "nan",
        "inf",
        "-inf",
        "1e308",
        "-1e308",
        "5e-324",
    ),
    *("1e-300", "3", "16777217", "1e16"),
)
TEXTS = ("a", "a", "b", "b", "abab", "abbaabab", "", '""', "é", '"x, y"', "7", "c" * 40)
TIMES = ("1000000", "2000000", "2500000", "4000000", "", "0", "-5000000", "9223372036854775807", "-9223372036854775808", "7000000")
OPCODES = ("I", "I", "I", "P", "P", "U", "D", "D", "SD")
FLAGS = ("N", "N", "N", "N", "P", "NP", "R")
GARBAGE = (
    *(b"", b"I", b"I,N", b"I,N,", b"X,N,1,1,1,a,1", b"I,Q,1,1,1,a,1", b"I,N,1,1,1,a", b"I,N,1,1,1,a,1,1,1", b"I,N,one,1,1,a,1"),
    *(b"\xff\xfe", b'I,N,1,1,1,"a,1', b"I,N,1,99999999999999999999,1,a,1", b"I,N,1,1,1e999,a,1", b"\x00", b",,,,,,"),
    *(b"UB,N,1,1,1,a,1", b"i,n,1,1,1,a,1", b"I,N,1,1.5,1,a,1", b"I,N,1,1,1,a\xed\xa0\x80,1", b" I , N ,1,1,1,a,1"),
)


@dataclass(frozen=True)
class Given:
    """A message: append time, topic or TICK, and its rows as text. No rows, and a topic: a tick of that topic alone."""

    time_us: int
    topic: int
    rows: tuple[bytes, ...] = ()

    @property
    def text(self) -> str:
        """The message in the form of a case, as far as that can express it."""
        where = "tick" if self.topic == TICK else f"w{self.topic}: " + " | ".join(row.decode(errors="replace") for row in self.rows)
        return f"at {self.time_us} us {where}"


_IDS = [2, 4, 4, 20]


def messages(random: Random, count: int) -> list[bytes]:
    """Returns `count` messages for any source window; most rows are valid for one that is insert-only."""
    wildness, ids = random.choice([0.0, 0.1, 0.5]), random.choice(_IDS)
    made = []
    for _ in range(count):
        opcodes = random.choice([("I",), OPCODES])
        made.append(b"\n".join(row for _ in range(random.randint(1, 5)) for row in _rows(random, opcodes, wildness, ids)))
    return made


def changelogs(random: Random, sources: Sequence[Window], messages_max: int = 30) -> list[Given]:
    """Returns messages for these source windows, in order of their topics. It ends with ticks after which no row waits in the
    merge."""
    script: list[Given] = []
    time_us, wildness = SECOND, random.choice([0.0, 0.1, 0.5])
    ids = random.choice(_IDS)
    steps = random.choice([[0, 1, 300_000], [300_000, 900_000, 2_600_000], [0, 900_000, 2_600_000, -400_000]])
    for _ in range(random.randint(2, messages_max)):
        time_us += random.choice(steps)
        if random.random() < 0.2:
            topic = TICK if random.random() < 0.8 else random.randrange(len(sources))
            script.append(Given(max(time_us, 0), topic))
            continue
        topic = random.randrange(len(sources))
        opcodes = ("I", "I", "I", "I", "I", "I", "I", "D") if sources[topic].get("opcodes") == "insert-only" else OPCODES
        rows = [row for _ in range(random.randint(1, 5)) for row in _rows(random, opcodes, wildness, ids)]
        script.append(Given(max(time_us, 0), topic, tuple(rows)))
    return [*script, Given(time_us + 5 * SECOND, TICK), Given(time_us + 9 * SECOND, TICK)]


def inserts(random: Random, wildness: float, ids: int) -> list[bytes]:
    """Returns the row of one event for an insert-only source; it may be invalid."""
    return _rows(random, ("I",), wildness, ids)


def _rows(random: Random, opcodes: Sequence[str], wildness: float, ids: int) -> list[bytes]:
    """Returns a row, or the two of an update block."""

    def is_wild(share: float = 1.0) -> bool:
        return random.random() < wildness * share

    def one(options: Sequence[str], tame: int) -> str:
        return random.choice(options if is_wild() else options[:tame])

    if is_wild(0.1):
        return [random.choice(GARBAGE)]
    key = "" if is_wild(0.2) else str(random.randint(1, ids))

    def values() -> str:
        return ",".join([key, one(NUMBERS, 6), one(DOUBLES, 8), one(TEXTS, 6), one(TIMES, 4)])

    if is_wild(0.05):
        return [f"UB,N,{values()}".encode(), f"D,N,{values()}".encode()]
    return [",".join([random.choice(opcodes), one(FLAGS, 5), values()]).encode()]


def raw_messages(script: Sequence[Given], topics: int) -> list[pa.RecordBatch]:
    """Returns a raw batch per message; a tick for all has a row for each topic."""
    offsets = [0] * topics
    batches = []
    for given in script:
        rows: list[RawRow] = []
        for topic in range(topics) if given.topic == TICK else [given.topic]:
            value = b"\n".join(given.rows)
            rows.append((topic, 0, offsets[topic], given.time_us, not given.rows, MessageFormat.CSV, value))
            offsets[topic] += 1
        batches.append(raw_of(rows))
    return batches

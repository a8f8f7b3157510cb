"""Processor time of decoding JSON messages: few rows and many, in each form that messages come in. Medians of the process.

python -m benchmarks.decode_cost [--rows 10 100 10000] [--seconds 0.5]
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from hotspare.formats.json.decode import decode_json
from hotspare.model.types import Field, FieldType, KeyRole, Schema

SCHEMA = Schema(
    (
        Field("id", FieldType.INT64, KeyRole.KEY),
        Field("name", FieldType.STRING),
        Field("price", FieldType.DOUBLE),
        Field("count", FieldType.INT32),
        Field("time", FieldType.STAMP),
    )
)
REPEATS_MIN = 5


def _written(rows: list[dict[str, Any]]) -> list[bytes]:
    return [json.dumps(row).encode() for row in rows]


def forms(count: int) -> Iterator[tuple[str, list[bytes]]]:
    """Yields the name of each form, and `count` rows in messages of this form."""
    chance = random.Random(1)
    rows = [
        {
            "id": i,
            "name": f"sensor-{i % 97}",
            "price": chance.randrange(10_000) / 100,
            "count": i,
            "time": 1_600_000_000_000_000 + i,
        }
        for i in range(count)
    ]
    yield "an object per message", _written(rows)
    yield "members in another order", _written([dict(reversed(row.items())) for row in rows])
    yield "objects in lines of one message", [b"\n".join(_written(rows))]
    yield "an array in one message", [json.dumps(rows).encode()]
    yield "strings with escapes", _written([{**row, "name": f'"{row["name"]}" \xe9'} for row in rows])
    yield "unknown members", _written([{"first": 5, **row, "last": ["x", None]} for row in rows])
    yield "opcode and flags", _written([{"opcode": "u", "flags": "n", **row} for row in rows])
    yield "opcode next to event", _written([{"opcode": "u", "event": row} for row in rows])
    yield "nulls", _written([{**row, "price": None, "name": None} for row in rows])
    yield "doubles of 17 digits", _written([{**row, "price": chance.random()} for row in rows])
    yield "each tenth row not JSON", [text[:-1] if i % 10 == 0 else text for i, text in enumerate(_written(rows))]
    yield (
        "each tenth row with a wrong value",
        _written([{**row, "count": "x"} if i % 10 == 0 else row for i, row in enumerate(rows)]),
    )


def median_us(run: Callable[[], object], seconds: float) -> float:
    """Returns the median processor time of a call in microseconds, over calls that take `seconds` together."""
    run()
    times: list[int] = []
    while len(times) < REPEATS_MIN or sum(times) < seconds * 1e9:
        begin = time.process_time_ns()
        run()
        times.append(time.process_time_ns() - begin)
    return statistics.median(times) / 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[10, 100, 10_000])
    parser.add_argument("--seconds", type=float, default=0.5)
    chosen = parser.parse_args()
    for count in chosen.rows:
        for name, messages in forms(count):
            values = pa.array(messages, pa.binary())
            spent = median_us(lambda values=values: decode_json(values, SCHEMA), chosen.seconds)  # type: ignore[misc]
            print(f"{count:7} rows, {name:35} {spent:10.1f} us, {spent * 1e3 / count:8.0f} ns per row", flush=True)


if __name__ == "__main__":
    main()

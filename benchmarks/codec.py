"""How fast messages become typed events: CSV and JSON, one core, in events per second of processor time.

The events are those of the reference project, about 75 bytes each as JSON. Medians; processor time, so that other load on the
machine matters less. `pyarrow.json alone` is Arrow's parser on the joined bytes: the most that JSON can reach here.

A second table is of CSV events with two texts each that are written in every way that CSV knows: nanoseconds per event, the best of
all runs, and in brackets how many times as much as without quotes that is per event, and per byte. They come in messages of one
event, of `--block`, all in one message, and one event alone.

    python -m benchmarks.codec [--events 400000] [--block 1000] [--repeat 5] [--table all|rates|texts]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.json as pj

from hotspare.formats.csv.decode import decode_rows
from hotspare.formats.json.decode import decode_json
from hotspare.model.types import Field, FieldType, KeyRole, Schema

SCHEMA = Schema((Field("index_esp", FieldType.INT64, KeyRole.KEY), Field("user", FieldType.DOUBLE), Field("idl", FieldType.DOUBLE)))


def json_rows(count: int) -> list[bytes]:
    return [
        b'{"opcode":"i","index_esp":%d,"user":%d.5,"idl":%d.25,"at":16004%08d}' % (i, i % 9973, i % 777, i) for i in range(count)
    ]


def csv_rows(count: int) -> list[bytes]:
    return [b"i,n,%d,%d.5,%d.25" % (i, i % 9973, i % 777) for i in range(count)]


def blocks(rows: list[bytes], size: int, form: str) -> pa.Array:
    pieces = [rows[at : at + size] for at in range(0, len(rows), size)]
    if form == "array":
        return pa.array([b"[" + b",".join(piece) + b"]" for piece in pieces], pa.binary())
    return pa.array([b"\n".join(piece) for piece in pieces], pa.binary())


def parser_alone(rows: list[bytes]) -> Callable[[], Any]:
    raw = b"\n".join(rows)
    types = pa.schema([("opcode", pa.string()), ("index_esp", pa.int64()), ("user", pa.float64()), ("idl", pa.float64())])
    read = pj.ReadOptions(use_threads=False, block_size=len(raw) + 1)
    parse = pj.ParseOptions(explicit_schema=types, unexpected_field_behavior="ignore")
    return lambda: pj.read_json(pa.BufferReader(raw), read_options=read, parse_options=parse)


def arms(events: int, block: int) -> dict[str, Callable[[], Any]]:
    rows, texts = json_rows(events), csv_rows(events)
    single, lines, arrays = (blocks(rows, 1, "lines"), blocks(rows, block, "lines"), blocks(rows, block, "array"))
    csv = blocks(texts, 1, "lines")
    broken = list(rows)
    for at in np.random.default_rng(1).integers(0, events, events // 1000):
        broken[at] = b'{"index_esp":"x"}'
    odd = blocks(broken, 1, "lines")
    return {
        "pyarrow.json alone": parser_alone(rows),
        "json, one per message": lambda: decode_json(single, SCHEMA),
        f"json, {block} lines per message": lambda: decode_json(lines, SCHEMA),
        f"json, array of {block} per message": lambda: decode_json(arrays, SCHEMA),
        "json, one per message, 0.1 % bad": lambda: decode_json(odd, SCHEMA),
        "csv, one per message": lambda: decode_rows(csv, SCHEMA),
    }


TEXTS_SCHEMA = Schema(
    (
        Field("id", FieldType.INT64, KeyRole.KEY),
        Field("x", FieldType.DOUBLE),
        Field("s", FieldType.STRING),
        Field("t", FieldType.STRING),
    )
)


def _row(first: str, second: str = "", end: str = "") -> str:
    return f"i,n,#,#.5,{first},{second or first}{end}"


ROWS = {
    "plain": _row("text number #"),
    "quoted": _row('"text number #"'),
    "delimiters in quotes": _row('"text, number #"'),
    "doubled quotes": _row('"text ""number"" #"'),
    "escaped quotes": _row('"text \\"number\\" #"'),
    "escaped delimiters": _row("text\\, number #"),
    "line feeds in quotes": _row('"text\nnumber #"'),
    "CRLF": _row("text number #", end="\r"),
    "CRLF, also in quotes": _row('"text\r\nnumber #"', end="\r"),
    "blanks around quotes": _row(' "text number #" '),
    "quotes in bare texts": _row('5" text number #'),
    "quotes in both": _row('"text number #"', '5" text number #'),
    "non-ASCII": _row("täxt nümber #"),
    "byte order mark": "\ufeff" + _row("text number #"),
    "all mixed": _row('"täxt ""number"",\r\n\\"#\\""', ' "nümber\n\U0001f600 #" ', end="\r"),
}
"""Rows of TEXTS_SCHEMA; # is the number of the event."""


def best_seconds(run: Callable[[], Any], repeat: int, calls: int) -> float:
    """Processor time of one call."""
    best = float("inf")
    for _ in range(repeat):
        begin = time.process_time()
        for _ in range(calls):
            run()
        best = min(best, (time.process_time() - begin) / calls)
    return best


def print_texts(events: int, block: int, repeat: int) -> None:
    forms = {"one per message": 1, f"{block} per message": block, "one message": events, "one event": 0}
    print(f"{'csv, ns per event (times plain)':32}" + "".join(f"{form:>24}" for form in forms))
    plain: dict[str, tuple[float, int]] = {}
    for row in ROWS.values():  # the allocator keeps what it was asked for once
        decode_rows(blocks([row.replace("#", str(i)).encode() for i in range(events)], 1, "lines"), TEXTS_SCHEMA)
    for name, row in ROWS.items():
        rows = [row.replace("#", str(i)).encode() for i in range(events)]
        line = f"{name:32}"
        for form, size in forms.items():
            given = rows if size else rows[:1]
            values, calls = blocks(given, size or 1, "lines"), 1 if size else 100
            cost = best_seconds(partial(decode_rows, values, TEXTS_SCHEMA), repeat, calls) / len(given) * 1e9
            size = len(rows[0])
            plain_cost, plain_size = plain.setdefault(form, (cost, size))
            ratio = cost / plain_cost
            line += f"{cost:11,.0f} ({ratio:5.2f}, {ratio * plain_size / size:4.2f})"
        print(line, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=400_000)
    parser.add_argument("--block", type=int, default=1000)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--table", choices=["all", "rates", "texts"], default="all")
    options = parser.parse_args()
    pa.set_cpu_count(1)
    if options.table != "texts":
        print_rates(options)
    if options.table != "rates":
        print_texts(options.events, options.block, options.repeat)


def print_rates(options: argparse.Namespace) -> None:
    print(
        f"{sum(map(len, json_rows(1000))) / 1000:.0f} bytes per event as JSON, {options.events} events, median of {options.repeat}"
    )
    for name, run in arms(options.events, options.block).items():
        run()
        rates = []
        for _ in range(options.repeat):
            begin = time.process_time()
            run()
            rates.append(options.events / (time.process_time() - begin))
        print(f"{name:40} {statistics.median(rates) / 1e6:6.2f} M events/s")


if __name__ == "__main__":
    main()

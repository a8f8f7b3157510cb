"""Does a head take one batch whose text columns pass 2 GiB, where the offsets of an Arrow array end? And what does that cost?

    python -m benchmarks.large_texts [--gib 2.5]

Blocks of Arrow, each of which stands for just under 64 MiB of text, are decoded as one raw batch and pass a source and a copy with
retention. Prints what came, how long it took and the most memory that the process had; exits with 1 where rows are missing or bad.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time

import pyarrow as pa
from benchmarks._messages import raw

from hotspare.flow.head.head import Head
from hotspare.flow.pipeline import Pipeline
from hotspare.flow.plan import compile_plan
from hotspare.formats import arrow_block
from hotspare.projects.load import load_text
from hotspare.rows.batch import MessageFormat, RowKind

TEXT_BYTES = 1 << 20
BLOCK_ROWS = 63
PROJECT = """
project: large
queries:
  cq:
    windows:
      notes: {type: source, index: empty, opcodes: insert-only, schema: "id*:int64,text:string"}
      newest: {type: copy, retention: {bycount_sliding: 3}, publish: true}
    edges: [notes -> newest]
"""


def block(number: int) -> bytes:
    """Rows that share one text, so that the messages themselves fit one array."""
    ids = range(number * BLOCK_ROWS, (number + 1) * BLOCK_ROWS)
    text = pa.DictionaryArray.from_arrays(pa.array([0] * BLOCK_ROWS, pa.int8()), pa.array([f"{number:09d}" * (TEXT_BYTES // 9)]))
    return arrow_block.encode(pa.RecordBatch.from_pydict({"id": pa.array(ids, pa.int64()), "text": text}))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gib", type=float, default=2.5, help="how much text one raw batch stands for")
    blocks = int(parser.parse_args().gib * (1 << 30) / (BLOCK_ROWS * TEXT_BYTES)) + 1
    plan = compile_plan(load_text(PROJECT).resolved)
    given = raw([block(number) for number in range(blocks)], MessageFormat.ARROW)
    begun = time.monotonic()
    decoded = Head.of(plan)(given)
    decoded_s = time.monotonic() - begun
    events = sum((batch.column("kind").to_numpy() == RowKind.EVENT).sum() for batch in decoded)
    pipeline = Pipeline.fresh(plan)
    made = sum(rows.num_rows for batch in decoded for part in pipeline.parts(batch) for rows in part.values())
    memory_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    expected = blocks * BLOCK_ROWS
    text_gib = expected * TEXT_BYTES / (1 << 30)
    print(
        f"text_gib {text_gib:.2f} batches {len(decoded)} events {events} of {expected} outputs {made} of {2 * expected - 3} "
        f"decoded_s {decoded_s:.1f} all_s {time.monotonic() - begun:.1f} memory_mb_max {memory_mb}"
    )
    return 0 if events == expected and made == 2 * expected - 3 else 1


if __name__ == "__main__":
    sys.exit(main())

"""Keys that are inserted and deleted, through every kind of window that keeps state: memory does not grow.

Each round inserts new keys, with texts of their own, and then deletes them, while time passes. Windows that evict by time or by
count, and those whose rows are deleted, hold the same after every round: snapshots do not grow.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hotspare.flow.head.head import Head
from hotspare.flow.pipeline import Pipeline
from hotspare.flow.plan import Plan, compile_plan
from hotspare.projects.load import load_text
from hotspare.rows.batch import MessageFormat
from tests.raw_rows import raw_of

pytestmark = pytest.mark.law

PROJECT = """
project: p
queries:
  q:
    windows:
      w0: {type: source, opcodes: any, schema: "id*:int64,x:int64,s:string"}
      w1: {type: source, index: empty, opcodes: insert-only, schema: "id*:int64,x:int64,s:string"}
      kept: {type: copy, publish: true}
      recent: {type: copy, retention: {bytime_sliding: 2 seconds}, publish: true}
      newest: {type: copy, retention: {bycount_sliding: 20}, publish: true}
      of_each: {type: copy, retention: {bycount_sliding: 2, by: [s, x]}, publish: true}
      high: {type: filter, condition: x > 1, publish: true}
      named: {type: compute, schema: "id*:int64,t:string", outputs: {t: "concat(s, '!')"}, publish: true}
      words:
        type: functional
        schema: "id*:int64,s:string"
        functions: {id: {functions: $id}}
        loops: [{name: all, regex: "[0-9]+", text: {functions: $s}, data: word, functions: {id: {functions: "product(2, $id)"},
                 s: {functions: $word}}}]
        publish: true
      all: {type: union, publish: true}
      groups: {type: aggregate, schema: "s*:string,n:int64,sum:int64,least:string,all:string", publish: true,
               outputs: {n: ESP_aCount(), sum: ESP_aSum(x), least: ESP_aMin(s), all: "ESP_aCat(x, ';')"}}
      joined: {type: join, kind: leftouter, conditions: {id: id}, outputs: {s: l_s, n: r_x}, publish: true}
      pairs: {type: join, kind: inner, conditions: {s: s}, outputs: {x: l_x}, publish: true}
      wide: {type: transpose, mode: wide, tag: s, tags: [a], values: [x], group_by: [id], clear_timeout: 2 seconds, publish: true}
      made: {type: lua, schema: "id*:int64,s:string", events: make, publish: true,
             code: "function make(data) return {s = data.s} end"}
      noted:
        type: python
        schema: "id*:int64,n:int64"
        events: note
        code: |
          there = {}

          def note(data, context):
              if context["opcode"] == "delete":
                  there.pop(data["id"], None)
              else:
                  there[data["id"]] = [data["s"]]
              return {"id": data["id"], "n": len(there)}
        state-bytes-max: 268435456
        publish: true
      gone: {type: remove-state, remove: [deletes], publish: true}
      gauge: {type: counter, count_interval: 1 second, publish: true}
      held: {type: copy, pulse: 1 second, publish: true}
      waiting:
        type: pattern
        index: empty
        schema: "id*:int64,x:int64"
        patterns:
          one:
            index: [s]
            events: {a: {source: w1}, b: {source: w1, condition: x < 0}}
            logic: fby{2 seconds}(a, b)
            outputs: {x: a.x}
        publish: true
      brief: {type: copy, retention: {bytime_jumping: 1 second}, publish: true}
    edges: [w0 -> kept, w0 -> recent, w0 -> newest, w0 -> of_each, w0 -> high, w0 -> named, w0 -> words, w0 -> all, w0 -> groups,
            w0 -> joined as left, kept -> joined as right, kept -> pairs as left, w0 -> pairs as right, w0 -> wide, w0 -> made,
            w0 -> held, w0 -> noted, recent -> gone, w0 -> gauge, w1 -> waiting, w1 -> brief]
"""
SECOND = 1_000_000
MESSAGE_ROWS = 1_000


def rounds(plan: Plan, pipeline: Pipeline, keys: int, count: int) -> Iterator[int]:
    """Yields the number of each round after it. `keys` is the number of keys in one."""
    head, offset = Head.from_plan(plan), 0
    for number in range(count):
        for opcode in "ID":
            for begin in range(number * keys, (number + 1) * keys, MESSAGE_ROWS):
                end = min(begin + MESSAGE_ROWS, (number + 1) * keys)
                rows = [f"{opcode},N,{key},{key % 7},key {key}" for key in range(begin, end)]
                time_us = (10 * number + 1 + 4 * (opcode == "D")) * SECOND
                both = [(topic, rows if topic == 0 or opcode == "I" else []) for topic in (0, 1)]
                values = [(topic, "\n".join(each).encode()) for topic, each in both]
                raw = [(topic, 0, offset, time_us, not value, MessageFormat.CSV, value) for topic, value in values]
                pipeline.feed(head.decode(raw_of(raw)))
                offset += 1
        for time_us in ((10 * number + 8) * SECOND, (10 * number + 9) * SECOND):
            pipeline.feed(head.decode(raw_of([(topic, 0, offset, time_us, True, MessageFormat.CSV, b"") for topic in (0, 1)])))
            offset += 1
        yield number


def state_bytes(pipeline: Pipeline) -> int:
    """Returns the size of a snapshot."""
    pipeline.collect_all_strings()
    frozen = pipeline.freeze()
    return len(frozen.header) + sum(len(page) for _, page in frozen.pages())


def test_state_does_not_grow_with_keys_that_went() -> None:
    plan = compile_plan(load_text(PROJECT).resolved)
    pipeline = Pipeline.fresh(plan)
    sizes = [state_bytes(pipeline) for _ in rounds(plan, pipeline, 1_500, 5)]
    assert max(sizes[2:]) <= 1.02 * sizes[1], sizes

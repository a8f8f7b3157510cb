"""Steps: rising positions, heartbeats, numbering, bad events."""

from __future__ import annotations

import pyarrow as pa
import pytest

from hotspare.base.errors import PositionOrder, StateError
from hotspare.base.step_size import STEP_ROWS_MAX
from hotspare.flow.head.head import Head
from hotspare.flow.pipeline import Pipeline, joined_parts
from hotspare.flow.plan import Plan, compile_plan
from hotspare.flow.project_state import OutputId
from hotspare.formats.csv.rows import CsvStyle, rows_to_csv
from hotspare.projects.load import load_text
from hotspare.rows.batch import BAD_STREAM, decoded_schema, output_schema
from tests.cases.case import Case, Message, raw_batches

PROJECT = """
project: p
queries:
  cq:
    windows:
      source: {type: source, opcodes: any, index: empty, schema: "id*:int64,x:double"}
      copied: {type: copy, retention: {bycount_sliding: 1}}
      passed: {type: copy, index: empty}
    edges: [source -> copied, source -> passed]
"""


@pytest.fixture(scope="module")
def plan() -> Plan:
    return compile_plan(load_text(PROJECT).resolved)


def decoded(plan: Plan, *messages: Message) -> pa.RecordBatch:
    return Head.from_plan(plan).decode(pa.concat_batches(raw_batches(Case(plan, messages, ()))))


def test_numbering(plan: Plan) -> None:
    """Sequences 1, 2, 3 per stream; ordinals per position; the digest of the last output is the stream's (SPEC D10, D17)."""
    rows = decoded(
        plan, Message(5, "source", "I,N,1,1 | I,N,2,2"), Message(6, "source", "I,N,x,1"), Message(7, "source", "I,N,3,3")
    )
    pipeline = Pipeline.fresh(plan)
    outputs = pipeline.feed(rows)
    assert sorted(outputs) == [BAD_STREAM, "cq/copied", "cq/passed"]
    copied = outputs["cq/copied"]
    assert copied.schema == output_schema(plan.stream_schemas["cq/copied"])
    ids = zip(*(copied.column(f"hs:{name}").to_pylist() for name in ("sequence", "offset", "index", "ordinal")), strict=True)
    assert list(ids) == [(1, 0, 0, 0), (2, 0, 1, 0), (3, 0, 1, 1), (4, 2, 0, 0), (5, 2, 0, 1)]
    assert pipeline.sequences == {"cq/copied": 5, "cq/passed": 3, BAD_STREAM: 1}
    assert pipeline.last_ids["cq/copied"] == OutputId(0, 0, 2, 0, 1)
    assert pipeline.digests["cq/copied"] == copied.column("hs:digest")[-1].as_py()
    assert pipeline.next_offsets == {(0, 0): 3}
    assert pipeline.time_us == 7


def test_equal_strings_with_other_codes_have_equal_digests() -> None:
    """Codes depend on earlier strings; digests must not."""
    text = PROJECT.replace("id*:int64", "id*:string")
    plan = compile_plan(load_text(text).resolved)
    pipelines = Pipeline.fresh(plan), Pipeline.fresh(plan)
    pipelines[0]._state.strings.intern(pa.array(["other", "words"]))
    rows = decoded(plan, Message(5, "source", "I,N,a,1 | I,N,b,2"))
    first, second = (pipeline.feed(rows) for pipeline in pipelines)
    assert first == second
    changed = Pipeline.fresh(plan).feed(decoded(plan, Message(5, "source", "I,N,a,1 | I,N,c,2")))
    assert changed["cq/passed"].column("hs:digest")[0] == first["cq/passed"].column("hs:digest")[0]
    assert changed["cq/passed"].column("hs:digest")[1] != first["cq/passed"].column("hs:digest")[1]


def test_positions_must_rise(plan: Plan) -> None:
    """Within a batch and from batch to batch; a refused batch changes nothing."""
    rows = decoded(plan, Message(5, "source", "I,N,1,1 | I,N,2,2"), Message(6, "source", "I,N,3,3"))
    with pytest.raises(PositionOrder, match="offset 0, event 1"):
        Pipeline.fresh(plan).feed(rows.take(pa.array([2, 1])))
    pipeline = Pipeline.fresh(plan)
    pipeline.feed(rows.slice(0, 2))
    before = pipeline.freeze().header
    with pytest.raises(PositionOrder):
        pipeline.feed(rows.slice(1))
    assert pipeline.freeze().header == before


def test_rows_of_another_form_are_refused(plan: Plan) -> None:
    with pytest.raises(StateError, match="do not have the columns of the project"):
        Pipeline.fresh(plan).feed(pa.RecordBatch.from_arrays([], names=[]))
    empty = pa.RecordBatch.from_pylist([], decoded_schema(plan.entry_schemas))
    assert Pipeline.fresh(plan).feed(empty) == {}


def test_long_batches_are_stepped_in_pieces(plan: Plan) -> None:
    """Outputs of the pieces are joined; sequences continue."""
    count = STEP_ROWS_MAX + 10
    value = "\n".join(f"I,N,{i},{i}" for i in range(count))
    rows = decoded(plan, Message(5, "source", value.replace("\n", " | ")))
    pipeline = Pipeline.fresh(plan)
    outputs = pipeline.feed(pa.Table.from_batches([rows]))
    assert outputs["cq/passed"].column("hs:sequence").to_pylist() == list(range(1, count + 1))
    assert outputs["cq/copied"].num_rows == 2 * count - 1


def test_clock_that_goes_back(plan: Plan) -> None:
    """System time is the running maximum of append times."""
    pipeline = Pipeline.fresh(plan)
    pipeline.feed(decoded(plan, Message(9_000_000, "source", "I,N,1,1"), Message(3, "source", "I,N,2,1")))
    assert pipeline.time_us == 9_000_000


def test_chains_that_may_run_in_the_head() -> None:
    """Stateless windows after a stateless source, as long as only the last one is read by others."""
    project = """
project: p
queries:
  cq:
    windows:
      source: {type: source, index: empty, opcodes: insert-only, schema: "id*:int64,x:double"}
      kept: {type: filter, index: empty, condition: x > 1}
      doubled: {type: compute, index: empty, schema: "id*:int64,y:double", outputs: {y: 2 * x}}
      copied: {type: copy}
    edges: [source -> kept, kept -> doubled, doubled -> copied]
"""
    plan = compile_plan(load_text(project).resolved)
    assert [[w.window for w in chain] for chain in plan.head_chains] == [["source", "kept", "doubled"]]
    assert [str(schema) for schema in plan.entry_schemas] == ["id*:int64,y:double"]
    outputs = Pipeline.fresh(plan).feed(decoded(plan, Message(5, "source", "I,N,1,1 | I,N,2,2")))
    assert outputs["cq/copied"].column("y").to_pylist() == [4.0]
    watched = project.replace("condition: x > 1", "publish: true, condition: x > 1").replace(
        "type: copy", "type: copy, publish: true"
    )
    plan = compile_plan(load_text(watched).resolved)
    assert [[w.window for w in chain] for chain in plan.head_chains] == [["source", "kept"]]
    outputs = Pipeline.fresh(plan).feed(decoded(plan, Message(5, "source", "I,N,1,1 | I,N,2,2")))
    assert outputs["cq/copied"].column("y").to_pylist() == [4.0]
    assert outputs["cq/kept"].column("x").to_pylist() == [2.0]


def test_a_traced_window_is_seen_and_nothing_else_changes() -> None:
    """SPEC A40: even a stateless window, which would otherwise run in the head; numbers, digests and snapshots are the same."""
    text = """
project: p
queries:
  cq:
    windows:
      source: {type: source, index: empty, opcodes: insert-only, schema: "id*:int64,at:stamp,x:double"}
      some: {type: filter, index: empty, condition: 10 / x > 1}
      same: {type: filter, index: empty, condition: x > 0}
      kept: {type: copy}
    edges: [source -> some -> same -> kept]
"""
    plain, traced = (
        compile_plan(load_text(t).resolved) for t in (text, text.replace("    windows", "    trace: [some, kept]\n    windows"))
    )
    assert plain.head_chains != traced.head_chains
    messages = (
        Message(5, "source", "I,N,1,9,20 | I,N,2,9,2"),
        Message(6, "source", "I,N,x,9,1 | U,N,2,9,3 | I,N,3,9,0 | I,N,,9,1 | I,N,4,9,5 | I,N,5,9,50"),
    )
    seen: list[tuple[str, str]] = []

    def on_trace(window: str, events: pa.RecordBatch) -> None:
        seen.append((window, rows_to_csv(events, CsvStyle.EXACT).decode()))

    with_trace, without = Pipeline.fresh(traced, on_trace), Pipeline.fresh(plain)
    assert with_trace.feed(decoded(traced, *messages)) == without.feed(decoded(plain, *messages))
    rows = "I,N,2,9,2\nI,N,4,9,5\n"
    assert seen == [("cq/some", rows), ("cq/kept", rows)]
    frozen, other = with_trace.freeze(), without.freeze()
    assert (frozen.header, dict(frozen.pages())) == (other.header, dict(other.pages()))
    restored = Pipeline.restore(traced, other.header, dict(other.pages()))
    assert restored.sequences == without.sequences


EXPELLED = """
project: p
queries:
  cq:
    windows:
      source: {type: source, opcodes: any, index: empty, schema: "id*:int64,x:double"}
      recent: {type: copy, publish: true, retention: {bytime_sliding: 1 second}}
      keyed: {type: compute, schema: "id*:int64,y:double", outputs: {y: x + 1}}
      few: {type: copy, publish: true, retention: {bycount_jumping: 40}}
    edges: [source -> recent, recent -> keyed, keyed -> few]
"""


def test_what_one_tick_causes_comes_in_parts() -> None:
    """Each part has at most the given size; ordinals continue, and the parts together equal the outputs of one part."""
    plan = compile_plan(load_text(EXPELLED).resolved)
    rows = " | ".join(f"I,N,{i},{i}" for i in range(100))
    batches = [
        decoded(plan, Message(5, "source", rows), Message(9_000_000, "", "")).slice(at, size) for at, size in ((0, 100), (100, 1))
    ]
    whole, parted = Pipeline.fresh(plan), Pipeline.fresh(plan, extra_rows_max=7)
    run_inline = [whole.feed(batch) for batch in batches][1]["cq/recent"]
    assert parted.feed(batches[0])
    parts = [(part["cq/recent"], parted.is_between_batches) for part in parted.compute_parts(batches[1]) if "cq/recent" in part]
    assert [part.num_rows for part, _ in parts] == [7] * 14 + [2]
    assert [is_whole for _, is_whole in parts] == [False] * 14 + [True]
    assert pa.Table.from_batches([part for part, _ in parts]).combine_chunks() == pa.Table.from_batches([run_inline])
    assert run_inline.column("hs:ordinal").to_pylist() == list(range(100))


def test_no_state_is_frozen_inside_a_position() -> None:
    plan = compile_plan(load_text(EXPELLED).resolved)
    rows = " | ".join(f"I,N,{i},{i}" for i in range(100))
    pipeline = Pipeline.fresh(plan, extra_rows_max=7)
    pipeline.feed(decoded(plan, Message(5, "source", rows)))
    parts = pipeline.compute_parts(decoded(plan, Message(5, "source", rows), Message(9_000_000, "", "")).slice(100))
    before = pipeline.freeze().header
    next(parts)
    with pytest.raises(StateError, match="all parts"):
        pipeline.freeze()
    assert list(parts)
    assert pipeline.freeze().header != before


def test_rows_of_megabytes_leave_in_batches_of_a_few_each() -> None:
    """A step is bounded in rows; its held, spilled and published outputs are bounded in bytes (SPEC D15)."""
    plan = compile_plan(load_text(PROJECT.replace("x:double", "x:string")).resolved)
    texts = [f"{number}-" + "x" * (1 << 20) for number in range(40)]
    rows = decoded(plan, *(Message(5 + number, "source", f"I,N,{number},{text}") for number, text in enumerate(texts)))
    pipeline, whole = Pipeline.fresh(plan), Pipeline.fresh(plan)
    parts = list(pipeline.compute_parts(rows))
    assert max(batch.nbytes for part in parts for batch in part.values()) < 18 << 20
    outputs = joined_parts(parts)
    assert outputs["cq/passed"].column("x").to_pylist() == texts
    assert outputs["cq/copied"].column("hs:sequence").to_pylist() == list(range(1, 80))
    for number in range(rows.num_rows):
        whole.feed(rows.slice(number, 1))
    assert (whole.digests, whole.last_ids) == (pipeline.digests, pipeline.last_ids)

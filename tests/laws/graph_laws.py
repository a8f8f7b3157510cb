"""The laws that hold for any graph and any changelog: Cut, Crash at the core, Runner within one engine, and the relation law.

`broken` looks for a law that does not hold; None: all do. Errors of the engine are reported as broken, too.
"""

from __future__ import annotations

import itertools
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random

import pyarrow as pa

from hotspare.flow.head.head import Head
from hotspare.flow.pipeline import Pipeline
from hotspare.flow.plan import Plan
from hotspare.formats.csv.rows import CsvStyle, row_texts
from hotspare.model.events import Opcode
from hotspare.model.types import KeyRole
from hotspare.rows.changelog import Changelog, Keys, Opcodes
from hotspare.rows.tuning import tuning_override
from tests.exact_rows import Row, exact_rows
from tests.laws.any_changelogs import TICK, Given, raw_messages
from tests.laws.any_expressions import OF_ORDER
from tests.laws.any_graphs import SECOND, Graph, Window
from tests.laws.core_scripts import joined, snapshot_bytes
from tests.tunings import any_tuning

Outputs = dict[str, pa.Table]


@dataclass(frozen=True)
class Trial:
    """A graph, a changelog, and its outputs uncut."""

    graph: Graph
    script: Sequence[Given]
    plan: Plan
    messages: list[pa.RecordBatch]
    rows: pa.RecordBatch
    whole: Outputs
    snapshot: bytes

    @classmethod
    def of(cls, graph: Graph, script: Sequence[Given]) -> Trial:
        plan = graph.plan()
        messages = raw_messages(script, len(plan.entries))
        rows = Head.from_plan(plan).decode(pa.concat_batches(messages))
        return cls(graph, script, plan, messages, rows, *fed(plan, [rows]))


def broken(graph: Graph, script: Sequence[Given], random: Random) -> str | None:
    """Returns the law that does not hold, and its place."""
    try:
        trial = Trial.of(graph, script)
        for law in (_cut_and_parts, _crash, _pages, _runner, _relations, _recomputed):
            law(trial, random)
    except AssertionError as error:
        return f"{error}"
    except Exception as error:
        return f"error {type(error).__name__}: {traceback.format_exc()}"
    return None


def fed(plan: Plan, pieces: Sequence[pa.RecordBatch]) -> tuple[Outputs, bytes]:
    pipeline = Pipeline.fresh(plan)
    outputs = [pipeline.feed(piece) for piece in pieces]
    return joined(outputs), snapshot_bytes(pipeline)


def same(law: str, made: Outputs, expected: Outputs) -> None:
    """Raises AssertionError with the stream and the first row that differs."""
    for name in sorted({*made, *expected}):
        mine, other = made.get(name), expected.get(name)
        if mine is None or other is None or not _bits(mine).equals(_bits(other)):
            raise AssertionError(f"{law}: {name}: {_first_difference(mine, other)}")


def _bits(table: pa.Table) -> pa.Table:
    """Returns the table with doubles as their bits, so that NaN equals NaN."""
    for i, column in enumerate(table.schema):
        if pa.types.is_floating(column.type):
            values = table.column(i).combine_chunks()
            whole = pa.Array.from_buffers(pa.int64(), len(values), values.buffers(), offset=values.offset)
            table = table.set_column(i, column.name, whole)
    return table


def _first_difference(mine: pa.Table | None, other: pa.Table | None) -> str:
    made, expected = (exact_rows(table) if table is not None else [] for table in (mine, other))
    for number, (a, b) in enumerate(zip(made, expected, strict=False)):
        if a != b:
            return f"row {number}\n    {a}\n    instead of\n    {b}"
    longer, word = (made, "more") if len(made) > len(expected) else (expected, "missing")
    at = min(len(made), len(expected))
    return f"{word} {longer[at] if at < len(longer) else 'schema'}"


def _cut_and_parts(trial: Trial, random: Random) -> None:
    plan, rows, whole, snapshot = trial.plan, trial.rows, trial.whole, trial.snapshot
    for places in ([*range(rows.num_rows)], sorted(random.randrange(rows.num_rows + 1) for _ in range(3))):
        edges = sorted({0, rows.num_rows, *places})
        pieces = [rows.slice(begin, end - begin) for begin, end in itertools.pairwise(edges)]
        parts, parts_snapshot = fed(plan, pieces)
        same("law Cut", parts, whole)
        assert parts_snapshot == snapshot, "law Cut: another snapshot"
        bound = random.choice([1, 1, 2, 5])
        pipeline = Pipeline.fresh(plan, extra_rows_max=bound)
        outputs = []
        for piece in pieces:
            for part in pipeline.compute_parts(piece):
                outputs.append(part)
                pipeline.limit_part_rows(1 + len(outputs) % 3)
        same("law Cut, in parts", joined(outputs), whole)
        assert snapshot_bytes(pipeline) == snapshot, "law Cut, in parts: another snapshot"


def _crash(trial: Trial, random: Random) -> None:
    """Restarts after every message; input that the snapshot does not cover is read again."""
    plan = trial.plan
    head, pipeline = Head.from_plan(plan), Pipeline.fresh(plan)
    outputs: list[dict[str, pa.RecordBatch]] = []
    rest: list[pa.RecordBatch] = []
    for message in trial.messages:
        rest = [*rest, message]
        outputs.append(pipeline.feed(head.decode(pa.concat_batches(rest))))
        frozen = pipeline.freeze()
        before, following = snapshot_bytes(pipeline), pipeline.next_offsets
        pipeline = Pipeline.restore(plan, frozen.header, dict(frozen.pages()))
        assert snapshot_bytes(pipeline) == before, "law Crash: a restored state is written as another one"
        if random.random() < 0.5:
            pipeline.collect_all_strings()
        rest = [left for each in rest if (left := _unread(each, following)).num_rows]
    same("law Crash", joined(outputs), trial.whole)
    assert snapshot_bytes(pipeline) == trial.snapshot, "law Crash: another snapshot"


def _unread(raw: pa.RecordBatch, following: dict[tuple[int, int], int]) -> pa.RecordBatch:
    topic, offset = raw.column("topic").to_pylist(), raw.column("offset").to_pylist()
    return raw.filter(pa.array([o >= following.get((t, 0), 0) for t, o in zip(topic, offset, strict=True)], pa.bool_()))


def _pages(trial: Trial, random: Random) -> None:
    plan, rows, whole = trial.plan, trial.rows, trial.whole
    with tuning_override(any_tuning(random)):
        place = random.randrange(rows.num_rows + 1)
        small, snapshot = fed(plan, [rows])
        same("small pages", small, whole)
        parts, parts_snapshot = fed(plan, [rows.slice(0, place), rows.slice(place)])
        same("law Cut, small pages", parts, whole)
        assert parts_snapshot == snapshot, "law Cut, small pages: another snapshot"


def _runner(trial: Trial, random: Random) -> None:
    """Windows of the head run there, or in the core if everything is traced; messages are decoded one by one, or together."""
    leaves = replace(trial.graph, shown="leaves")
    for each in (leaves, replace(leaves, traced=True)):
        plan = each.plan()
        head = Head.from_plan(plan)
        apart = [head.decode(message) for message in trial.messages]
        together = head.decode(pa.concat_batches(trial.messages))
        same("law Runner, head", {"decoded": _flat(apart)}, {"decoded": _flat([together])})
        made, _ = fed(plan, apart)
        same(
            f"law Runner, traced {each.traced}",
            made,
            {name: table for name, table in trial.whole.items() if name in plan.stream_schemas},
        )


def _flat(batches: Sequence[pa.RecordBatch]) -> pa.Table:
    table = pa.Table.from_batches(batches).combine_chunks()
    while any(pa.types.is_struct(field.type) for field in table.schema):
        table = table.flatten()
    return table.combine_chunks()


def _relations(trial: Trial, random: Random) -> None:
    """Checks that each output is possible, event by event: an insert is of an unknown key, a delete and the old row of an update
    block are of the current row."""
    plan, outputs = trial.plan, trial.whole
    rows: dict[str, dict[Row, Row]] = {}
    for name, node in plan.streams:
        leaving = plan.nodes[node].operator.output_changelog
        if name in outputs and leaving.opcodes is not Opcodes.PUBLISHED:
            rows[name] = folded(plan, name, outputs[name], leaving.keys)


def _recomputed(trial: Trial, random: Random) -> None:
    """Checks that the rows of a window are those that it computes from its inputs' current rows alone; to the bit."""
    leaving = {name: trial.plan.nodes[node].operator.output_changelog for name, node in trial.plan.streams}
    for name, window in trial.graph.windows.items():
        inputs = trial.graph.inputs(name)
        tables = all(_is_table(leaving[f"q/{source}"]) and "slot" not in more for source, more in inputs)
        if not inputs or not tables or not follows_from_rows(window) or not _is_table(leaving[f"q/{name}"]):
            continue
        given = {source: _rows_left(trial, source) for source, _ in inputs}
        sources = {source: {"type": "source", "opcodes": "any", "schema": _schema_text(trial, source)} for source in given}
        edges = tuple(edge for edge in trial.graph.edges if edge[1] == name)
        alone = Graph({**sources, name: window}, edges)
        order = sorted(given)
        script = []
        for number, source in enumerate(order):
            random.shuffle(given[source])
            script.append(Given(SECOND, number, tuple(given[source])))
        again = Trial.of(alone, [*(each for each in script if each.rows), Given(9 * SECOND, TICK)])
        made, expected = (
            folded(each.plan, f"q/{name}", each.whole[f"q/{name}"], Keys.ANY) if f"q/{name}" in each.whole else {}
            for each in (trial, again)
        )
        for key in sorted({*made, *expected}, key=repr):
            if made.get(key) != expected.get(key):
                raise AssertionError(f"recomputation: {name}: {made.get(key)}\n    instead of\n    {expected.get(key)}\n{given}")


def _is_table(leaving: Changelog) -> bool:
    return leaving.keys is not Keys.ANY and leaving.opcodes is not Opcodes.PUBLISHED


def follows_from_rows(window: Window) -> bool:
    """Whether the rows of a window are a function of the rows of its inputs."""
    if any(
        extra in window
        for extra in ("pulse", "updates", "output", "produces", "emit", "retention", "code", "regenerates", "streaming")
    ):
        return False
    texts = [window.get("condition", ""), *window.get("outputs", {}).values()] if window["type"] != "transpose" else []
    if any(text.startswith(("ESP_OPCODE", "ESP_FLAGS")) or "ESP_OPCODE" in text for text in texts):
        return False
    if window["type"] == "aggregate":
        return not any(text in options for text in texts for options in OF_ORDER.values())
    return window["type"] in ("filter", "compute", "copy", "join") or window.get("mode") == "long"


def _schema_text(trial: Trial, name: str) -> str:
    schema = trial.plan.stream_schemas[f"q/{name}"]
    return ",".join(f"{f.name}{'*' if f.role is KeyRole.KEY else ''}:{f.type.value}" for f in schema.fields)


def _rows_left(trial: Trial, name: str) -> list[bytes]:
    """Returns the remaining rows of a window at the end, as inserts."""
    stream = f"q/{name}"
    table = trial.whole.get(stream)
    if table is None:
        return []
    left = folded(trial.plan, stream, table, Keys.NEW)
    rows = exact_rows(table.select(list(trial.plan.stream_schemas[stream].names)))
    texts = row_texts(table.to_batches()[0], CsvStyle.EXACT)
    last = dict(zip(rows, texts, strict=True))
    return [f"I,N,{last[row].split(',', 2)[2]}".encode() for row in left.values()]


def folded(plan: Plan, name: str, table: pa.Table, keys: Keys) -> dict[Row, Row]:
    """Returns the remaining rows, by key. Raises AssertionError for an impossible event."""
    schema = plan.stream_schemas[name]
    at, rows = schema.key_indexes, dict[Row, Row]()
    once: set[Row] = set()
    block: Row | None = None
    opcodes = [Opcode(each) for each in table.column("hs:opcode").to_pylist()]
    for opcode, row in zip(opcodes, exact_rows(table.select(list(schema.names))), strict=True):
        key = tuple(row[i] for i in at)
        what = f"relation law: {name}: {opcode.name} {row}"
        if opcode is Opcode.INSERT:
            if keys is not Keys.ANY:
                assert key not in rows, f"{what}: {rows.get(key)} is there"
            assert keys is not Keys.ONCE or key not in once, f"{what}: it was there"
            once.add(key)
            rows[key] = row
        elif opcode is Opcode.UPDATE_BLOCK:
            assert block is None, what
            if keys is not Keys.ANY:
                assert key in rows, f"{what}: it is not there"
            block, rows[key] = rows.get(key, row), row
        else:
            assert opcode is Opcode.DELETE, what
            if block is not None:
                assert keys is Keys.ANY or block == row, f"{what}: the old row is {block}"
                block = None
            elif keys is not Keys.ANY:
                assert rows.get(key) == row, f"{what}: the row is {rows.get(key)}"
                del rows[key]
            else:
                rows.pop(key, None)
    assert block is None, name
    return rows


def shrunk(graph: Graph, script: list[Given], fails: Callable[[Graph, list[Given]], bool]) -> tuple[Graph, list[Given]]:
    """Returns the smallest graph and script that still fail, by removing one part after the other. A script keeps a message:
    without any no law is tested."""
    while True:
        for less, fewer in _smaller(graph, script):
            if (fewer or not script) and fails(less, fewer):
                graph, script = less, fewer
                break
        else:
            return graph, script


def _smaller(graph: Graph, script: list[Given]) -> Iterator[tuple[Graph, list[Given]]]:
    for half in (len(script) // 2, len(script) // 4):
        for at in range(0, len(script), half) if half > 1 else ():
            yield graph, script[:at] + script[at + half :]
    for name in reversed(graph.windows):
        if not any(source == name for source, _, _ in graph.edges) and graph.windows[name]["type"] != "source":
            yield graph.without(name), script
    for name, window in graph.windows.items():
        for extra in ("pulse", "splitter", "updates", "output", "produces", "retention", "clear_interval", "clear_timeout"):
            if extra in window and not (extra == "splitter" and any("slot" in more for s, _, more in graph.edges if s == name)):
                less = {key: value for key, value in window.items() if key != extra}
                yield replace(graph, windows={**graph.windows, name: less}), script
        outputs = window.get("outputs")
        if window["type"] == "aggregate":
            for each in outputs:
                simple = {"x": "ESP_aCount()", "id": "ESP_aCount()", "d": "ESP_aMin(d)", "s": "ESP_aMin(s)", "at": "ESP_aMin(at)"}[
                    each
                ]
                if outputs[each] != simple:
                    yield replace(graph, windows={**graph.windows, name: {**window, "outputs": {**outputs, each: simple}}}), script
        if window["type"] == "compute":
            for each in outputs:
                if outputs[each] != each:
                    yield replace(graph, windows={**graph.windows, name: {**window, "outputs": {**outputs, each: each}}}), script
    for i, each in enumerate(graph.edges):
        if len(graph.inputs(each[1])) > 1:
            yield replace(graph, edges=graph.edges[:i] + graph.edges[i + 1 :]), script
        if " slot" in each[2]:
            plain = (*each[:2], each[2].split(" slot")[0])
            yield replace(graph, edges=(*graph.edges[:i], plain, *graph.edges[i + 1 :])), script
    for at, given in enumerate(script):
        yield graph, script[:at] + script[at + 1 :]
        for row in range(len(given.rows)) if len(given.rows) > 1 else ():
            fewer = replace(given, rows=given.rows[:row] + given.rows[row + 1 :])
            yield graph, [*script[:at], fewer, *script[at + 1 :]]

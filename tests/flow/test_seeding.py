"""Rebuilt windows begin with the rows of upstream windows whose state is kept (SPEC A44, Z6)."""

from __future__ import annotations

import pytest

from hotspare.flow.carry_over import carried_over
from hotspare.flow.head.head import Head
from hotspare.flow.pipeline import Pipeline
from hotspare.flow.plan import Plan, compile_plan
from hotspare.flow.upgrade import Fate, Past, Upgrade, compare
from hotspare.projects.load import load_text
from tests.cases.case import Case, Message, raw_batches

KEPT = """
project: shop
queries:
  q:
    singletons: included
    windows:
      orders: {type: source, opcodes: any, schema: 'id*:int64,k:int64,x:int64'}
      recent: {type: copy, retention: {bycount_sliding: 4}}
      dear: {type: filter, condition: x > 1, index: empty}
MORE    edges: [orders -> recent, recent -> dearEDGES]
"""
_SUMS = "schema: 'k*:int64,n:int64,s:int64', outputs: {n: ESP_aCount(), s: ESP_aSum(x)}"
SUMS = f"      sums: {{type: aggregate, {_SUMS}, publish: true}}\n"
OF_SUMS = "      most: {type: aggregate, schema: 'n*:int64,s:int64', outputs: {s: ESP_aMax(s)}, publish: true}\n"


def fates(found: Upgrade) -> dict[str, Fate]:
    return {each.window.window: each.fate for each in found.windows}


def kept(windows: str = "", edges: str = "", *changes: tuple[str, str]) -> Plan:
    text = KEPT.replace("MORE", windows).replace("EDGES", edges)
    for before, after in changes:
        assert before in text
        text = text.replace(before, after)
    return compile_plan(load_text(text).resolved)


Outputs = list[tuple[str, list[tuple[object, ...]]]]


def fed(of: Plan, pipeline: Pipeline, messages: list[Message], begin: int = 0) -> Outputs:
    """Returns by stream the opcodes and fields of the outputs, batch by batch."""
    raw = raw_batches(Case(of, tuple(messages), ()))[begin:]
    made = [item for each in raw for item in pipeline.feed(Head.from_plan(of).decode(each)).items()]
    fields = [
        (name, table.select([c for c in table.schema.names if not c.startswith("hs:") or c == "hs:opcode"])) for name, table in made
    ]
    return [(name, [tuple(row.values()) for row in table.to_pylist()]) for name, table in fields]


def carried_and_always(before: Plan, after: Plan, messages: list[Message], taken: int) -> tuple[Outputs, Outputs]:
    """Returns the outputs after `taken` messages: from a carried state of the old project, and from one that always was the new
    project's."""
    old, always = Pipeline.fresh(before), Pipeline.fresh(after)
    fed(before, old, messages[:taken])
    fed(after, always, messages[:taken])
    frozen = old.freeze()
    new = Pipeline.restore(after, *carried_over(before, after, frozen.header, dict(frozen.pages())))
    return fed(after, new, messages, taken), fed(after, always, messages, taken)


CHANGES = [
    *(Message(1_000_000 + i, "orders", f"I,N,{i},{i % 2},{i}") for i in range(6)),
    Message(2_000_000, "orders", "D,N,3,1,3"),
    Message(2_000_001, "orders", "U,N,4,1,40"),
    Message(2_000_002, "orders", "U,N,5,0,0"),
    Message(2_000_003, "orders", "I,N,9,0,9"),
    Message(2_000_004, "orders", "D,N,2,0,2"),
    Message(2_000_005, "orders", "D,N,0,0,0"),
]


COMPUTED = (
    ("orders: {type: source,", "orders: {type: source, index: empty,"),
    (
        "recent: {type: copy, retention: {bycount_sliding: 4}}",
        "recent: {type: compute, schema: 'id*:int64,k:int64,x:int64', outputs: {k: k, x: 6 div x}}",
    ),
)
"""A window that keeps its inputs: its outputs follow from them; a row with x = 0 has none."""


@pytest.mark.parametrize(("behind", "given"), [("recent", ()), ("dear", ()), ("recent", COMPUTED)], ids=["rows", "filter", "given"])
def test_sums_of_rows_that_others_keep_begin_with_these_rows(behind: str, given: tuple[tuple[str, str], ...]) -> None:
    """Each change subtracts the old row, which an empty window never added. The sums equal those of a group that always had
    them."""
    before, after = kept("", "", *given), kept(SUMS, f", {behind} -> sums", *given)
    assert fates(compare(before, after, Past.CUT))["sums"] is Fate.FILLED
    assert fates(compare(before, after, Past.WHOLE))["sums"] is Fate.RECOMPUTED
    found, expected = carried_and_always(before, after, CHANGES, 6)
    assert found == expected
    assert len(found) >= 4


WHOLE = ("recent: {type: copy, retention: {bycount_sliding: 4}}", "recent: {type: copy}")
MORE = SUMS.replace("sums:", "more:")
HELD = "      held: {type: copy}\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            kept(SUMS, ", recent -> sums", WHOLE),
            kept(SUMS + MORE + OF_SUMS, ", recent -> sums, recent -> more, sums -> most", WHOLE),
        ),
        (kept(HELD, ", recent -> held", WHOLE), kept(HELD + SUMS + MORE, ", recent -> held, recent -> more, held -> sums", WHOLE)),
    ],
    ids=["aggregate", "copy"],
)
def test_behind_each_of_two_kept_windows_one_behind_the_other(before: Plan, after: Plan) -> None:
    """The rows of the first go to the new window after it, not to the second, which has them."""
    told = fates(compare(before, after, Past.CUT))
    assert [told[name] for name in ("recent", "more")] == [Fate.KEPT, Fate.FILLED]
    found, expected = carried_and_always(before, after, CHANGES, 6)
    assert found == expected


def test_sums_of_sums_that_are_new_too_begin_with_what_these_begin_with() -> None:
    before, after = kept(), kept(SUMS + OF_SUMS, ", recent -> sums, sums -> most")
    told = fates(compare(before, after, Past.CUT))
    assert (told["sums"], told["most"]) == (Fate.FILLED, Fate.FILLED)
    found, expected = carried_and_always(before, after, CHANGES, 6)
    assert found == expected


ODD = """
      sums: {type: aggregate, publish: true, schema: 'k*:int64,n:int64,s:int64,d:double,t:int64,texts:string,who:string',
             outputs: {n: ESP_aCount(), s: ESP_aSum(x), d: 'ESP_aSum(if(x = 1, 1e300, x))', t: 6 div ESP_aMin(x),
                       texts: 'ESP_aCat(x, ";")', who: ESP_aGUID()}}
"""
OF_ODD = """
      most: {type: aggregate, publish: true, schema: 'n*:int64,rows:int64,s:int64,d:double,t:int64,texts:string,who:string',
             outputs: {rows: ESP_aCount(), s: ESP_aMax(s), d: ESP_aSum(d), t: ESP_aSum(t), texts: ESP_aMax(texts),
                       who: ESP_aMax(who)}}
"""
FAR = 9_000_000_000_000_000_000
ODD_CHANGES = [
    # the second group needs many words, the sum of the third cannot be, the fourth fails, the fifth is gone
    *(
        Message(1_000_000 + i, "orders", f"I,N,{i},{k},{x}")
        for i, (k, x) in enumerate([(1, 2), (2, 1), (2, 4), (3, FAR), (3, FAR)])
    ),
    Message(1_000_010, "orders", "I,N,10,4,0"),
    Message(1_000_011, "orders", "I,N,11,4,5"),
    Message(1_000_012, "orders", "I,N,12,5,5"),
    Message(1_000_013, "orders", "D,N,12,5,5"),
    *(Message(2_000_000 + i, "orders", f"I,N,{20 + i},{6 + i},3") for i in range(2)),
    Message(2_000_010, "orders", "D,N,3,3,0"),
    Message(2_000_011, "orders", "U,N,10,4,1"),
    Message(2_000_012, "orders", "U,N,0,2,7"),
    Message(2_000_013, "orders", "D,N,1,2,1"),
    Message(2_000_014, "orders", "I,N,30,5,1"),
]


@pytest.mark.parametrize(
    ("sums", "of_sums", "changes", "taken"), [(SUMS, OF_SUMS, CHANGES, 6), (ODD, OF_ODD, ODD_CHANGES, 9)], ids=["plain", "odd"]
)
def test_sums_of_sums_that_are_kept_begin_with_the_newest_row_of_each_group(
    sums: str, of_sums: str, changes: list[Message], taken: int
) -> None:
    """That is the output of its last change; none if a sum or an expression fails."""
    whole = ("recent: {type: copy, retention: {bycount_sliding: 4}}", "recent: {type: copy}")
    before = kept(sums, ", recent -> sums", whole)
    after = kept(sums + of_sums, ", recent -> sums, sums -> most", whole)
    assert fates(compare(before, after, Past.CUT))["most"] is Fate.FILLED
    found, expected = carried_and_always(before, after, changes, taken)
    assert found == expected
    assert {"q/sums", "q/most"} <= {stream for stream, _ in found}


@pytest.mark.parametrize(
    ("between", "kept_as"),
    [
        ("counts: {type: counter, count_interval: 1 second}", "q/counts is kept, and does not store the rows that it emitted"),
        ("counts: {type: copy, pulse: 1 second}", "q/counts is kept, and does not store the rows that it emitted at its pulses"),
    ],
    ids=["window", "pulses"],
)
def test_sums_of_rows_that_nobody_tells_are_refused_with_the_cause_and_what_can_be_done(between: str, kept_as: str) -> None:
    key = "input*:string" if "counter" in between else "k*:int64"
    sums = f"      sums: {{type: aggregate, schema: '{key},n:int64', outputs: {{n: ESP_aCount()}}}}\n"
    edges, windows = ", recent -> counts", f"      {between}\n"
    before, after = kept(windows, edges), kept(windows + sums, f"{edges}, counts -> sums")
    for past in Past:
        found = compare(before, after, past)
        if past is Past.WHOLE:
            assert not found.refusals
            continue
        (refusal,) = found.refusals
        assert refusal.startswith("window q/sums would have to begin with rows that no window stores")
        assert kept_as in refusal
        assert f"It is not recomputed from the topics: {past.value}." in refusal
        assert ("repeat the command without --empty" in refusal) == (past is Past.UNASKED)
        assert "put a copy window between q/counts and q/sums, or give q/counts another name" in refusal
    one, two = (
        f"      zebra: {{type: source, opcodes: any, schema: '{schema}'}}\n" for schema in ("id*:int64", "id*:int64,y:string")
    )
    (refusal,) = compare(kept(windows + one, edges), kept(windows + sums + two, f"{edges}, counts -> sums"), Past.WHOLE).refusals
    assert "It is not recomputed from the topics: messages on the topic of q/zebra lack fields that it has now." in refusal
    copied = kept(f"{windows}      held: {{type: copy}}\n{sums}", f"{edges}, counts -> held, held -> sums")
    renamed = kept(f"{windows}{sums}".replace("counts", "others"), f"{edges}, counts -> sums".replace("counts", "others"))
    for way_on in (copied, renamed):
        found = compare(before, way_on, Past.CUT)
        assert not found.refusals
        assert fates(found)["sums"] is Fate.EMPTY


def test_what_begins_with_rows_is_all_that_is_in_memory_and_is_written_anew() -> None:
    """Another window, which may be large, is neither read nor encoded: its pages are unchanged."""
    aside = "      aside: {type: copy, retention: {bycount_sliding: 9}}\n"
    before = kept(aside, ", orders -> aside")
    after = kept(aside + SUMS, ", orders -> aside, recent -> sums")
    old = Pipeline.fresh(before)
    fed(before, old, CHANGES[:6])
    frozen = old.freeze()
    pages = Asked(dict(frozen.pages()))
    header, carried = carried_over(before, after, frozen.header, pages)
    assert pages.asked == {name for name in pages if name.startswith("q/recent#")}
    assert fed(after, Pipeline.restore(after, header, carried), CHANGES, 6)


class Asked(dict[str, bytes]):
    """Pages that record which of them were read."""

    def __init__(self, pages: dict[str, bytes]) -> None:
        super().__init__(pages)
        self.asked = set[str]()

    def __getitem__(self, name: str) -> bytes:
        self.asked.add(name)
        return super().__getitem__(name)


def test_sums_of_inserts_alone_begin_empty() -> None:
    inserts = (
        "opcodes: any, schema: 'id*:int64,k:int64,x:int64'}",
        "opcodes: insert-only, index: hash, schema: 'id*:int64,k:int64,x:int64'}",
    )
    text = KEPT.replace(*inserts).replace("retention: {bycount_sliding: 4}", "publish: true")
    before = compile_plan(load_text(text.replace("MORE", "").replace("EDGES", "")).resolved)
    more = text.replace("MORE", SUMS).replace("EDGES", ", orders -> sums")
    after = compile_plan(load_text(more).resolved)
    assert fates(compare(before, after, Past.CUT))["sums"] is Fate.EMPTY

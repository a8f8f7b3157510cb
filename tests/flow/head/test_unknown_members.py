"""The head samples members of JSON events that no field has; they travel with a batch, and change nothing in it."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pyarrow as pa

from hotspare.flow.head.head import Head
from hotspare.flow.head.unknown_members import UnknownMember, merged, sentence_of, unknown_of, with_unknown
from hotspare.flow.plan import compile_plan
from hotspare.projects.load import load_text
from hotspare.rows.batch import OUTPUTS_FORM, MessageFormat
from hotspare.runners.contract import BatchLimits
from hotspare.runners.reading import decoding_size, steps
from hotspare.runners.spark.span import packed, unpacked
from tests.flow.head.messages import Message, raw

PROJECT = """
project: p
queries:
  q:
    windows:
      paid: {type: source, schema: "id*:int64,card:string,amount:double"}
"""
HEAD = Head.from_plan(compile_plan(load_text(PROJECT).resolved))


def event(**members: object) -> Message:
    return Message(0, json.dumps(members).encode(), MessageFormat.JSON)


def unknown(messages: Sequence[Message]) -> list[tuple[str, str, int]]:
    """Returns the name, the field that it may mean, and the events of each unknown member in one batch."""
    (batch,) = HEAD(raw(messages))
    return [(each.name, each.near, each.events) for each in unknown_of(batch.schema)]


def test_a_member_that_no_field_has_is_counted_with_the_lacking_field_that_it_may_mean() -> None:
    assert unknown([event(id=1, crad="c", amount=1), event(id=2, card="c", card_type=3), event(id=3, crad="d")]) == [
        ("crad", "card", 2),
        ("card_type", "", 1),  # these events have a card
    ]
    assert unknown([event(opcode="p", event={"id": 1, "Card": "c"}, trace=7)]) == [("Card", "card", 1)]


def test_nothing_is_unknown_in_outputs_other_formats_and_texts_that_are_no_events() -> None:
    texts = [b"", b"{", b"[]", b"7", b'{"id":', b"\xff{}", b"[" * 9_999, b'{"a":' * 9_999]
    assert unknown([Message(0, text, MessageFormat.JSON) for text in texts]) == []
    assert unknown([event(opcode="I", flags="N", id=1, **{"hs:sequence": 1})]) == []
    assert unknown([Message(0, b"i,n,1,c,", MessageFormat.CSV)]) == []
    assert unknown([Message(0, b'{"id":1,"crad":2}', MessageFormat.JSON | OUTPUTS_FORM)]) == []


def test_of_many_messages_a_few_are_looked_at_and_the_rows_are_those_without() -> None:
    """The first event of a message counts; names are bounded in number and length."""
    many = [event(id=i, crad="c") for i in range(1_000)]
    assert unknown(many) == [("crad", "card", 4)]
    several = Message(0, b"\n".join(each.value for each in many), MessageFormat.JSON)
    assert unknown([several]) == [("crad", "card", 1)]
    wide = unknown([event(id=1, **{f"{i:03}" + "x" * 999: 0 for i in range(50)})])
    assert (len(wide), len(wide[0][0])) == (20, 100)
    odd = Message(0, b'{"id":1,"\\ud800":1,"\\u001b[2J":2}', MessageFormat.JSON)
    assert [name for name, _, _ in unknown([odd])] == ["\\x1b[2J", "\\ud800"]
    assert HEAD.decode(raw(many)).equals(HEAD.decode(raw([event(id=i) for i in range(1_000)])))


def test_each_is_counted_once_however_batches_are_joined_and_cut() -> None:
    batches = [raw([event(id=1, crad="c")]), raw([event(id=2)], 1), raw([event(id=3, crad="c"), event(id=4)], 2)]
    decoded = [part for batch in batches for part in HEAD(batch)]
    limits = BatchLimits(1, 1 << 20, wait_ms=0)  # a message per step
    for given, head in ((batches, HEAD), (decoded, None), (unpacked(packed(decoded)), None)):
        found = [step for step, _ in steps(given, head, limits, decoding_size())]
        counted = merged(each for step in found for each in unknown_of(step.schema))
        assert (len(found), counted) == (4, [UnknownMember("q/paid", "crad", "card", 2)])


def test_a_sentence_names_the_misspelt_ones_first_and_not_too_many() -> None:
    found = [UnknownMember("q/w", name, "") for name in "abcde"] + [UnknownMember("q/w", "crad", "card")]
    ignored = "events of window q/w have members that are ignored, because no field has their name: "
    assert sentence_of("window q/w", found) == ignored + "'crad' (did you mean 'card'?), 'a', 'b', 'c', 'd', 1 more"


def test_a_batch_without_has_no_metadata() -> None:
    batch = pa.record_batch({"x": [1]})
    assert with_unknown(with_unknown(batch, [UnknownMember("w", "a", "")]), []).schema.metadata is None

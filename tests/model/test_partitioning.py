"""The fields by which windows may be partitioned, and the obstacles."""

from __future__ import annotations

import pytest

from hotspare.base.errors import ProjectError
from hotspare.model.partitioning import carried_keys, obstacles, partition_fields, refused_shards
from hotspare.model.project import WindowId
from hotspare.projects.load import load_text

PROJECT = """
project: p
queries:
  q:
    windows:
      orders: {type: source, opcodes: any, schema: "order*:int64,customer*:int64,x:double"}
      people: {type: source, opcodes: any, schema: "id*:int64,name:string"}
      recent: {type: copy, retention: {bytime_sliding: 1 minute}}
      high: {type: filter, condition: x > 1}
      renamed: {type: compute, schema: "order*:int64,customer*:int64,who:int64,twice:int64",
                outputs: {who: customer, twice: 2 * customer}}
      passed: {type: functional, schema: "order*:int64,customer*:int64,x:double", functions: {x: x + 1}}
      all: {type: union}
      named: {type: join, kind: leftouter, conditions: {customer: id}, outputs: {name: r_name, id: r_id}}
    edges: [orders -> recent -> high, high -> renamed, orders -> passed, passed -> all, high -> all, all -> named, people -> named]
"""


def keys_of(text: str, **by: str) -> dict[str, set[str]]:
    found = carried_keys(load_text(text).resolved, {WindowId("q", source): field for source, field in by.items()})
    return {window.window: set(fields) for window, fields in found.items()}


def told(text: str, **by: str) -> list[tuple[str, str]]:
    found = obstacles(load_text(text).resolved, {WindowId("q", source): field for source, field in by.items()})
    return [(each.window.window, each.reason) for each in found]


def test_the_value_is_carried_through_windows_that_pass_or_rename_it() -> None:
    keys = keys_of(PROJECT, orders="customer", people="id")
    assert keys["recent"] == keys["high"] == keys["passed"] == keys["all"] == {"customer"}
    assert keys["renamed"] == {"customer", "who"}
    assert keys["named"] == {"customer"}  # its id is null for an unknown customer
    assert told(PROJECT, orders="customer", people="id") == []


def test_both_sides_of_a_join_have_to_agree() -> None:
    assert [window for window, _ in told(PROJECT, orders="order", people="id")] == ["named"]


def test_what_is_not_passed_on_makes_no_side_agree() -> None:
    """The window behind one that ends the field is reported if no earlier one is."""
    text = """
project: p
queries:
  q:
    windows:
      orders: {type: source, index: empty, schema: "order*:int64,customer:int64,product:int64", partition_by: customer}
      products: {type: source, opcodes: any, schema: "id*:int64,name:string"}
      slim: {type: compute, schema: "order*:int64,product:int64", outputs: {product: product}}
      named: {type: join, kind: leftouter, conditions: {product: id}, outputs: {name: r_name}}
      counted: {type: functional, schema: "order*:int64,n:int64", functions: {n: eventCounter()}}
      last: {type: copy, retention: {bycount_sliding: 3}}
      behind: {type: copy, retention: {bycount_sliding: 2}}
    edges: [orders -> slim, slim -> named as left, products -> named as right, slim -> counted, slim -> last -> behind]
"""
    refused = refused_shards(load_text(text).resolved, 2)
    assert refused is not None
    assert [(each.place.line, each.message.split()[1]) for each in refused.mistakes] == [
        (9, "q/named"),
        (10, "q/counted"),
        (11, "q/last"),
    ]
    assert refused.mistakes[0].hint.startswith("partition the sources of both sides")


def test_inputs_of_a_union_have_to_agree() -> None:
    """A union has one index, in which rows with one key must meet."""
    text = """
project: p
queries:
  q:
    windows:
      a: {type: source, opcodes: any, schema: "x*:int64,y*:int64"}
      b: {type: source, opcodes: any, schema: "x*:int64,y*:int64"}
      all: {type: union}
    edges: [a -> all, b -> all]
"""
    assert told(text, a="x", b="x") == []
    assert [window for window, _ in told(text, a="x", b="y")] == ["all"]


def test_a_source_says_by_which_field() -> None:
    assert told(PROJECT, orders="nothing", people="id")[0] == ("orders", "it has no field 'nothing'")
    assert told(PROJECT, people="id")[0] == ("orders", "no field is named")


def test_a_row_must_not_change_its_partition() -> None:
    assert told(PROJECT, orders="x", people="id")[0][0] == "orders"


@pytest.mark.parametrize(
    "window",
    [
        "type: copy, retention: {bycount_sliding: 3}",
        "type: copy, retention: {bycount_sliding: 3, by: [id]}",
        'type: functional, schema: "id*:int64,k*:int64,n:int64", functions: {n: eventCounter()}',
        'type: functional, schema: "m*:int64,id:int64", functions: {m: "mod($id, 2)"}',
        'type: calculate, algorithm: Summary, schema: "id*:int64,k*:int64,s:double", inputs: {input: k}, outputs: {sumOut: s}',
    ],
)
def test_what_counts_over_all_keys_cannot_be_partitioned(window: str) -> None:
    text = f"""
project: p
queries:
  q:
    windows:
      given: {{type: source, opcodes: any, schema: "id*:int64,k*:int64"}}
      odd: {{{window}}}
    edges: [given -> odd]
"""
    assert [window for window, _ in told(text, given="k")] == ["odd"]


def test_groups_that_stand_in_one_partition_may_be_counted() -> None:
    text = """
project: p
queries:
  q:
    windows:
      given: {type: source, opcodes: any, schema: "id*:int64,k*:int64,x:double"}
      newest: {type: copy, retention: {bycount_sliding: 3, by: [x, k]}}
    edges: [given -> newest]
"""
    assert told(text, given="k") == []
    assert told(text, given="id") == [("newest", "its retention counts rows of groups that are spread over several partitions")]


def test_a_generated_key_carries_its_shard_and_is_no_field_to_be_partitioned_by() -> None:
    text = """
project: p
queries:
  q:
    singletons: included
    windows:
      given: {type: source, index: empty, opcodes: insert-only, keys: autogenerated, schema: "id*:int64,k:int64"}
"""
    assert told(text, given="k") == []
    assert told(text, given="id") == [("given", "the key that it generates is not known where its events are published")]


def test_a_project_says_by_which_field_and_else_it_is_the_only_key() -> None:
    text = """
project: p
queries:
  q:
    singletons: included
    windows:
      orders: {type: source, opcodes: any, schema: "order*:int64,customer*:int64", partition_by: customer}
      people: {type: source, opcodes: any, schema: "id*:int64,name:string"}
      pairs: {type: source, opcodes: any, schema: "a*:int64,b*:int64"}
"""
    resolved = load_text(text).resolved
    fields = {source.window: field for source, field in partition_fields(resolved).items()}
    assert fields == {"orders": "customer", "people": "id", "pairs": ""}
    assert refused_shards(resolved, 1) is None
    refused = refused_shards(resolved, 3)
    assert refused is not None
    (mistake,) = refused.mistakes
    assert mistake.message == "window q/pairs cannot be partitioned: no field is named"
    assert mistake.hint == "write `partition_by:` with one of a, b"
    assert mistake.place.line == 9


def test_a_number_with_a_fraction_is_no_field_to_be_partitioned_by() -> None:
    text = """
project: p
queries: {q: {singletons: included, windows: {w: {type: source, opcodes: any, schema: "x*:double,k:int64"}}}}
"""
    assert told(text, w="x") == [("w", "its field x is a double, of which equal values may have different texts")]


def test_a_double_does_not_hold_the_value_of_an_integer() -> None:
    """Several integers are one double, but in different partitions: rows with one double would not be together."""
    text = """
project: p
queries:
  q:
    windows:
      left: {type: source, opcodes: any, schema: "id*:int64"}
      right: {type: source, opcodes: any, schema: "id*:int64"}
      of_left: {type: compute, schema: "id*:int64,near:double", outputs: {near: id}}
      of_right: {type: compute, schema: "id*:int64,near:double", outputs: {near: id}}
      met: {type: join, kind: inner, conditions: {near: near}, outputs: {x: l_near}}
    edges: [left -> of_left, right -> of_right, of_left -> met as left, of_right -> met as right]
"""
    assert keys_of(text, left="id", right="id")["of_left"] == {"id"}
    assert [window for window, _ in told(text, left="id", right="id")] == ["met"]


def test_an_unknown_field_is_a_mistake_of_the_project() -> None:
    text = """
project: p
queries: {q: {singletons: included, windows: {w: {type: source, opcodes: any, schema: "id*:int64", partition_by: ix}}}}
"""
    with pytest.raises(ProjectError, match="is partitioned by the unknown field 'ix'"):
        load_text(text)


def test_a_pattern_is_divided_by_its_index() -> None:
    """A field of an optional event does not carry the value."""
    text = """
project: p
queries:
  q:
    windows:
      orders: {type: source, index: hash, schema: "order*:int64,customer:int64", opcodes: insert-only}
      found:
        type: pattern
        schema: "n*:int64,customer:int64,other:int64"
        patterns:
          one:
            index: [customer]
            events: {a: {source: orders}, b: {source: orders}, c: {source: orders}}
            logic: fby(a, or(b, c))
            outputs: {customer: a.customer, other: b.customer}
    edges: [orders -> found]
"""
    assert keys_of(text, orders="customer")["found"] == {"customer"}
    assert told(text, orders="customer") == []
    assert [window for window, _ in told(text, orders="order")] == ["found"]

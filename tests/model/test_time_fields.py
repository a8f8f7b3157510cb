"""The fields by which files are merged: time fields that windows name in their inputs, traced back to the sources."""

from __future__ import annotations

import pytest

from hotspare.model.time_fields import TimeFields, time_fields
from hotspare.projects.load import load_text

PATTERN = """
      found:
        type: pattern
        index: empty
        schema: "n*:int64,a:int64"
        patterns:
          p: {events: {a: {source: IN, condition: x > 0}}, logic: "fby{1 second}(a, a)", outputs: {a: a.x}, timefields: TIMES}
"""


def found(windows: str, edges: str) -> TimeFields:
    text = f"""
project: p
queries:
  q:
    windows:
      s: {{type: source, schema: "id*:int64,x:int64,at:stamp,seen:stamp", opcodes: insert-only, index: empty}}
      t: {{type: source, schema: "id*:int64,x:int64,at:stamp", opcodes: insert-only, index: empty}}
{windows}
    edges: [{edges}]
"""
    return time_fields(load_text(text).resolved)


def pattern(given: str, times: str) -> str:
    return PATTERN.replace("IN", given).replace("TIMES", times)


def fields(of: TimeFields) -> dict[str, str]:
    return {str(source): name for source, name in of.fields.items()}


def unknown(of: TimeFields) -> dict[str, str]:
    return {str(source): why for source, why in of.unknown.items()}


def test_a_pattern_tells_the_field_of_its_source() -> None:
    assert fields(found(pattern("s", "{s: seen}"), "s -> found")) == {"q/s": "seen"}


def test_a_retention_tells_it_too() -> None:
    kept = "      kept: {type: copy, retention: {bytime_sliding: 1 minute, field: at}}"
    assert fields(found(kept, "t -> kept")) == {"q/t": "at"}


@pytest.mark.parametrize(
    ("between", "name", "expected"),
    [
        ("      w: {type: filter, index: empty, condition: x > 0}", "seen", "seen"),
        (
            "      w: {type: compute, index: empty, schema: 'id*:int64,x:int64,when:stamp', outputs: {x: x, when: seen}}",
            "when",
            "seen",
        ),
    ],
)
def test_a_field_is_followed_through_windows_that_pass_or_rename_it(between: str, name: str, expected: str) -> None:
    made = found(between + pattern("w", f"{{w: {name}}}"), "s -> w, w -> found")
    assert (fields(made), unknown(made)) == ({"q/s": expected}, {})


def test_a_field_of_several_sources_is_followed_through_a_union() -> None:
    both = "      s2: {type: filter, index: empty, condition: x > 0}\n      u: {type: union, index: empty}"
    made = found(
        both.replace("s2: {type: filter, index: empty, condition: x > 0}", "v: {type: filter, index: empty, condition: x > 0}")
        + pattern("u", "{u: at}"),
        "t -> v, v -> u, t -> u, u -> found",
    )
    assert fields(made) == {"q/t": "at"}


def test_what_is_computed_is_no_field_of_the_source() -> None:
    later = (
        "      w: {type: compute, index: empty, schema: 'id*:int64,x:int64,at:stamp',"
        " outputs: {x: x, at: at + interval '1' minute}}"
    )
    made = found(later + pattern("w", "{w: at}"), "t -> w, w -> found")
    assert fields(made) == {}
    assert unknown(made) == {"q/t": "window q/found uses the time of field at of q/w, which is not a field of q/t"}


def test_of_two_fields_none_is_chosen() -> None:
    kept = "      kept: {type: copy, retention: {bytime_sliding: 1 minute, field: at}}"
    made = found(kept + pattern("s", "{s: seen}"), "s -> kept, s -> found")
    assert fields(made) == {}
    assert set(unknown(made)) == {"q/s"}


def test_a_pattern_over_two_sources_without_time_fields_goes_by_an_order_that_nothing_tells() -> None:
    two = pattern("s", "{}").replace("a: {source: s, condition: x > 0}", "a: {source: s, condition: x > 0}, b: {source: t}")
    made = found(two.replace("(a, a)", "(a, b)"), "s -> found, t -> found")
    assert set(unknown(made)) == {"q/s", "q/t"}


def test_windows_without_event_time_ask_for_none() -> None:
    made = found("      u: {type: copy}", "t -> u")
    assert (made.fields, made.unknown) == ({}, {})

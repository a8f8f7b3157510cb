"""Every mistake of a pattern is reported once, with its line and a hint; and properties of its logic (SPEC A1, A30)."""

from __future__ import annotations

import pytest

from hotspare.base.errors import ProjectError
from hotspare.flow.plan import compile_plan
from hotspare.model.window_type import type_of
from hotspare.projects import esp_xml
from hotspare.projects import yaml as yaml_project
from hotspare.projects.load import load_text
from hotspare.windows.pattern.logic import LogicRefused, certain_events, open_us_max, parse_logic
from hotspare.windows.shared.expressions import expression_mistakes

PROJECT = """
project: p
queries:
  q:
    windows:
      trades: {type: source, index: empty, opcodes: insert-only, schema: "id*:int64,symbol:string,price:double,at:stamp,n:int32"}
      orders: {type: source, index: empty, opcodes: insert-only, schema: "id*:int64,symbol:string,at:date,n:int64"}
      found:
        type: pattern
        schema: "key*:int64,symbol:string,twice:double"
        patterns:
          rise:
            index: [symbol]
            events:
              low: {source: trades, condition: p = price}
              high: {source: trades, condition: price > p * 1.5}
            logic: fby{1 minute}(low, high)
            outputs: {symbol: low.symbol, twice: {high: price * 2}}
            timefields: {trades: at}
    edges: [trades -> found, orders -> found]
"""


def mistakes(text: str) -> list[tuple[str, str]]:
    with pytest.raises(ProjectError) as raised:
        compile_plan(load_text(text, "p", expressions=expression_mistakes).resolved)
    assert all(each.place.line for each in raised.value.mistakes)
    return [(each.message, each.hint) for each in raised.value.mistakes]


@pytest.mark.parametrize(
    ("before", "after", "message", "hint"),
    [
        ("fby{1 minute}(low, high)", "fby(low, hihg)", "hihg is not an event of interest", "'high'"),
        ("fby{1 minute}(low, high)", "then(low, high)", "operator 'then' does not exist", "fby"),
        ("fby{1 minute}(low, high)", "fby{1 parsec}(low, high)", "'1 parsec' is not a duration", "{30 seconds}"),
        ("fby{1 minute}(low, high)", "fby:2(low, high)", "fby takes no count", "is and seen"),
        ("fby{1 minute}(low, high)", "fby(low)", "fby has 1 operand, not two or more", "fby{1 minute}(a, b)"),
        ("fby{1 minute}(low, high)", "fby(low, high", "a parenthesis of fby is not closed", "fby{1 minute}(a, b)"),
        ("fby{1 minute}(low, high)", "fby(low, high))", "')' follows the end of the logic", "fby{1 minute}(a, b)"),
        ("fby{1 minute}(low, high)", "fby(low, seen:0(high))", "a count is 0", "from 1"),
        ("fby{1 minute}(low, high)", "fby(low, notoccur(and(low, high)))", "notoccur takes an event of interest", "notoccur(a)"),
        ("fby{1 minute}(low, high)", "fby(low, notoccur(high))", "notoccur(high) is never complete", "notoccur{30 seconds}(a)"),
        ("fby{1 minute}(low, high)", "fby{1 second}(fby(low, notoccur(high)), low)", "is never complete", "a limit"),
        ("fby{1 minute}(low, high)", "notoccur{1 second}(high)", "no event begins", "that must occur before it"),
        ("source: trades, condition: p", "source: trade, condition: p", "which is not an input of the window", "'trades'"),
        ("low.symbol", "low.simbol", "unknown field 'simbol' of trades", "'symbol'"),
        ("low.symbol", "lo.symbol", "of 'lo', which is not an event of interest", "'low'"),
        ("symbol: low.symbol, ", "", "no output for symbol", "each field that is not a key"),
        ("symbol: low.symbol, ", "symbol: low.symbol, kex: low.id, ", "output kex, which is not a field", ""),
        ("index: [symbol]", "index: [simbol]", "unknown index field 'simbol' of trades", "'symbol'"),
        ("{trades: at}", "{trades: ad}", "unknown time field 'ad' of trades", "known are id"),
        ("{trades: at}", "{trades: price}", "time field price of trades, which is double", "date or a stamp"),
        ("{trades: at}", "{orders: at}", "time field of 'orders', of which it has no event", "'trades'"),
        ("key*:int64,symbol", "key*:double,symbol", "makes its key itself", "int64 or string"),
        ("key*:int64,symbol:", "key*:int64,symbol*:", "makes its key itself", "int64 or string"),
        ("p = price}", "p = pryce}", "unknown field", ""),
        ("price > p * 1.5", "price > q * 1.5", "unknown field q", ""),
        ("price > p * 1.5", "price > upper(p)", "upper", ""),
        ("price > p * 1.5", "p = n", "variable p is double in another event, and int32 here", "cast"),
        ("{high: price * 2}", "{high: symbol}", "field twice", ""),
        (", condition: price > p", ", condition: 2 * prize > p", "unknown field prize", "'price'"),
        ("high: {source", "fby: {source", "an event of interest called 'fby'", "not the name of an operator"),
        ("            logic: fby{1 minute}(low, high)\n", "", "has no logic", "fby{1 minute}(a, b)"),
    ],
)
def test_a_mistake_has_a_place_and_a_hint(before: str, after: str, message: str, hint: str) -> None:
    assert before in PROJECT
    found = mistakes(PROJECT.replace(before, after))
    assert any(message in said and hint in way for said, way in found), found


@pytest.mark.parametrize("output", ["[low]", "low", "''", ".symbol", "{'': symbol}"])
def test_an_output_that_is_no_field_of_an_event_is_one_mistake(output: str) -> None:
    found = mistakes(PROJECT.replace("low.symbol", output))
    assert found == [("output symbol is not a field of an event", "write event.field, or {event: expression}")]


def test_an_output_in_xml_without_an_event_is_one_mistake() -> None:
    found = mistakes(esp_xml.dump(yaml_project.load(PROJECT)).replace(' node="low"', "", 1))
    assert [message for message, _ in found] == ["a <field-selection> names no event of interest"]


def test_patterns_of_one_window_tell_time_alike() -> None:
    second = PROJECT.replace(
        "    edges:",
        """          other:
            events: {any: {source: orders}}
            logic: seen:2(any)
            outputs: {symbol: any.symbol, twice: {any: n}}
    edges:""",
    )
    assert any("has no time field of orders, while others have one" in message for message, _ in mistakes(second))


def test_the_logic_is_read_as_it_is_written() -> None:
    for text in ("a", "fby{200 milliseconds}(a, b, c)", "and(not(not(a)), fby{1 minute}(a, is:3(b)), notoccur(c))"):
        assert str(parse_logic(text)) == text
    assert parse_logic("FBY {1 MINUTE} (a,b)") == parse_logic("fby{60 seconds}(a, b)")
    assert parse_logic("is(a)") == parse_logic("is:1(a)")
    deep = "not(" * 60 + "a" + ")" * 60
    with pytest.raises(LogicRefused, match="nested"):
        parse_logic(deep)


@pytest.mark.parametrize(
    ("logic", "seconds"),
    [
        ("a", 0),
        ("or(a, b)", 0),
        ("fby(a, b)", None),
        ("fby{5 seconds}(a, b)", 5),
        ("fby{10 seconds}(a, notoccur(b))", 10),
        ("fby(a, seen{2 seconds}(b))", 2),
        ("fby(seen:2(a), seen{2 seconds}(b))", None),
        ("fby(seen{2 seconds}(a), notoccur{3 seconds}(b))", 3),
        ("fby(seen:2{2 seconds}(a), notoccur{3 seconds}(b))", 5),
        ("and(seen{2 seconds}(a), b)", None),
        ("and(seen{2 seconds}(a), seen:3{3 seconds}(b), notoccur(c))", 3),
        ("or(seen:2{2 seconds}(a), b)", None),
        ("or{9 seconds}(seen:2{2 seconds}(a), b)", 9),
    ],
)
def test_how_long_a_match_may_be_open(logic: str, seconds: int | None) -> None:
    assert open_us_max(parse_logic(logic)) == (None if seconds is None else seconds * 1_000_000)


@pytest.mark.parametrize(
    ("logic", "certain"),
    [
        ("fby(a, or(b, c), notoccur{1 second}(d))", "a"),
        ("or(and(a, b), fby(c, a))", "a"),
        ("and(not(not(a)), not(b), seen:2(c), notoccur(d))", "a c"),
        ("not(fby(a, is(b)))", ""),
    ],
)
def test_which_events_have_come_in_every_match(logic: str, certain: str) -> None:
    assert certain_events(parse_logic(logic)) == set(certain.split())


XML = """
<project name="p"><contqueries><contquery name="q"><windows>
  <window-source name="s" index="pi_EMPTY" insert-only="true"><schema-string>id*:int32,x:double</schema-string></window-source>
  <window-pattern name="w"><schema-string>id*:int64,first:int32,y:double</schema-string><patterns><pattern>{pattern}</pattern>
  </patterns></window-pattern></windows>
  <edges><edge source="s" target="w"/></edges></contquery></contqueries></project>
"""
EVENTS = '<events><event source="s" name="a">v==id and x&gt;1</event><event source="s" name="b">v!=id</event></events>'
REST = """<logic>fby(a, b)</logic>
<output><field-selection name="id" node="a"/><field-expr node="b">x*2</field-expr></output>"""


def test_both_texts_say_the_same() -> None:
    loaded = load_text(XML.format(pattern=EVENTS + REST), expressions=expression_mistakes).project
    compile_plan(load_text(XML.format(pattern=EVENTS + REST)).resolved)
    (window,) = [each for each in loaded.queries[0].windows if each.name == "w"]
    (pattern,) = window.patterns  # type: ignore[attr-defined]
    assert pattern.name == "pattern1"
    assert [output.target for output in pattern.outputs] == ["first", "y"]
    assert yaml_project.load(yaml_project.dump(loaded)) == loaded
    assert esp_xml.load(esp_xml.dump(loaded)) == loaded


CODE = """
function begins(event) return true, {x = event.x} end
function follows(event, context) return event.x > context.data.x end
function output(context) return {first = context.events.a.id, y = context.data.x} end
"""
CODE_EVENTS = '<lua-events><event name="a" func="begins"/><event name="b" source="s" func="follows"/></lua-events>'
CODE_REST = "<logic>fby(a, b)</logic><code output='output'><![CDATA[" + CODE + "]]></code>"


def test_events_of_interest_in_code_survive_both_texts() -> None:
    """The source of an event follows from the one edge to the window (SPEC A30)."""
    loaded = load_text(XML.format(pattern=CODE_EVENTS + CODE_REST), expressions=expression_mistakes).project
    (window,) = [each for each in loaded.queries[0].windows if each.name == "w"]
    (pattern,) = window.patterns  # type: ignore[attr-defined]
    assert [(each.source, each.function) for each in pattern.events] == [("s", "begins"), ("s", "follows")]
    assert pattern.script.function == "output"
    assert yaml_project.load(yaml_project.dump(loaded)) == loaded
    assert esp_xml.load(esp_xml.dump(loaded)) == loaded


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ('func="begins"', 'func="starts"', "defines no function starts"),
        ('func="begins"', "", "event a of pattern pattern1 of window w names no function of its code"),
        ("output='output'", "output='made'", "defines no function made"),
        ("<code output='output'>", "<other>", "<pattern> has no <code>"),
        ('source="s"', 'source="t"', "event b of pattern pattern1 of window w is of 't', which is not an input"),
        ("</lua-events>", "</lua-events><output/>", "<pattern> has <output> together with events of interest in code"),
        ("</lua-events>", '</lua-events><python-events><event name="c" func="f"/></python-events>', "in two languages"),
        ('func="begins"/>', 'func="begins">x > 1</event>', "event a of pattern pattern1 of window w has a condition and code"),
        ('func="begins"/>', 'func="begins" sends="x"/>', "attribute sends='x' of <event> does not exist yet"),
        ("</lua-events>", "</lua-events><use>x</use>", "element <use> in <pattern> does not exist yet"),
    ],
)
def test_mistakes_in_events_of_interest_in_code(before: str, after: str, message: str) -> None:
    text = (CODE_EVENTS + CODE_REST).replace(before, after)
    text = text.replace("</code>", "</other>") if "<other>" in text else text
    with pytest.raises(ProjectError) as raised:
        compile_plan(load_text(XML.format(pattern=text.replace("x > 1", "x &gt; 1"))).resolved)
    assert any(message in each.message for each in raised.value.mistakes), raised.value.mistakes


def test_code_may_keep_something_of_all_partitions() -> None:
    loaded = load_text(XML.format(pattern=CODE_EVENTS + CODE_REST))
    (window,) = [each.window for each in loaded.resolved.windows if each.id.window == "w"]
    found = type_of(window).carried_fields(window, [], [])
    assert "code of its pattern pattern1" in found.refusal

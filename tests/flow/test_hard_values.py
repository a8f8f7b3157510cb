"""Events for which an expression once ended an engine: each is a value or a bad event, in the core and in the head."""

from __future__ import annotations

import pytest

from hotspare.flow.head.head import Head
from hotspare.flow.pipeline import Pipeline
from hotspare.flow.plan import compile_plan
from hotspare.formats.csv.rows import CsvStyle, row_texts
from hotspare.projects.load import load_text
from hotspare.rows.batch import BAD_STREAM
from tests.flow.head.messages import Message, raw

YAML = """
project: p
queries:
  cq:
    windows:
      given:
        type: source
        opcodes: any
        index: empty
        schema: id*:int64,x:double,s:string,u:string,t:stamp,d:date,m:money
        publish: {seen}
      made: {{type: compute, schema: "id*:int64,f:{type}", outputs: {{f: "{text}"}}, publish: true}}
    edges: [given -> made]
"""
XML = """
<project name="p" pubsub="manual"><contqueries><contquery name="cq"><windows>
<window-source name="given" index="pi_EMPTY" insert-only="false" pubsub="{seen}">
<schema-string>id*:int64,x:double,s:string,u:string,t:stamp,d:date,m:money</schema-string></window-source>
<window-compute name="made" pubsub="true"><schema-string>id*:int64,f:{type}</schema-string>
<output><field-expr><![CDATA[{text}]]></field-expr></output></window-compute>
</windows><edges><edge source="given" target="made"/></edges></contquery></contqueries></project>
"""
GOOD = "i,n,1,2.5,a,b,1000000,10,3.5"
MIN, MAX = -(2**63), 2**63 - 1


def ran(form: str, text: str, type_: str, rows: list[str]) -> tuple[list[str], list[str]]:
    """Returns the computed fields and the sentences of bad events. Runs with the source published or not: in the core, or in the
    head."""
    found = []
    for seen in ("true", "false"):
        project = form.format(seen=seen, text=text, type=type_)
        plan = compile_plan(load_text(project, "p.xml" if form is XML else "p.yaml").resolved)
        pipeline = Pipeline.fresh(plan)
        try:
            outputs = pipeline.feed(Head.from_plan(plan).decode(raw([Message(0, "\n".join(rows).encode())])))
        except Exception as error:
            raise AssertionError(f"{text} ended the engine: {error!r}") from error
        made = row_texts(outputs["cq/made"], CsvStyle.EXACT) if "cq/made" in outputs else []
        bad = outputs[BAD_STREAM].column("message").to_pylist() if BAD_STREAM in outputs else []
        found.append(([row.split(",", 3)[3] for row in made], bad))
    assert found[0] == found[1]
    return found[0]


@pytest.mark.parametrize(
    ("form", "text", "type_", "row", "value"),
    [
        (YAML, "round(x, 2)", "double", "i,n,2,1e307,a,b,,,", "1e+307"),
        (YAML, "round(x, 400)", "double", "i,n,2,1.5,a,b,,,", "1.5"),
        (YAML, "round(m, -20)", "money", "i,n,2,1.5,a,b,,,12.5", "0.0000"),
        (YAML, "round(id, -1)", "int64", "i,n,25,1.5,a,b,,,", "30"),
        (YAML, "concat_ws('-', s, u)", "string", "i,n,2,1,,,,,", '""'),
        (XML, "if(m, 1, 0)", "int64", "i,n,2,1,a,b,,,0.5", "1"),
        (XML, "if(m, 1, 0)", "int64", "i,n,2,1,a,b,,,0", "0"),
        (XML, "ESP_OPCODE", "string", "i,n,2,1,a,b,,,", "I"),
        (XML, "ESP_FLAGS", "string", "i,n,2,1,a,b,,,", "N"),
        (XML, "d + m", "money", "i,n,2,1,a,b,,100,0.5", "100.5000"),
        (XML, "t - m", "money", "i,n,2,1,a,b,7,,0.5", "6.5000"),
        (YAML, "unix_seconds(t)", "int64", f"i,n,2,1,a,b,{MIN},,", "-9223372036855"),
        (YAML, "unix_seconds(t)", "int64", "i,n,2,1,a,b,-1,,", "-1"),
        (XML, "t", "date", f"i,n,2,1,a,b,{MIN},,", "-9223372036855"),
    ],
)
def test_a_hard_event_has_a_value(form: str, text: str, type_: str, row: str, value: str) -> None:
    values, bad = ran(form, text, type_, [GOOD, row, GOOD.replace("i,n,1,", "i,n,3,")])
    assert (len(values), values[1:2], bad) == (3, [value], [])


@pytest.mark.parametrize(
    ("form", "text", "type_", "row", "sentence"),
    [
        (YAML, "round(x, -308)", "double", "i,n,2,1.7e308,a,b,,,", "round: the result exceeds double"),
        (YAML, "round(m, -14)", "money", "i,n,2,1.5,a,b,,,99999999999999", "round: the result exceeds money"),
        (YAML, f"round({MAX}, -1)", "int64", "", "round: the result exceeds int64"),
        (XML, "t + m", "money", f"i,n,2,1,a,b,{MAX},,1", "the number does not fit money"),
        (YAML, "date_trunc('year', t)", "stamp", f"i,n,2,1,a,b,{MIN},,", "date_trunc: the result exceeds stamp"),
        (YAML, "replace(s, 'z', '" + "0123456789" * 1_500 + "')", "string", f"i,n,2,1,{'z' * 2_000},b,,,", "bytes"),
    ],
)
def test_a_hard_event_is_a_bad_event(form: str, text: str, type_: str, row: str, sentence: str) -> None:
    values, bad = ran(form, text, type_, [GOOD, row or GOOD.replace("i,n,1,", "i,n,2,"), GOOD.replace("i,n,1,", "i,n,3,")])
    assert len(values) + len(bad) == 3
    assert bad and all(sentence in each for each in bad)


def test_the_largest_text_of_a_value_passes() -> None:
    rows = [GOOD, f"i,n,2,1,{'z' * 1_600},b,,,"]
    values, bad = ran(YAML, "replace(s, 'z', '" + "0123456789" * 1_000 + "')", "string", rows)
    assert ([len(value) for value in values], bad) == ([1, 16_000_000], [])

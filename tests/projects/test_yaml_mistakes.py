"""Every mistake of a YAML project is reported with its line and a hint (SPEC A1, A6, A14-A26, A35, A39-A41)."""

from __future__ import annotations

import pytest

from hotspare.base.errors import ProjectError
from hotspare.projects import yaml as yaml_project
from hotspare.projects.load import load_text
from tests.model.marked import assert_only_mistake, marked_lines, mistakes

TOP = """\
project: p
queries:
  q:
    windows:
      in:
        type: source
        opcodes: any
        schema: id*:int64,t:stamp,x:double,s:string
"""
EDGE = """\
    edges:
      - in -> w
"""


def window(lines: str, more: str = "") -> str:
    """Returns a project with a source `in` and below it a window `w` of these lines."""
    body = "".join(f"        {line}\n" for line in lines.strip().splitlines())
    return TOP + "      w:" + ("" if "!!w" not in lines else " # !!") + "\n" + body.replace("!!w", "") + EDGE + more


WINDOWS = [
    ("type: unheard # !!", "window type 'unheard' of window w does not exist yet", "source"),
    ("type: fliter # !!", "window type 'fliter'", "did you mean 'filter'?"),
    ("!!w\nschema: id*:int64", "window w has no type", "source"),
    ("type: copy\nretension: {} # !!", "unknown key 'retension'", "did you mean 'retention'?"),
    ("type: copy\nretention: {bytime_slidng: 3 seconds, bycount_jumping: 3} # !!", "'bytime_slidng'", "bytime_sliding"),
    ("type: copy\nretention: {field: t} # !!", "exactly one kind", "bytime_sliding"),
    ("type: copy\nretention: {bytime_sliding: 3 second, bycount_sliding: 2} # !!", "exactly one kind", ""),
    ("type: copy\nretention: {bytime_sliding: 3} # !!", "'3' is not a duration", "30 minutes"),
    ("type: copy\nretention: {bytime_sliding: 3 fortnights} # !!", "'3 fortnights' is not a duration", "30 minutes"),
    ("type: copy\nretention: {bytime_sliding: 0.0000001 seconds} # !!", "finer than a microsecond", ""),
    ("type: copy\nretention: {bytime_sliding: 0 seconds} # !!", "not between a microsecond and a hundred years", ""),
    ("type: copy\nretention: {bytime_jumping: 101 years} # !!", "is not a duration", ""),
    ("type: copy\nretention: {bycount_sliding: many} # !!", "'many' is not a number of events", "number of events"),
    ("type: copy\nretention: {bycount_sliding: 0} # !!", "limit of 0", "positive"),
    ("type: copy\nretention: {bytime_sliding: 3 seconds, field: tt} # !!", "unknown field 'tt'", "did you mean 't'?"),
    ("type: copy\nretention: {bytime_sliding: 3 seconds, field: x} # !!", "field x, which is double", "date or stamp"),
    ("type: copy\nretention: {bycount_sliding: 3, field: t} # !!", "by count, which uses no field", ""),
    ("type: copy\nretention: {bycount_sliding: 3, by: [y]} # !!", "groups of the unknown field 'y'", ""),
    ("type: copy\nretention: {bycount_sliding: 3, by: x x} # !!", "groups of x twice", "once"),
    ("type: copy\nretention: {bycount_sliding: 3, by: {x: 1}} # !!", "by is not a list of names", "[a, b]"),
    ("type: copy\nretention: {bycount_jumping: 3, by: [x]} # !!", "which only bycount_sliding supports", "bycount_sliding:"),
    ("type: copy\nretention: {bytime_sliding: 3 hours, by: [x]} # !!", "which only bycount_sliding supports", "bycount_sliding:"),
    ("type: copy\nretention: {by: [x]} # !!", "exactly one kind", "bytime_sliding"),
    ("type: copy\nretention: {bytime_jumping_lookback: 3 hours} # !!", "without a unit", "unit hour"),
    ("type: copy\nretention: {bytime_sliding: 3 hours, unit: hour} # !!", "only bytime_jumping_lookback uses", ""),
    ("type: copy\nindex: empty\nretention: {bytime_sliding: 3 hours} # !!", "pi_EMPTY keeps nothing", "pi_HASH"),
    ("type: copy\nstate: transient # !!", "its outputs would differ", "index: empty"),
    ("type: copy\nstate: gone # !!", "state 'gone' of window w does not exist", "resilient"),
    ("type: copy\nindex: hsah # !!", "index type 'hsah' does not exist", "did you mean 'hash'?"),
    ("type: copy\nschema: id*:int64 # !!", "has the schema of its input", "leave the schema out"),
    ("type: copy\npublish: perhaps # !!", "'perhaps' does not exist", "true, false"),
    ("!!w\ntype: filter", "filter window w has no condition", "condition"),
    ("type: filter\ncondition: '' # !!", "empty expression", ""),
    ("type: filter\ncondition: [a] # !!", "not an expression", "esp"),
    ("type: filter\ncondition: {sql: a} # !!", "expression language 'sql' does not exist", ""),
    ('type: filter\ncondition: "a\\x01" # !!', "contains the character", ""),
    ('!!w\ntype: copy\ndescription: "a\\0"', "window w contains the character", ""),
    ("!!w\ntype: compute\noutputs: {}", "window w has no schema", "id*:int64"),
    ("type: compute\nschema: id*:int63 # !!\noutputs: {}", "'int63' does not exist", "did you mean 'int64'?"),
    ("type: compute\nschema: id*:int # !!\noutputs: {}", "type of field id: 'int' does not exist", "write int64, or int32"),
    ("type: compute\nschema: id*:int64,b:bool # !!\noutputs: {}", "field b: 'bool' does not exist", "write int32, with 1 for true"),
    ("type: compute\nschema: id*:int64,a:array(f32) # !!\noutputs: {}", "field a: 'array(f32)' does not exist", "array(i32)"),
    ("type: source\nschema: id*:array(i64) # !!", "key id of window w is an array(i64)", "another type"),
    ("type: compute\nschema: id # !!\noutputs: {}", "'id' is not name:type", "id*:int64"),
    ("type: compute\nschema: id*:int64,9x:double # !!\noutputs: {9x: x}", "field name '9x'", "not a digit first"),
    ("type: compute\nschema: id*:int64,x:double,x:double # !!\noutputs: {x: x}", "two fields x", ""),
    ("type: compute\nschema: id:int64,x:double # !!\noutputs: {id: id, x: x}", "no key field", "id*:int64"),
    ("type: compute\nschema: s*:string # !!\noutputs: {}", "key s:string, but its input has id:int64", "passes the key through"),
    ("!!w\ntype: compute\nschema: id*:int64,y:double\noutputs: {}", "does not compute its field y", "outputs: y"),
    ("type: compute\nschema: id*:int64\noutputs: {id: id} # !!", "computes its key field 'id'", "pass through"),
    ("type: compute\nschema: id*:int64,yy:int64\noutputs: {yy: x, y: x} # !!", "unknown field 'y'", "did you mean 'yy'?"),
    ("type: functional\nschema: id*:int64,n:int64\nfunctions: {n: x, nn: x} # !!", "unknown field 'nn'", "did you mean 'n'?"),
    ("type: functional\nschema: id*:int64,n:int64\nfunctions: {n: x}\nloops: # !!\n  a: b", "loops is not a list", "write - name"),
    (
        "type: functional\nschema: id*:int64,n:int64\nfunctions: {n: x}\nproperties:\n  p: {lists: x} # !!",
        "property p has no kind",
        "list",
    ),
    ("type: functional\nschema: id*:int64,n:int64 # !!", "field n of window w is not in its input", "add a function"),
    ("type: functional\nschema: id*:int64,x:int64 # !!", "is int64, but it passes through from the input, where it is double", ""),
]


@pytest.mark.parametrize(("lines", "message", "hint"), WINDOWS)
def test_a_window(lines: str, message: str, hint: str) -> None:
    text = window(lines)
    found = mistakes(text)
    blamed = marked_lines(text)[0]
    assert any(line == blamed and message in m and hint in h for line, m, h in found), found


CALCULATE = """\
type: calculate !!w
schema: id*:int64,n:int64,x:double
algorithm: Summary
parameters: {windowLength: 20}
inputs: {input: x}
outputs: {nOut: n}
"""


@pytest.mark.parametrize(
    ("before", "after", "message", "hint"),
    [
        ("Summary", "Sumary", "algorithm 'Sumary' of window w cannot be supported", "did you mean 'Summary'?"),
        ("windowLength: 20", "windowLength: 0", "is '0'", "from 1 to"),
        ("windowLength: 20", "windowLength: ٣", "windowLength", "from 1 to"),
        ("windowLength: 20", "windowlenght: 20", "parameter 'windowlenght'", "did you mean 'windowLength'?"),
        ("input: x", "input: xx", "unknown field 'xx'", "did you mean 'x'?"),
        ("input: x", "input: s", "observes the field s, which is string", "double"),
        ("nOut: n", "nOut: m", "unknown field 'm'", ""),
        ("nOut: n", "nout: n", "output 'nout'", "did you mean 'nOut'?"),
        ("nOut: n", "nOut: id", "to its key field id", ""),
        ("nOut: n", "nOut: n, sumOut: n", "two outputs to the field n", ""),
        ("outputs: {nOut: n}\n", "", "window w has no output", "sumOut"),
        ("inputs: {input: x}\n", "", "names no field to observe", "input"),
        ("inputs: {input: x}", "inputs: {input: x, weight: x}", "input 'weight'", "input"),
        ("algorithm: Summary\n", "", "has no algorithm", "Summary"),
        ("n:int64", "n:string", "field n, which is string", "double"),
    ],
)
def test_a_calculate_window(before: str, after: str, message: str, hint: str) -> None:
    """SPEC A39: the algorithm, its parameters, inputs and outputs are checked by name."""
    assert before in CALCULATE
    entry = "outputs:" if before == "n:int64" else after.partition(":")[0] if after and before != "Summary" else ""
    text = window(CALCULATE.replace(before, after))
    blamed = next(number for number, line in enumerate(text.splitlines(), 1) if entry in line) if entry else marked_lines(text)[0]
    found = mistakes(text)
    assert any(line == blamed and message in m and hint in h for line, m, h in found), found


SOURCE = """\
project: p
queries:
  q:
    singletons: included
    windows:
      in:
        type: source
        schema: {schema}
        {options}
"""


@pytest.mark.parametrize(
    ("schema", "options", "blamed", "message"),
    [
        ("id*:int64", "{keys: autogenerated, opcodes: any}", 6, "generates its key but is not insert-only"),
        ("id*:int32", "{keys: autogenerated, opcodes: insert-only}", 8, "one int64 or string field, not id:int32"),
        ("a*:int64,b*:int64", "{keys: autogenerated, opcodes: insert-only}", 8, "one int64 or string field, not a:int64, b:int64"),
        ("id*:int64", "opcodes: insertonly", 9, "'insertonly' does not exist"),
        ("id*:int64,t:stamp", "{index: pi_EMPTY, retention: {bytime_sliding: 1 day}}", 10, "pi_EMPTY keeps nothing"),
        ("id*:int64", "connectors: {c: {kind: fs}}", 9, "connector c has no direction"),
        ("id*:int64", "connectors: {c: {kind: mqtt, direction: publish}}", 9, "connector class 'mqtt' does not exist yet"),
        ("id*:int64", "connectors: {c d: {kind: fs, direction: publish}}", 9, "connector name 'c d'"),
        (
            "id*:int64",
            "connectors: {c: {kind: kafka, direction: publish, properties: {protofile: a}}}",
            9,
            "protofile of connector c is not implemented",
        ),
        (
            "id*:int64",
            "connectors: {c: {kind: fs, direction: publish, properties: {fstype: syslog}}}",
            9,
            "fstype 'syslog' of connector c cannot be used",
        ),
        (
            "id*:int64",
            "connectors: {c: {kind: fs, direction: publish, properties: {fstype: hdat}}}",
            9,
            "fstype 'hdat' of connector c cannot be used",
        ),
    ],
)
def test_a_source(schema: str, options: str, blamed: int, message: str) -> None:
    """SPEC A15, A16, A18, I2, I5."""
    if options.startswith("{"):
        options = "\n        ".join(options[1:-1].split(", ", 1))
    text = SOURCE.format(schema=schema, options=options)
    assert [(line, message in m) for line, m, _ in mistakes(text)] == [(blamed, True)]


GRAPH = """\
project: p
queries:
  q:
    windows:
      a: {type: source, opcodes: any, schema: "id*:int64"}
      b: {type: copy}
      c: {type: copy}
    edges:
      - a -> b
      - b -> c
"""


@pytest.mark.parametrize(
    ("before", "after", "message", "hint"),
    [
        ("- b -> c", "- b -> cc # !!", "unknown window 'cc'", "did you mean"),
        ("- b -> c", "- b c # !!", "'b c' is not an edge", "from -> to"),
        ("- b -> c", "- [b] # !!", "not [from, to]", "from -> to"),
        ("- b -> c", "- b -> c as left # !!", "edge role 'left' is not a role of an input of window c", "leave the role out"),
        ("- b -> c", "- b -> c\n      - c -> a # !!", "leads into the source window a", "connectors"),
        ("- b -> c", "- b -> c\n      - b -> c # !!", "two edges from b to c", ""),
        ("      - b -> c\n", "", "window c has no input", "add an edge"),
        ("- b -> c", "- b -> c\n      - a -> c", "window c has 2 inputs: b, a", "exactly one"),
        ("      - a -> b\n      - b -> c\n", "      - c -> b\n      - b -> c # !!\n", "windows form a cycle: ", ""),
        ("edges:\n      - a -> b\n      - b -> c", "edges: a -> b # !!", "edges are not a list", "one edge per line"),
        ("  q:\n", "  q: # !!\n    trace: [a, bb]\n", "traces the unknown window 'bb'", "did you mean 'b'?"),
        ("  q:\n", "  q: # !!\n    trase: [a]\n", "unknown key 'trase'", "did you mean 'trace'?"),
        ("      b:", "      b b:", "window name 'b b' cannot be part of a topic name", "letters"),
        ("  q:\n", "  q.q: # !!\n", "query name 'q.q' cannot be part of a topic name", "letters"),
        ("project: p", "project: p p # !!", "project name 'p p' cannot be part of a topic name", "letters"),
        ("project: p", "project: p\nheartbeat: soon # !!", "heartbeat: 'soon' is not a duration", "1 second"),
        ("project: p", "project: p\nexpressions: sql # !!", "expression language 'sql' does not exist", "spark-sql"),
        ("project: p\n", "heartbeat: 1 second # !!\n", "the project has no name", "project: NAME"),
        ("      c: {type: copy}", "      c: {type: copy}\n      b: {type: copy} # !!", "'b' is given twice", "line 6"),
    ],
)
def test_the_graph(before: str, after: str, message: str, hint: str) -> None:
    """SPEC A1, A2, A35, A40."""
    assert before in GRAPH
    text = GRAPH.replace(before, after, 1)
    found = mistakes(text)
    lines = marked_lines(text) or [line for line, _, _ in found]
    if "twice" in message:
        lines = [text.splitlines().index("      b: {type: copy} # !!") + 1]
    if "trase" in after:
        lines = [text.splitlines().index("    trase: [a]") + 1]
    assert any(line in lines and message in m and hint in h for line, m, h in found), found


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("a: [", 2, "this is not YAML"),
        ("a: b\n c: d\n", 2, "this is not YAML"),
        ("", 0, "the project is not a mapping"),
        ("- a\n", 1, "the project is not a mapping"),
        ("project: p\nqueries: &x {}\n", 2, "anchors and aliases are not accepted"),
        ("project: p\nqueries: *x\n", 2, "anchors and aliases are not accepted"),
        ("project: p\nqueries: !!python/object:os.system {}\n", 2, "is not accepted"),
        ("project: p\n---\nproject: q\n", 3, "one YAML document"),
        ("project: p\nqueries: " + "[" * 30 + "]" * 30, 2, "nested deeper than 20"),
        ("? [a]\n: b\n", 1, "a key must be a text"),
        ("project: p\nqueries: 3\n", 2, "queries is not a mapping"),
        ("project: p\n", 1, "has no continuous query"),
        ("project: p\nqueries: {q: {}}\n", 2, "query q has no window"),
    ],
)
def test_the_text(text: str, line: int, message: str) -> None:
    """Limits and refusals of the text itself, before it is a project."""
    assert any(at == line and message in m for at, m, _ in mistakes(text))


def test_deep_nesting_is_refused_without_recursion() -> None:
    """Limits on everything: a hostile text must not exhaust the stack."""
    assert mistakes("[" * 100_000)


def test_all_mistakes_are_told_together() -> None:
    """A single reading reports the front end's and the model's mistakes, in the order of the text."""
    text = (
        GRAPH.replace("b: {type: copy}", "b: {type: copi} # !!")
        .replace("- b -> c", "- b -> c\n      - c -> d # !!")
        .replace("project: p", "project: p\nheartbeat: 0 seconds # !!")
    )
    assert [line for line, _, _ in mistakes(text)] == marked_lines(text)


def test_load_refuses_what_it_cannot_read() -> None:
    with pytest.raises(ProjectError, match="project p has 1 mistake"):
        yaml_project.load("project: p\nqueries: {q: {windows: {a: {}}}}\n", "f.yaml")


def test_a_hidden_project_publishes_nothing() -> None:
    """SPEC A41: a source that no edge touches does not take part, so nothing is left to publish."""
    text = "project: p # !!\nqueries: {q: {windows: {a: {type: source, opcodes: any, schema: 'id*:int64', publish: false}}}}\n"
    assert_only_mistake(text, "publishes nothing", "include-singletons")
    assert load_text(text.replace(", publish: false", "")).resolved.streams

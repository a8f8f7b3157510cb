"""The properties on which a group must agree: the hash, and differences in words (SPEC A44; a changed project under the same
prefix).
"""

from __future__ import annotations

import pytest

from hotspare.base.errors import ProjectError, UsageError
from hotspare.model.connector_rules import rebind
from hotspare.projects import yaml as yaml_project
from hotspare.projects.fingerprint import differences, project_hash
from hotspare.projects.load import load_text

BASE = """\
project: p
queries:
  q:
    windows:
      in:
        type: source
        opcodes: any
        schema: id*:int64,x:double
        connectors:
          file: {kind: fs, direction: publish, properties: {fsname: a.csv, fstype: csv}}
      kept: {type: copy, retention: {bytime_sliding: 3 seconds}}
      sums:
        type: calculate
        schema: id*:int64,total:double
        algorithm: Summary
        parameters: {windowLength: 20}
        inputs: {input: x}
        outputs: {sumOut: total}
      big: {type: filter, condition: total > 9, connectors: {file: {kind: fs, direction: subscribe, properties: {fsname: b.csv}}}}
    edges: [in -> kept, kept -> sums, sums -> big]
"""


def test_the_hash_is_the_same_on_every_machine() -> None:
    """If this digest changes, groups of the last version refuse to continue: change fingerprint.FORMAT knowingly."""
    assert project_hash(yaml_project.load(BASE)) == "c3b5a0abe29e957b78df28f395c6cd26403bdc1dc153f0502905ffbd544e59fc"


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("3 seconds", "5 seconds", ["window q/kept: retention was bytime_sliding 3 seconds, is bytime_sliding 5 seconds"]),
        ("windowLength: 20", "windowLength: 21", ["window q/sums: parameter windowLength was 20, is 21"]),
        ("total > 9", "total > 8", ["window q/big: condition was total > 9 (spark-sql), is total > 8 (spark-sql)"]),
        ("type: source\n", "type: source\n        index: empty\n", ["window q/in: index was keyed, is empty"]),
        ("project: p", "project: p\nheartbeat: 2 seconds", ["project: heartbeat was 1 second, is 2 seconds"]),
        (
            "kept: {type: copy, retention: {bytime_sliding: 3 seconds}}",
            "kept: {type: copy, publish: true}",
            [
                "project: published windows was q/big, is q/big, q/kept",
                "window q/kept: retention was bytime_sliding 3 seconds, is none",
            ],
        ),
        ("      big:", "      extra: {type: copy, publish: false}\n      big:", None),
    ],
)
def test_changes_of_meaning_are_told(before: str, after: str, words: list[str] | None) -> None:
    assert before in BASE
    changed = BASE.replace(before, after)
    if words is None:
        changed = changed.replace("edges: [", "edges: [in -> extra, ")
        words = ["window q/extra was added"]
    first, second = load_text(BASE).project, load_text(changed).project
    assert differences(first, second) == words
    assert project_hash(first) != project_hash(second)
    if words == ["window q/extra was added"]:
        assert differences(second, first) == ["window q/extra was removed"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("project: p", "project: p\ndescription: another\nmetadata: {a: b}\nproperties: {X: y}"),
        ("fsname: a.csv", "fsname: other.csv"),
        ("    windows:", "    trace: [in]\n    windows:"),
        ("total > 9", "'  total > 9 '"),
        ("type: source\n", "type: source\n        index: rbtree\n"),
        ("type: source\n", "type: source\n        index: hleveldb\n"),
        ("3 seconds", "3000 milliseconds"),
        ("kept: {type: copy, ", "kept: {type: copy, schema: 'id*:int64,x:double', "),
        ("{type: filter, ", "{type: filter, publish: true, "),
    ],
)
def test_changes_without_meaning_are_not(before: str, after: str) -> None:
    """Connectors, descriptions, and other forms of the same project keep a group's state valid."""
    assert before in BASE
    first, second = load_text(BASE).project, load_text(BASE.replace(before, after)).project
    assert differences(first, second) == []
    assert project_hash(first) == project_hash(second)


def test_windows_may_stand_in_any_order_that_evaluates_alike() -> None:
    """SPEC 5.1: the order of the list is not the order of the data."""
    text = BASE.replace("    windows:\n", "    windows:\n      last: {type: copy, publish: false}\n").replace(
        "sums -> big]", "sums -> big, big -> last]"
    )
    lines = text.splitlines(keepends=True)
    lines.append(lines.pop(next(i for i, line in enumerate(lines) if "edges:" in line)))
    moved = lines.pop(4)
    assert "last:" in moved
    lines.insert(-1, moved)
    assert project_hash(load_text(text).project) == project_hash(load_text("".join(lines)).project)


def test_connectors_are_bound_from_outside() -> None:
    """Bindings set bus URL, file folder and properties without editing the project; the more exact name has precedence."""
    project = load_text(BASE).project
    bound = rebind(
        project,
        {
            "file": {"fstype": "csv", "fsname": "all.csv"},
            "q/in": {"fsname": "in.csv", "rate": "5"},
            "q/in/file": {"rate": "7"},
            "q/big/file": {"class": "kafka", "kafkatype": "csv"},
        },
    )
    query = bound.queries[0]
    assert query.windows[0].connectors[0].properties == (("fsname", "in.csv"), ("fstype", "csv"), ("rate", "7"))
    big = query.windows[3].connectors[0]
    assert (big.kind, big.properties) == ("kafka", (("fsname", "all.csv"), ("fstype", "csv"), ("kafkatype", "csv")))
    assert project_hash(bound) == project_hash(project)
    assert rebind(project, {}) == project


def test_a_connector_that_does_not_exist_can_be_bound_to_one_that_does() -> None:
    text = BASE.replace("{kind: fs, direction: publish", "{kind: mqtt, direction: publish")
    with pytest.raises(ProjectError, match="connector class 'mqtt' does not exist yet"):
        load_text(text)
    loaded = load_text(text, bindings={"q/in/file": {"class": "fs", "fsname": "x.csv"}})
    assert loaded.resolved.windows[0].window.connectors[0].properties == (("fsname", "x.csv"),)


@pytest.mark.parametrize(("key", "hint"), [("q/inn", "did you mean 'q/in'?"), ("zzz", "use one of: file, q/big, q/big/file")])
def test_a_binding_must_name_a_connector(key: str, hint: str) -> None:
    with pytest.raises(UsageError) as raised:
        rebind(load_text(BASE).project, {key: {}})
    assert hint in raised.value.hint

"""Streams that a project reads from other projects, and its own streams that others read (SPEC K10)."""

from __future__ import annotations

import pytest

from hotspare.base.errors import ProjectError
from hotspare.base.inbound_role import InboundRole
from hotspare.bus.contract import Partition
from hotspare.flow.plan import Plan, compile_plan
from hotspare.host.topics import group_topics
from hotspare.model.cascades import StreamRef
from hotspare.model.frontends.esp_xml.text import dump as to_xml
from hotspare.model.project import Beats
from hotspare.projects.fingerprint import differences
from hotspare.projects.load import load_text
from hotspare.projects.yaml import dump as to_yaml

PROJECT = """
project: p
queries:
  q:
    windows:
      a: {type: source, opcodes: any, schema: "id*:int64", READS}
      b: {type: filter, condition: id > 1, publish: true, BEATS}
    edges: [a -> b]
"""


def project(reads: str = "reads: before/q/w", beats: str = "beats: included") -> str:
    return PROJECT.replace("READS", reads or "index: hash").replace("BEATS", beats or "index: hash")


def plan(text: str) -> Plan:
    return compile_plan(load_text(text).resolved)


def mistakes(text: str) -> str:
    with pytest.raises(ProjectError) as found:
        load_text(text)
    return "\n".join(f"{each.message} ({each.hint})" for each in found.value.mistakes)


@pytest.mark.parametrize("dump", [to_yaml, to_xml])
def test_both_texts_say_it(dump) -> None:  # type: ignore[no-untyped-def]
    loaded = load_text(project()).project
    again = load_text(dump(loaded)).project
    assert again == loaded
    assert again.queries[0].windows[1].beats is Beats.INCLUDED


def test_a_group_of_before_is_told_what_changed() -> None:
    was, now = load_text(project("", "")).project, load_text(project()).project
    said = "\n".join(differences(was, now))
    assert "beats was absent, is included" in said
    assert "reads was absent, is before/q/w" in said


@pytest.mark.parametrize(
    ("reads", "beats", "said"),
    [
        ("reads: q/w", "", "names no window (write project/query/window"),
        ("reads: a/b/c/d", "", "names no window"),
        ("reads: p/q/b", "", "reads p/q/b, of its own project (draw an edge"),
        (
            "reads: o/q/b, connectors: {c: {kind: fs, direction: publish, properties: {fsname: f, fstype: csv}}}",
            "",
            "connector c publishes to window a, which reads o/q/b",
        ),
        ("", "beats: included, quality: simple", "has beats, but its quality is simple"),
        ("", "beats: sometimes", "beats: 'sometimes' does not exist"),
        ("beats: included", "", "has beats, but its outputs are not published"),
    ],
)
def test_mistakes(reads: str, beats: str, said: str) -> None:
    assert said in mistakes(project(reads, beats))


def test_what_a_group_reads_and_where_it_may_write() -> None:
    made = plan(project())
    topics = group_topics(made.resolved.project, made, "x", found={"x.before.q.w.O": 3})
    assert [(each.name, each.partitions, each.kind) for each in topics.inbound] == [
        ("x.before.q.w.O", 3, InboundRole.OUTPUTS),
        ("x.p.T", 1, InboundRole.TICKS),
    ]
    assert [partition for _, partition in topics.own_partitions] == [Partition("x.p.T")]
    assert made.resolved.reads(made.resolved.sources[0]) == StreamRef("before", "q", "w")


def test_a_project_with_a_topic_of_its_own_shows_signs_of_life_beside_it() -> None:
    """Events of its own topic may wait for the other project while that is stopped."""
    text = (
        project()
        .replace("edges:", "  c: {type: source, opcodes: any, schema: 'id*:int64'}\n    edges:")
        .replace("filter, condition: id > 1", "union")
    )
    made = plan(text.replace("a -> b", "a -> b, c -> b"))
    topics = group_topics(made.resolved.project, made, "x")
    assert [each.kind for each in topics.inbound] == [InboundRole.OUTPUTS, InboundRole.EVENTS, InboundRole.TICKS]
    assert topics.tick_only_partitions == {(2, 0)}

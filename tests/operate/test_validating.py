"""The facts of a project that a program checks before it runs."""

from __future__ import annotations

import pytest

from hotspare.base.errors import ProjectError
from hotspare.ha.rules.settings import GroupSettings
from hotspare.operate.groups import ServiceUrls
from hotspare.operate.validating import ValidationRequest, validate
from hotspare.projects.load import load_text
from tests.cli.kept import PROJECT

TIMED = """
project: timed
queries:
  q:
    windows:
      a: {type: source, opcodes: insert-only, schema: 'id*:int64,v:double'}
      b: {type: copy, retention: {bytime_sliding: 10 minutes}}
    edges: [a -> b]
"""


def request(text: str, shards: int = 1, topic_retention_ms: int | None = None) -> ValidationRequest:
    return ValidationRequest(load_text(text), "p", shards, GroupSettings(), ServiceUrls(""), topic_retention_ms)


def test_windows_topics_and_shards_are_facts() -> None:
    found = validate(request(TIMED, shards=2))
    assert [(each.window, each.type, each.inputs) for each in found.windows] == [("q/a", "source", ()), ("q/b", "copy", ("q/a",))]
    assert [(each.kind, each.topic) for each in found.topics] == [
        ("input", "p.timed.q.a.I"),
        ("output", "p.timed.q.b.O"),
        ("bad events", "p.timed.B"),
    ]
    assert (found.groups, found.partition_fields) == (("p.timed/0", "p.timed/1"), {"q/a": "id"})
    assert validate(request(TIMED)).partition_fields == {}


def test_a_retention_that_is_too_short_is_a_finding() -> None:
    assert validate(request(TIMED)).warning_count == 0
    short = validate(request(TIMED, topic_retention_ms=1_000))
    assert short.warning_count
    assert any("q/b" in finding.message for finding in short.findings)


def test_a_project_that_cannot_be_divided_is_refused() -> None:
    with pytest.raises(ProjectError):
        validate(request(PROJECT, shards=2))

"""`hotspare reset` of a group whose output streams others read (SPEC K10); the rest of it is tested in tests/e2e/test_reset.py."""

from __future__ import annotations

from pathlib import Path

from hotspare.bus.open import open_bus
from hotspare.coordination.open import default_coordination_url, open_coordination
from hotspare.flow.plan import compile_plan
from hotspare.ha.effects.joining import agreed_project
from hotspare.host.definition import project_identity
from hotspare.projects.load import load_text
from tests.cli.running import hotspare_here

PROJECT = """
project: NAME
queries:
  q:
    windows:
      given: {type: source, opcodes: any, schema: "id*:int64"READS}
      made: {type: copy, publish: true, beats: included}
    edges: [given -> made]
"""


def test_a_group_is_not_forgotten_before_those_that_read_its_streams(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'bus.db'}"
    open_bus(url).close()
    service = open_coordination(default_coordination_url(url))
    for group, reads in (("p.a", ""), ("p.b/0", "a/q/made"), ("p.c", "b/q/made"), ("other.d", "a/q/made")):
        loaded = load_text(PROJECT.replace("NAME", group[-1]).replace("READS", f", reads: {reads}" if reads else ""))
        agreed_project(service, group, project_identity(loaded.project, compile_plan(loaded.resolved)))
    refused = hotspare_here("reset", "--group", "p.a", "--bus", url, "--yes")
    assert refused.returncode == 2
    assert "group p.b/0 reads the outputs of group p.a" in refused.stderr
    assert "hotspare reset --group p.b" in refused.stderr
    for group in ("p.c", "p.b", "p.a"):
        assert hotspare_here("reset", "--group", group, "--bus", url, "--yes").returncode == 0
    service.close()

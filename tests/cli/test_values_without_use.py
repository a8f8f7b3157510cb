"""Values that are given and not used, or needed and not given, are named when a project is checked (SPEC A4, I2)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.running import hotspare_here

YAML = """
project: p
properties: {LIMIT: "1"}
queries:
  q:
    windows:
      source:
        type: source
        opcodes: any
        schema: id*:int64,x:double
        connectors:
          in: {kind: fs, direction: publish, properties: {fstype: csv}}
      big: {type: filter, condition: x > @LIMIT@ + @MORE@}
    edges: [source -> big]
"""
XML = """<project name="p"><properties><property name="LIMIT">1</property></properties>
<contqueries><contquery name="q"><windows>
<window-source name="source"><schema-string>id*:int64,x:double</schema-string>
<connectors><connector name="in" class="fs"><properties><property name="type">pub</property></properties></connector></connectors>
</window-source>
<window-filter name="big"><expression>x &gt; @LIMIT@ + @MORE@</expression></window-filter>
</windows><edges><edge source="source" target="big"/></edges></contquery></contqueries></project>
"""


@pytest.mark.parametrize(("file", "text"), [("p.yaml", YAML), ("p.xml", XML)])
def test_a_value_that_the_project_does_not_use_is_warned_about(tmp_path: Path, file: str, text: str) -> None:
    """A typo in the name of a property used to have no effect, without a warning."""
    (tmp_path / file).write_text(text)
    done = hotspare_here("validate", tmp_path / file, "--set", "MORE=2", "--set", "LIMTI=5", "--set", "ESP_PROJECT_HOME=here")
    assert done.returncode == 0, done.stderr
    assert "the project has no property LIMTI, which is given from outside\n    hint: did you mean 'LIMIT'?" in done.stderr
    assert "no property MORE" not in done.stderr
    assert "no property ESP_PROJECT_HOME" not in done.stderr


@pytest.mark.parametrize(
    "text", [XML, XML.replace("</property></properties></connector>", '</property><property name="fsname"/>$&')]
)
def test_a_file_connector_without_a_file_is_warned_about(tmp_path: Path, text: str) -> None:
    (tmp_path / "p.xml").write_text(text.replace("$&", "</properties></connector>"))
    done = hotspare_here("validate", tmp_path / "p.xml", "--set", "MORE=2")
    assert done.returncode == 0, done.stderr
    assert "p.xml:4: connector in has no fsname, which it needs to start" in done.stderr
    assert "--bind in:fsname=" in done.stderr


@pytest.mark.parametrize(("option", "value"), [("--spares", "2"), ("--project", "windows")])
def test_an_option_that_the_demo_on_a_cluster_does_not_use_is_refused(option: str, value: str) -> None:
    done = hotspare_here("demo", "--cluster", option, value)
    assert done.returncode == 2
    assert f"{option} with --cluster has no effect" in done.stderr

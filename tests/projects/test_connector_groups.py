"""Groups of connectors in projects: read, written, checked (SPEC I12)."""

from __future__ import annotations

import pytest

from hotspare.base.errors import ProjectError
from hotspare.model.project import ConnectorEntry, ConnectorGroup, ConnectorTarget
from hotspare.projects import esp_xml as esp_xml_project
from hotspare.projects import yaml as yaml_project
from hotspare.projects.load import load_text

XML = """
<engine port="1"><http-servers><http-admin-server port="2"/></http-servers><projects>
<project name="p">
  <contqueries><contquery name="q">
    <windows>
      <window-source name="a">
        <schema-string>id*:int64,x:double</schema-string>
        <connectors>
          <connector class="fs" name="in"><properties><property name="type">pub</property>
            <property name="fsname">in.csv</property></properties></connector>
          <connector class="mqtt" name="off" active="false" connection-name="m"><properties>
            <property name="type">pub</property></properties></connector>
        </connectors>
      </window-source>
      <window-copy name="b">
        <connectors>
          <connector class="fs" name="out" type="subscribe"><properties>
            <property name="fsname">out.csv</property></properties></connector>
        </connectors>
      </window-copy>
    </windows>
    <edges><edge source="a" target="b"/></edges>
  </contquery></contqueries>
  <project-connectors>
    <connector-groups>
      <connector-group name="subs"><connector-entry connector="q/b/out" state="running"/></connector-group>
      <connector-group name="pubs"><connector-entry connector="q/a/in" state="finished"/>
        <connector-entry connector="q/a/off" state="finished"/></connector-group>
      <connector-group name="last"/>
    </connector-groups>
    <edges><description>d</description>
      <edge source="subs" target="pubs last"/><edge source="pubs" target="last"/><edge source="subs" target="last"/></edges>
  </project-connectors>
</project></projects></engine>
"""
GROUPS = (
    ConnectorGroup("subs", (ConnectorEntry("q/b/out", ConnectorTarget.RUNNING),)),
    ConnectorGroup("pubs", (ConnectorEntry("q/a/in", ConnectorTarget.FINISHED),), ("subs",)),
    ConnectorGroup("last", (), ("subs", "pubs")),
)
YAML = """
project: p
queries:
  q:
    singletons: included
    windows:
      a:
        type: source
        opcodes: any
        schema: id*:int64
        connectors:
          in: {kind: fs, direction: pub, properties: {fsname: f}}
          out: {kind: fs, direction: sub, properties: {fsname: g}}
connector_groups:
  one:
    connectors:
      q/a/in: finished
  two:
    connectors: {}
    after: [one]
"""


def test_groups_of_esp_xml() -> None:
    """SPEC I12: disabled connectors are left out of their groups; servers of another engine have no effect, with a warning."""
    loaded = load_text(XML)
    assert loaded.project.connector_groups == GROUPS
    warnings = " ".join(warning.message for warning in loaded.warnings)
    assert "switched off" in warnings
    assert "http-servers" in warnings


def test_groups_are_written_and_read_back() -> None:
    project = load_text(XML).project
    for form in (yaml_project, esp_xml_project):
        assert form.load(form.dump(project)) == project


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("q/a/in: finished", "q/a/on: finished # !!", ("unknown connector", "q/a/in")),
        ("q/a/in: finished", "q/a/in: done # !!", ("state of connector q/a/in", "running")),
        ("  two:\n    connectors: {}\n", "  two: # !!\n    connectors: {q/a/in: finished} # !!\n", None),
        ("after: [one]", "after: [on]", ("unknown group", "one")),
        ("after: [one]", "after: [two]", ("after itself", "name")),
        ("  one:\n", "  one:\n    after: [two]\n", ("wait for each other", "edge")),
        ("  one:\n", "  one:\n    before: [two]\n", ("unknown key", "after")),
        ("  two:\n", "  t wo:\n", ("cannot be used", "letters")),
    ],
)
def test_mistakes_of_groups_are_named(old: str, new: str, words: tuple[str, str] | None) -> None:
    assert YAML.count(old) == 1
    with pytest.raises(ProjectError) as error:
        load_text(YAML.replace(old, new))
    told = [f"{mistake.message} {mistake.hint}" for mistake in error.value.mistakes]
    assert len(told) == 1, told
    for word in words or ("groups one and two", "leave one"):
        assert word in told[0]


def test_a_subscriber_never_finishes() -> None:
    loaded = load_text(YAML.replace("q/a/in: finished", "q/a/out: finished"))
    assert ["never finished" in warning.message for warning in loaded.warnings] == [True]


def test_a_connector_of_a_window_that_cannot_be_read_is_not_spoken_of() -> None:
    text = XML.replace("window-copy", "window-copies")
    with pytest.raises(ProjectError) as error:
        load_text(text)
    assert ["q/b/out" in mistake.message for mistake in error.value.mistakes] == [False]


@pytest.mark.parametrize(
    ("tag", "words"),
    [("score", "vendor"), ("procedural", "Python or Lua"), ("object-tracker", "not published")],
)
def test_what_needs_somebody_elses_software_is_refused_with_the_reason(tag: str, words: str) -> None:
    with pytest.raises(ProjectError) as error:
        load_text(XML.replace("window-copy", f"window-{tag}"))
    (mistake,) = error.value.mistakes
    assert f"window type '{tag}' of window b cannot be supported" in mistake.message
    assert words in mistake.message


def test_modules_of_another_service_are_refused_with_the_reason() -> None:
    with pytest.raises(ProjectError) as error:
        load_text(XML.replace("  <contqueries>", "  <mas-modules/><contqueries>"))
    assert ["<mas-modules>" in mistake.message for mistake in error.value.mistakes] == [True]


def test_a_query_without_edges_has_its_sources_with_connectors() -> None:
    """SPEC A41: next to windows with edges, a source without edges does not take part, with connectors or without."""
    begin, end = XML.index("<window-copy"), XML.index("</windows>")
    text = XML[:begin] + '<window-source name="z"><schema-string>id*:int64</schema-string></window-source>' + XML[end:]
    text = text.replace('<edges><edge source="a" target="b"/></edges>', "").replace("q/b/out", "q/a/in")
    text = text.replace('<connector-entry connector="q/a/in" state="finished"/>\n', "")
    assert [str(window.id) for window in load_text(text).resolved.windows] == ["q/a"]

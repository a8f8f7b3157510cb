"""Forms in public SAS ESP projects that the other test texts lack (SPEC A26, A37, Z27)."""

from __future__ import annotations

import pytest

from hotspare.model.code import Language, Script
from hotspare.model.project import Project, WindowId
from hotspare.projects import esp_xml
from hotspare.projects.load import load_text
from hotspare.windows.filter.declaration import FilterWindow
from hotspare.windows.lua.declaration import LuaWindow
from hotspare.windows.statedb_reader.declaration import StatedbReaderWindow

PROJECT = """
<project name="p"><contqueries>
  <contquery name="q"><windows>
    <window-source name="s" insert-only="true" index="pi_EMPTY" autogen-key="{generated}">
      <schema-string>id*:int64,x:double</schema-string>
      <connectors><connector class="fs" name="in"><properties>
        <property name="type">pub</property><property name="fsname">f.csv</property>
        <property name="noautogenfield">{lacks}</property>
      </properties></connector></connectors>
    </window-source>
    <window-lua name="l" events="make" index="pi_EMPTY">
      <schema-string>id*:int64,x:double</schema-string>
      <code>function make(event) return {{x = event.x}} end</code>
      <forwarding><destinations>
        <destination window="one" contquery="other" active="true" blocksize="1"/>
        <destination window="two" contquery="other" active="{active}"/>
      </destinations></forwarding>
    </window-lua>
  </windows><edges><edge source="s" target="l"/></edges></contquery>
  <contquery name="other" include-singletons="true"><windows>
    <window-source name="one"><schema-string>id*:int64,x:double</schema-string></window-source>
    <window-source name="two"><schema-string>id*:int64,x:double</schema-string></window-source>
  </windows></contquery>
</contqueries></project>
"""


@pytest.mark.parametrize(("active", "targets"), [("true", ["one", "two"]), ("false", ["one"])])
def test_a_destination_may_be_switched_off(active: str, targets: list[str]) -> None:
    loaded = load_text(PROJECT.format(generated="true", lacks="false", active=active), "p.xml")
    window = loaded.project.queries[0].windows[1]
    assert isinstance(window, LuaWindow)
    assert window.forward == tuple(WindowId("other", each) for each in targets)
    told = [warning.message for warning in loaded.warnings if "switched off" in warning.message]
    assert told == [f"destination other/{each} is switched off and left out" for each in ("two",) if each not in targets]


@pytest.mark.parametrize(("generated", "lacks", "kept"), [("true", "true", "true"), ("false", "true", ""), ("false", "false", "")])
def test_rows_lack_the_key_only_where_it_is_generated(generated: str, lacks: str, kept: str) -> None:
    """A public project has the property for a window that generates no key; its rows have all columns."""
    loaded = load_text(PROJECT.format(generated=generated, lacks=lacks, active="true"), "p.xml")
    assert loaded.project.queries[0].windows[0].connectors[0].get("noautogenfield") == kept
    assert any("generates no key" in warning.message for warning in loaded.warnings) is (kept != lacks and lacks == "true")


FILTER = """
<project name="p"><contqueries><contquery name="q"><windows>
  <window-source name="s"><schema-string>id*:int64,x:double</schema-string></window-source>
  <window-filter name="f" func="filter"><use>x</use><code><![CDATA[{code}]]></code></window-filter>
</windows><edges><edge source="s" target="f"/></edges></contquery></contqueries></project>
"""
PYTHON = 'def filter(event,context):\n   return "x" in event and event["x"] is not None'
LUA = "function filter(event, context)\n  return event.x ~= nil\nend"


@pytest.mark.parametrize(
    ("code", "language"),
    [
        (PYTHON, Language.PYTHON),
        ("import math\n\n" + PYTHON, Language.PYTHON),
        (LUA, Language.LUA),
        ("-- def filter(x)\n" + LUA, Language.LUA),
    ],
)
def test_a_filter_s_language_is_seen_by_its_code(code: str, language: Language) -> None:
    """SPEC A26: public projects have both languages in the same element."""
    project = load_text(FILTER.format(code=code), "p.xml").project
    assert _script(project).language is language
    assert esp_xml.load(esp_xml.dump(project)) == project


def test_a_language_that_does_not_look_like_it_is_written() -> None:
    text = FILTER.format(code="--[[\ndef x(\n]]\n" + LUA)
    project = load_text(text.replace("func=", 'xmlns:hs="urn:hotspare" hs:language="lua" func='), "p.xml").project
    assert _script(project).language is Language.LUA
    assert esp_xml.load(esp_xml.dump(project)) == project


def _script(project: Project) -> Script:
    window = project.queries[0].windows[1]
    assert isinstance(window, FilterWindow)
    assert isinstance(window.condition, Script)
    return window.condition


def test_what_a_project_asks_of_its_server_has_no_effect() -> None:
    """SPEC A2: requests that wait for an answer are the server's."""
    text = PROJECT.format(generated="true", lacks="false", active="true")
    asked = text.replace('name="p"', 'name="p" score-input-window="q/s" score-input-field="x"')
    told = [warning.message for warning in load_text(asked, "p.xml").warnings]
    assert [each.partition(" of ")[0] for each in told[:2]] == ["attribute score-input-window", "attribute score-input-field"]


STATE = """
<project name="p"><contqueries><contquery name="q"><windows>
  <window-source name="s" insert-only="true" index="pi_EMPTY"><schema-string>id*:int64,kind:string</schema-string></window-source>
  <window-statedb-reader name="r">
    <statedb cluster="false" hostname="h" keep-alive-ping="15" port="6379" type="redis"/>
    <query prefix="stream" query="kind==KIND"/>
    <schema-string>id*:int64,most:int64</schema-string>
    <output><field-selection name="id" source="input"/><field-selection aggregate="ESP_aMax" name="ID" source="query"/></output>
  </window-statedb-reader>
</windows><edges><edge slot="0" source="s" target="r"/></edges></contquery></contqueries></project>
"""


def test_a_state_database_is_read_as_a_public_project_writes_it() -> None:
    """SPEC G13: the keep-alive attribute is not needed, with a warning."""
    loaded = load_text(STATE, "p.xml")
    window = loaded.project.queries[0].windows[1]
    assert isinstance(window, StatedbReaderWindow)
    assert (window.server, window.where) == ("redis://h:6379/0", (("kind", "KIND"),))
    assert any("attribute keep-alive-ping of <statedb> has no effect" in warning.message for warning in loaded.warnings)

"""Snippets, and functions that take fields: their forms in projects, and the errors (SPEC A36, A38)."""

from __future__ import annotations

import pytest

from hotspare.base.errors import ProjectError
from hotspare.model.code import Arguments, ModuleUse
from hotspare.model.frontends.esp_xml import text as esp_xml
from hotspare.model.frontends.yaml import text as yaml_text
from hotspare.projects.fingerprint import differences, project_hash
from hotspare.projects.load import load_text
from hotspare.windows.python.declaration import PythonWindow

XML = """\
<project name="p">
  <python-modules><python-module name="m"><code>x = 1</code></python-module></python-modules>
  <python-snippets>
    <python-snippet name="m" destroy="end"><code>import m
def f(a): return a + m.x</code></python-snippet>
  </python-snippets>
  <contqueries><contquery name="q">
    <windows>
      <window-source name="given"><schema-string>id*:int64,a:int64,b:int64</schema-string></window-source>
      <window-python name="made" events="create">
        <schema-string>id*:int64,a:int64</schema-string>
        <use expand="true">a</use>
        <code>import esp
def create(a): return {"a": esp.call(a, _pyname_="m", _pyfunc_="f")["results"][0]}</code>
      </window-python>
      <window-python name="alone" events="create">
        <schema-string>id*:int64,a:int64</schema-string>
        <code>def create(event): return {"a": 1}</code>
      </window-python>
    </windows>
    <edges><edge source="given" target="made"/><edge source="given" target="alone"/></edges>
  </contquery></contqueries>
</project>
"""


def test_both_texts_of_a_project_say_the_same() -> None:
    project = load_text(XML).project
    assert load_text(yaml_text.dump(project)).project == load_text(esp_xml.dump(project)).project == project


def test_a_window_has_the_snippets_and_what_they_import_if_it_may_call_them() -> None:
    alone, _, made = sorted(load_text(XML).resolved.windows, key=lambda window: window.id.window)
    assert [(each.name, each.use) for each in made.modules] == [("m", ModuleUse.SNIPPET), ("m", ModuleUse.MODULE)]
    assert alone.modules == ()
    assert isinstance(made.window, PythonWindow)
    assert made.window.script.arguments is Arguments.FIELDS


def test_another_snippet_is_another_project() -> None:
    before, after = load_text(XML).project, load_text(XML.replace("a + m.x", "a - m.x")).project
    assert project_hash(before) != project_hash(after)
    assert any("snippet m" in difference for difference in differences(before, after))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "<python-snippets>",
            '<lua-snippets><lua-snippet name="t"><lua-thread/><code>x = 1</code></lua-snippet></lua-snippets><python-snippets>',
            "<lua-thread> in <lua-snippet>",
        ),
        (
            "<python-snippets>",
            '<lua-snippets><lua-snippet name="m"><code>x = 1</code></lua-snippet></lua-snippets><python-snippets>',
            "two snippets m",
        ),
        ('name="m" destroy="end"', 'name="m" init="begin"', "attribute init"),
        (
            '<window-python name="alone" events="create">',
            '<window-python name="alone" events="create" require="s">',
            "unknown module 's'",
        ),
        (
            "<code>x = 1</code></python-module>",
            '<code>x = 1</code></python-module><python-module name="m"><code>y = 1</code></python-module>',
            "two modules m",
        ),
    ],
)
def test_what_cannot_be_is_refused_by_name(old: str, new: str, message: str) -> None:
    with pytest.raises(ProjectError) as raised:
        load_text(XML.replace(old, new))
    assert any(message in mistake.message for mistake in raised.value.mistakes), raised.value.mistakes


LUA = """\
<project name="p">
  <lua-snippets>
    <lua-snippet name="s" init="begin" destroy="end"><code>function begin() esp_setProperty("a", 1) end</code></lua-snippet>
  </lua-snippets>
  <contqueries><contquery name="q">
    <windows>
      <window-source name="given"><schema-string>id*:int64,a:int64</schema-string></window-source>
      <window-lua name="made" events="create" destroy="finish">
        <schema-string>id*:int64,a:int64</schema-string>
        <code>function create(event) return {a = esp_getProperty("a")} end</code>
      </window-lua>
      <window-lua name="alone" events="create">
        <schema-string>id*:int64,a:int64</schema-string>
        <code>function create(event) return {a = 1} end</code>
      </window-lua>
    </windows>
    <edges><edge source="given" target="made"/><edge source="given" target="alone"/></edges>
  </contquery></contqueries>
</project>
"""


def test_snippets_in_lua_belong_to_windows_whose_code_shares() -> None:
    loaded = load_text(LUA)
    alone, _, made = sorted(loaded.resolved.windows, key=lambda window: window.id.window)
    assert [(each.name, each.init) for each in made.modules] == [("s", "begin")]
    assert alone.modules == ()
    assert load_text(yaml_text.dump(loaded.project)).project == load_text(esp_xml.dump(loaded.project)).project == loaded.project
    changed = load_text(LUA.replace('init="begin"', 'init=""')).project
    assert any("snippet s: init was begin" in difference for difference in differences(loaded.project, changed))
    (warning,) = (warning.message for warning in loaded.warnings if "destroy" in warning.message)
    assert "<lua-snippet>, <window-lua>" in warning or "<window-lua>, <lua-snippet>" in warning


def test_modules_have_no_function_that_is_called_first() -> None:
    text = yaml_text.dump(load_text(XML).project).replace("language: python", "language: python\n    init: begin", 2)
    with pytest.raises(ProjectError, match="snippet m in python has a function begin"):
        load_text(text)


def test_fields_are_no_arguments_of_lua() -> None:
    lua = (
        XML.replace("window-python", "window-lua").replace("python-modules", "lua-modules").replace("python-module ", "lua-module ")
    )
    with pytest.raises(ProjectError, match="passes fields by name to code in lua"):
        load_text(lua.replace("/python-module>", "/lua-module>"))


SEVERAL = """
project: p
queries:
  q:
    windows:
      a: {type: source, opcodes: any, schema: "id*:int64,x:int64"}
      b: {type: source, opcodes: any, schema: "id*:int64,y:int64,x:string"}
      made: {type: python, schema: "id*:int64,x:int64", events: create, code: "def create(id): return {}", CHOSEN}
    edges: [a -> made, b -> made]
"""


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ("arguments: fields", "passes fields by name, but its inputs have different fields"),
        ("use: [x, z]", "unknown field 'z' under use"),
        ("copy: [x]", "copies the field x, which is int64 in its schema"),
        ("copy: [y]", "copies the field y, which is not there in its schema"),
    ],
)
def test_fields_of_several_inputs_that_cannot_be(chosen: str, message: str) -> None:
    """SPEC A35, A36."""
    with pytest.raises(ProjectError, match=message):
        load_text(SEVERAL.replace("CHOSEN", chosen))


@pytest.mark.parametrize("chosen", ["arguments: fields, use: [id]", "use: [y]", "copy: [id], use-except: [y]"])
def test_fields_of_several_inputs(chosen: str) -> None:
    project = load_text(SEVERAL.replace("CHOSEN", chosen)).project
    assert load_text(yaml_text.dump(project)).project == load_text(esp_xml.dump(project)).project == project

"""Every mistake of a custom window is reported once, with its line and a hint (SPEC A1, A36)."""

from __future__ import annotations

from pathlib import Path

import pytest

from hotspare.base.errors import ProjectError
from hotspare.flow.plan import compile_plan
from hotspare.model.code import Language
from hotspare.projects import esp_xml
from hotspare.projects import yaml as yaml_project
from hotspare.projects.load import LoadedProject, load_project, load_text
from hotspare.windows.shared.expressions import expression_mistakes

CODE = """
def init(settings):
    pass

def create(number, name):
    return {"text": name}

_espconfig_ = {
    "settings": {"expand_parms": True, "process_blocks": False},
    "inputVariables": {"fields": [{"name": "number", "optional": False}, {"name": "name", "optional": True}]},
}
"""
XML = """
<project name="p"><contqueries><contquery name="q"><windows>
  <window-source name="s" index="pi_EMPTY" insert-only="true"><schema-string>id*:int32,x:string</schema-string></window-source>
  <window-custom name="w" type="Named" version="1" index="pi_EMPTY"><schema-string>id*:int32,word:string</schema-string>
    <plugin code="@ESP_PROJECT_HOME@/custom/named.py">
      <input-map description="d"><properties>
        <property name="number" required="true">id</property><property name="name" esp_type="string">x</property>
        <property name="other"/>
      </properties></input-map>
      <output-map><properties><property name="text">word</property></properties></output-map>
      <initialization><properties>
        <property name="empty"/><property name="unit" values="a,b">a</property>
      </properties></initialization>
    </plugin>
  </window-custom>
</windows><edges><edge source="s" target="w"/></edges></contquery></contqueries></project>
"""


def loaded_from(path: Path) -> LoadedProject:
    return load_project(path, {"ESP_PROJECT_HOME": str(path.parent)}, expressions=expression_mistakes)


def written(folder: Path, xml: str = XML, code: str = CODE) -> Path:
    (folder / "custom").mkdir()
    (folder / "custom" / "named.py").write_text(code)
    (folder / "p.xml").write_text(xml)
    return folder / "p.xml"


def test_code_in_a_file_survives_both_texts(tmp_path: Path) -> None:
    """Names without a field are omitted; a setting may be empty (SPEC A36)."""
    loaded = loaded_from(written(tmp_path))
    compile_plan(loaded.resolved)
    (window,) = [each for each in loaded.project.queries[0].windows if each.name == "w"]
    assert window.script.language is Language.PYTHON  # type: ignore[attr-defined]
    assert window.inputs == (("name", "x"), ("number", "id"))  # type: ignore[attr-defined]
    assert window.outputs == (("text", "word"),)  # type: ignore[attr-defined]
    assert window.settings == (("empty", ""), ("unit", "a"))  # type: ignore[attr-defined]
    assert yaml_project.load(yaml_project.dump(loaded.project)) == loaded.project
    assert esp_xml.load(esp_xml.dump(loaded.project)) == loaded.project


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("named.py", "named.txt", "which is neither Lua nor Python"),
        ("named.py", "other.py", "does not exist"),
        (' code="@ESP_PROJECT_HOME@/custom/named.py"', "", "<plugin> has no code"),
        (">word<", ">wort<", "maps text to the unknown field 'wort' under outputs"),
        ('name="name" esp', 'name="a name" esp', "has the name 'a name' under inputs"),
        ('name="name" esp', 'name="number" esp', "has number twice under inputs"),
        ('<property name="number" required="true">id</property>', "", "maps no field to number, which its code needs"),
        (
            '<property name="text">word</property>',
            '<property name="a">word</property><property name="b">word</property>',
            "of two outputs",
        ),
        ("<input-map description", "<in-map/><input-map description", "element <in-map> in <plugin> does not exist yet"),
    ],
)
def test_a_mistake_in_the_text_has_a_place(before: str, after: str, message: str, tmp_path: Path) -> None:
    assert before in XML
    with pytest.raises(ProjectError) as raised:
        compile_plan(loaded_from(written(tmp_path, XML.replace(before, after))).resolved)
    assert any(message in each.message and each.place.line for each in raised.value.mistakes), raised.value.mistakes


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("def create", "def make", "defines no function create"),
        ('"process_blocks": False', '"process_blocks": True', "requests blocks of events"),
        ("    pass", "    settings['absent']", "KeyError"),
    ],
)
def test_a_mistake_in_the_code_has_a_place(before: str, after: str, message: str, tmp_path: Path) -> None:
    assert before in CODE
    with pytest.raises(ProjectError) as raised:
        compile_plan(loaded_from(written(tmp_path, code=CODE.replace(before, after))).resolved)
    assert any(message in each.message and each.place.line for each in raised.value.mistakes), raised.value.mistakes


def test_lua_code_takes_no_fields_by_their_names() -> None:
    plugin = """<plugin xmlns:hs="urn:hotspare" hs:language="lua"><code>
      function create(data) return {word = data.x} end
      _espconfig_ = {settings = {expand_parms = true}}</code></plugin>"""
    begin, end = XML.index("<plugin"), XML.index("</plugin>") + len("</plugin>")
    with pytest.raises(ProjectError, match="fields by name, which lua does not support"):
        compile_plan(load_text(XML[:begin] + plugin + XML[end:]).resolved)

"""Code in a file next to the project is read with it, from its folder alone, and is part of it (SPEC A36, A38)."""

from __future__ import annotations

from pathlib import Path

import pytest

from hotspare.base.errors import ProjectError
from hotspare.flow.plan import compile_plan
from hotspare.host.project import checked_project
from hotspare.model.frontends.yaml.text import dump
from hotspare.projects.fingerprint import project_hash
from hotspare.projects.load import load_text

CODE = "\ndef create(event):\n    return {'x': event['x'] + 1}\n"
XML = """<project name="p"><contqueries><contquery name="q"><windows>
  <window-source name="a"><schema-string>id*:int64,x:int64</schema-string></window-source>
  <window-python name="b" events="create"><schema-string>id*:int64,x:int64</schema-string>
    <code-file>NAME</code-file></window-python>
  </windows><edges><edge source="a" target="b"/></edges></contquery></contqueries></project>"""
YAML = """project: p
queries:
  q:
    windows:
      a: {type: source, opcodes: any, schema: "id*:int64,x:int64"}
      b: {type: python, events: create, schema: "id*:int64,x:int64", code-file: NAME}
    edges: [a -> b]
"""
FILTERS = {
    "XML": XML.replace(
        '<window-python name="b" events="create"><schema-string>id*:int64,x:int64</schema-string>', '<window-filter name="b">'
    ).replace("</window-python>", "</window-filter>"),
    "YAML": YAML.replace('type: python, events: create, schema: "id*:int64,x:int64"', "type: filter"),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    (home / "code").mkdir(parents=True)
    (home / "code" / "b.py").write_text(CODE)
    (tmp_path / "outside.py").write_text(CODE)
    (home / "link.py").symlink_to(tmp_path / "outside.py")
    (home / "long.py").write_text("#" * ((1 << 20) + 1))
    (home / "bytes.py").write_bytes(b"\xff")
    (home / "wrong.py").write_text("\n\nimport os\n" + CODE)
    return home


def written(folder: Path, text: str, name: str) -> Path:
    path = folder / ("p.xml" if text.startswith("<") else "p.yaml")
    path.write_text(text.replace("NAME", name))
    return path


@pytest.mark.parametrize("text", [XML, YAML], ids=["XML", "YAML"])
def test_the_text_of_the_file_is_the_code(folder: Path, text: str) -> None:
    loaded = checked_project(written(folder, text, "@ESP_PROJECT_HOME@/code/b.py" if text is XML else "code/b.py"), {})
    again = load_text(dump(loaded.project)).project
    assert project_hash(again) == project_hash(loaded.project)
    assert "event['x'] + 1" in dump(loaded.project)
    (folder / "code" / "b.py").write_text(CODE.replace("1", "2"))
    assert project_hash(checked_project(written(folder, text, "code/b.py"), {}).project) != project_hash(loaded.project)


@pytest.mark.parametrize("text", FILTERS.values(), ids=FILTERS)
def test_filters_have_their_code_in_files_too(folder: Path, text: str) -> None:
    (folder / "code" / "b.lua").write_text("function filter(event) return event.x > 1 end")
    loaded = checked_project(written(folder, text, "code/b.lua"), {})
    assert "event.x > 1" in dump(loaded.project)
    assert compile_plan(loaded.resolved)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("../outside.py", "is not in the folder of the project"),
        ("/etc/passwd", "is not in the folder of the project"),
        ("link.py", "is not in the folder of the project"),
        ("code", "does not exist"),
        ("none.py", "does not exist"),
        ("long.py", "is longer than 1,048,576 bytes"),
        ("bytes.py", "is not UTF-8"),
    ],
)
def test_another_file_is_refused_with_the_reason(folder: Path, name: str, message: str) -> None:
    with pytest.raises(ProjectError, match=message):
        checked_project(written(folder, XML, name), {})


def test_a_mistake_in_the_file_has_its_place(folder: Path) -> None:
    with pytest.raises(ProjectError) as raised:
        compile_plan(checked_project(written(folder, XML, "wrong.py"), {}).resolved)
    assert [str(mistake.place) for mistake in raised.value.mistakes] == ["wrong.py:3"]


def test_a_text_without_a_folder_reads_no_file() -> None:
    for text in (
        XML,
        XML.replace("<contqueries>", '<properties><property name="ESP_PROJECT_HOME">/</property></properties><contqueries>'),
    ):
        with pytest.raises(ProjectError, match="the project was not loaded from a file"):
            load_text(text.replace("NAME", "etc/passwd"))

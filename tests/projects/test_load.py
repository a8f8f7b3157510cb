"""Files of any kind load or are refused with a reason; hostile ones do no harm (SPEC A1, A3, A4; limits on everything)."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.base.errors import HotspareError, ProjectError, UsageError
from hotspare.model.frontends import values
from hotspare.model.project import Project
from hotspare.projects import esp_xml
from hotspare.projects import yaml as yaml_project
from hotspare.projects.load import load_project, load_text
from tests.strategies_projects import projects

YAML = "project: p\nqueries: {q: {windows: {a: {type: source, schema: 'id*:int64'}, b: {type: copy}}, edges: [a -> b]}}\n"
XML = esp_xml.dump(yaml_project.load(YAML))


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("p.yaml", YAML.encode()),
        ("p.yml", b"\xef\xbb\xbf" + YAML.encode()),
        ("p.xml", XML.encode()),
        ("p.xml", b"\xef\xbb\xbf<?xml version='1.0' encoding='UTF-8'?>\n" + XML.encode()),
        ("p.xml", b"<?xml version='1.0' encoding='ISO-8859-1'?><!-- \xe9 -->" + XML.encode()),
        ("p.xml", ("<?xml version='1.0' encoding='utf-16'?>" + XML).encode("utf-16")),
        ("project", YAML.encode()),
        ("project", b"\n  " + XML.encode()),
    ],
)
def test_forms_and_encodings(tmp_path: Path, name: str, data: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    assert load_project(path).project == yaml_project.load(YAML)


@pytest.mark.parametrize(
    ("data", "line", "message"),
    [
        (b"project: p\nname: \xff\n", 2, "the text is not utf-8"),
        (b"<?xml version='1.0' encoding='utf-7'?><project/>", 1, "encoding utf-7 is not accepted"),
        (b"<project", 1, "this is not XML"),
        (b"<project>\n<a></b></project>", 2, "this is not XML"),
        (b"<project name='p'>&eacute;</project>", 1, "this is not XML"),
        (b"<a/>", 1, "the root element <a> is not <project> or <engine>"),
        (b"<engine/>", 1, "the text has no project"),
    ],
)
def test_texts_that_are_no_project(tmp_path: Path, data: bytes, line: int, message: str) -> None:
    path = tmp_path / "project"
    path.write_bytes(data)
    with pytest.raises(ProjectError) as raised:
        load_project(path)
    assert any(m.place.line == line and message in m.message for m in raised.value.mistakes)


def test_a_prefix_that_is_not_declared_is_told_with_its_namespace() -> None:
    with pytest.raises(ProjectError) as raised:
        load_text("<project>\n<window-source hs:partition-by='x'/></project>")
    (mistake,) = raised.value.mistakes
    assert mistake.place.line == 2
    assert 'xmlns:hs="urn:hotspare"' in mistake.hint


def test_files_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        load_project(tmp_path / "absent.yaml")
    with pytest.raises(UsageError, match="cannot be read"):
        load_project(tmp_path)
    large = tmp_path / "large.yaml"
    with large.open("wb") as file:
        file.truncate(values.TEXT_BYTES_MAX + 1)
    with pytest.raises(UsageError, match="larger than 16 MiB"):
        load_project(large)


LAUGHS = "".join(f'<!ENTITY a{i} "{f"&a{i - 1};" * 10 if i else "ha"}">' for i in range(10))


@pytest.mark.parametrize(
    "prolog",
    [
        f"<!DOCTYPE project [{LAUGHS}]>",
        "<!DOCTYPE project [<!ENTITY a9 SYSTEM 'file:///etc/passwd'>]>",
        "<?xml version='1.0'?>\n<!-- first -->\n<!DOCTYPE project SYSTEM 'http://127.0.0.1:1/x.dtd'>",
    ],
)
def test_document_types_are_refused_before_they_are_read(prolog: str) -> None:
    """Billion laughs, entities from files, and definitions from the network."""
    with pytest.raises(ProjectError) as raised:
        esp_xml.load(f"{prolog}<project name='p'><description>&a9;</description></project>")
    assert [m.message for m in raised.value.mistakes] == ["a document type is not accepted"]
    assert raised.value.mistakes[0].place.line == prolog.count("\n") + 1


def test_laughing_aliases_are_refused() -> None:
    lines = ["a0: &a0 [ha]"] + [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12)]
    with pytest.raises(ProjectError, match="anchors and aliases are not accepted"):
        yaml_project.load("\n".join(lines))


def test_no_more_mistakes_are_kept_than_anyone_reads() -> None:
    with pytest.raises(ProjectError) as raised:
        yaml_project.load("".join(f"key{i}: x\n" for i in range(5_000)))
    assert len(raised.value.mistakes) == 200


PIECES = [
    ":",
    "\n",
    "  ",
    "<",
    ">",
    "{",
    "]",
    "'",
    '"',
    "@",
    "&",
    "*",
    "->",
    "name=",
    "type",
    "copy",
    "\x00",
    "\ud800",
    "<!--",
    "- ",
]


@given(projects(), st.data())
def test_a_damaged_text_is_refused_or_read_but_never_breaks(project: Project, data: st.DataObject) -> None:
    """External input is validated: any content of a file raises only errors of ours."""
    form = data.draw(st.sampled_from([yaml_project, esp_xml]))
    text = form.dump(project)
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, min(len(text), start + 30)))
        text = text[:start] + data.draw(st.one_of(st.sampled_from(PIECES), st.text(max_size=3))) + text[end:]
    try:
        loaded = load_text(text)
    except HotspareError as error:
        assert isinstance(error, ProjectError | UsageError)
        return
    for again in (yaml_project, esp_xml):
        assert again.load(again.dump(loaded.project)) == loaded.project


@given(st.text())
def test_any_text_is_refused_or_read(text: str) -> None:
    for load in (load_text, yaml_project.load, esp_xml.load):
        try:
            load(text)
        except ProjectError as error:
            assert error.mistakes


def test_an_expression_is_not_longer_than_one_can_be_compiled() -> None:
    """A project that loads also runs: both have one limit."""
    condition = " or ".join(["id > 1"] * 2_000)
    text = YAML.replace("b: {type: copy}", f"b: {{type: filter, condition: '{condition}'}}")
    with pytest.raises(ProjectError, match="is longer than 16384 characters"):
        load_text(text)

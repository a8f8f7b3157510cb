"""`hotspare assess`: the verdicts on a server's XML projects, one by one and in sum."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.operate.assessing import Verdict, assess_file
from tests.cli.running import hotspare_here
from tests.examples import examples
from tests.projects.test_esp_xml import CONFORMANCE, needs_conformance

_SOURCE = (
    '<window-source name="s"><schema><fields><field name="id" type="int64" key="true"/></fields></schema>{more}</window-source>'
)
_MQTT = '<connectors><connector class="mqtt" name="in" type="publish"/></connectors>'


def project(name: str, windows: str = _SOURCE.format(more=""), attributes: str = "") -> str:
    query = f'<contqueries><contquery name="q"><windows>{windows}</windows></contquery></contqueries>'
    return f'<project name="{name}" {attributes}>{query}</project>'


def source(more: str) -> str:
    return _SOURCE.format(more=more)


@pytest.fixture
def server(tmp_path: Path) -> Path:
    """Returns a folder like one of a server."""
    files = {
        "runs.xml": project("runs", attributes='pubsub="auto" threads="4"'),
        "deep/er/changes.XML": project("changes", source(_MQTT) + '<window-notification name="n"/>'),
        "deep/missing.xml": project("missing", source("") + '<window-novel name="n"/>'),
        "deep/never.xml": project(
            "never", source(_MQTT) + '<window-score name="a"/><window-score name="b"/><window-novel name="n"/>'
        ),
        "engine.xml": f"<engine><projects>{project('one')}{project('two', source(_MQTT))}</projects></engine>",
        "pom.xml": "<pom/>",
        "broken.xml": "<project",
        "entities.xml": f'<!DOCTYPE p [<!ENTITY e SYSTEM "file:///etc/passwd">]>{project("e")}',
        "empty.xml": "",
        "notes.txt": "no XML",
    }
    for name, text in files.items():
        file = tmp_path / "server" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    folder = tmp_path / "server"
    (folder / "huge.xml").write_bytes(b" " * (16 << 20) + b" ")
    (folder / "loop").symlink_to(folder)
    (folder / "again.xml").symlink_to(folder / "runs.xml")
    (folder / "dead.xml").symlink_to(folder / "nowhere")
    os.mkfifo(folder / "pipe.xml")
    return folder


def assessed(place: Path, status: int) -> dict[str, Any]:
    done = hotspare_here("assess", place, "--json")
    assert done.returncode == status, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_each_project_has_a_verdict(server: Path) -> None:
    found = assessed(server, 1)
    verdicts = {each["project"]: each["verdict"] for each in found["projects"] if each["project"]}
    assert verdicts == {
        "runs": "runs",
        "one": "runs",
        "two": "changes",
        "changes": "changes",
        "missing": "missing",
        "never": "never",
    }
    assert found["sum"] == {"runs": 2, "changes": 2, "missing": 1, "never": 1, "unreadable": 4, "other": 1}
    unreadable = {Path(each["file"]).name for each in found["projects"] if each["verdict"] == "unreadable"}
    assert unreadable == {"broken.xml", "entities.xml", "empty.xml", "huge.xml"}


def test_findings_come_once_per_kind(server: Path) -> None:
    found = assessed(server / "deep" / "never.xml", 1)
    ((never,),) = [found["projects"]]
    assert [(each["what"], each["outlook"], each["count"]) for each in never["findings"]] == [
        ("window type score: cannot be supported", "never", 2),
        ("connector class mqtt: cannot be supported", "change", 1),
        ("window type novel: does not exist yet", "missing", 1),
    ]


def test_what_has_no_effect_is_a_note(server: Path) -> None:
    (found,) = assessed(server / "runs.xml", 0)["projects"]
    assert [each["what"] for each in found["notes"]] == ["attribute threads: without effect"]


def test_the_text_has_each_kind_once_and_the_sum(server: Path) -> None:
    said = hotspare_here("assess", server).stdout
    assert said.count("  connector class mqtt: cannot be supported (3 times in 3 projects)\n") == 1
    assert said.splitlines()[-1] == (
        "6 projects: 2 run as they are, 2 after changes, 1 not yet, 1 never, 4 files that cannot be read, 1 files with other XML"
    )


@pytest.mark.parametrize(("place", "told"), [("none", "neither a folder nor a file"), ("pipe.xml", "neither"), ("bare", "no file")])
def test_a_place_without_projects_is_refused(server: Path, place: str, told: str) -> None:
    (server / "bare").mkdir()
    done = hotspare_here("assess", server / place)
    assert (done.returncode, told in done.stderr) == (2, True)


@needs_conformance
def test_the_projects_of_the_conformance_suite_run() -> None:
    found = assessed(CONFORMANCE, 0)
    assert found["sum"]["runs"] == 4


_PIECES = st.one_of(
    st.binary(max_size=20),
    st.sampled_from(
        [each.encode() for each in (project("p"), "<project name='x'>", "</project>", "<engine>", "<!DOCTYPE a>", "&x;")]
    ),
    st.sampled_from([b"\xff\xfe", b"\xef\xbb\xbf", b'<?xml version="1.0" encoding="klingon"?>', b"<window-score/>", b"\0"]),
)


@given(pieces=st.lists(_PIECES, max_size=6))
@examples(1)
def test_no_bytes_raise(pieces: Sequence[bytes], tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.getbasetemp() / "any.xml"
    file.write_bytes(b"".join(pieces))
    found = assess_file(file)
    assert found
    assert all(each.mistakes for each in found if each.verdict is not Verdict.RUNS)


@given(at=st.integers(0, 600), byte=st.binary(min_size=1, max_size=1))
@examples(2)
def test_no_damaged_project_raises(at: int, byte: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    text = project("p", source(_MQTT) + '<window-copy name="c"/><window-score name="a"/>', 'heartbeat-interval="1"').encode()
    file = tmp_path_factory.getbasetemp() / "damaged.xml"
    file.write_bytes(text[:at] + byte + text[at + 1 :])
    assert assess_file(file)

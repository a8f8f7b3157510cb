"""Every file is free of secrets, package hosts, machine paths and merge marks; every link in documents leads to a target."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.repo import texts
from tests.repo.tree import Violation, read, repository_files

BINARY = (".png", ".jpg", ".gz", ".jar", ".arrow", ".db", ".ico")
TextRule = Callable[[str, str], Iterator[Violation]]


@pytest.mark.parametrize("rule", [texts.secrets, texts.package_hosts, texts.machine_paths, texts.merge_marks])
def test_every_file_keeps(rule: TextRule) -> None:
    files = (path for path in repository_files() if not path.endswith(BINARY))
    assert [str(found) for path in files for found in rule(path, read(path))] == []


def test_every_link_leads_somewhere() -> None:
    files = (path for path in repository_files() if path.endswith(".md"))
    assert [str(found) for path in files for found in texts.links(path, read(path))] == []


@pytest.mark.parametrize(
    "text", ["-----BEGIN RSA " + "PRIVATE KEY-----", "key = 'AKIA" + "A" * 16 + "'", "token: gh" + "p_" + "a" * 36]
)
def test_secret_bites(text: str) -> None:
    assert len(list(texts.secrets("x.md", text))) == 1


@pytest.mark.parametrize("host", ["pypi" + ".org", "repo1." + "maven" + ".org", "files." + "pythonhosted" + ".org"])
def test_package_host_bites(host: str) -> None:
    (found,) = texts.package_hosts("Makefile", f"a\npip install --index-url https://{host}/simple x")
    assert found.line == 2


@pytest.mark.parametrize("mark", ["<" * 7 + " HEAD", ">" * 7 + " 1234567 (a change)", "|" * 7])
def test_merge_mark_bites(mark: str) -> None:
    (found,) = texts.merge_marks("x.md", f"a\n{mark}\nb\n")
    assert found.line == 2


def test_machine_path_bites(tmp_path: Path) -> None:
    assert len(list(texts.machine_paths("x.md", f"cd {tmp_path}/src", tmp_path))) == 1
    assert list(texts.machine_paths("x.md", "cd ../src", tmp_path)) == []


def test_link_bites(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "b.md").write_text("# Two words, three\n")
    text = "[a](b.md) [b](b.md#two-words-three) [c](gone.md) [d](b.md#gone) [e](https://example.com)\n```\n[f](gone.md)\n```\n[g](../docs/b.md)\n"
    found = [violation.what for violation in texts.links("docs/a.md", text, tmp_path)]
    assert found == ["link to gone.md, which does not exist", "link to b.md#gone, which has no such heading"]

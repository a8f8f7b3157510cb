"""The documents match the repository: paths, make targets, commands, words, and every part that a newcomer may look for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest

from hotspare.projects.load import load_project
from hotspare.projects.resolve import resolve
from tests.repo.imports import MAY_IMPORT
from tests.repo.tree import ROOT, Source, Violation, read, repository_files, sources, violations

WORDS = (
    "project",
    "window",
    "event",
    "message",
    "position",
    "tick",
    "output stream",
    "output sequence",
    "output id",
    "engine",
    "group",
    "page",
    "snapshot",
    "progress",
    "quality of service",
    "epoch",
)
"""The words of the design's first section; the glossary gives each one meaning."""

ARCHITECTURE_BYTES_MAX = 8192

_CODE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
_PATH = re.compile(r"(?:[\w.-]+/)+(?:[\w.-]+\.(?:py|md|yaml|xml|sh|toml|lock))?")
_DOTTED = re.compile(r"`((?:hotspare\.)?[a-z_]+(?:\.[A-Za-z_]\w*)+)(?:\(\))?`")
_LINK = re.compile(r"\]\((?!\w+:)([^)#\s]*)#?([^)\s]*)\)")
_TARGET = re.compile(r"\bmake ([a-z][a-z-]*)")


def documents() -> list[str]:
    return [path for path in repository_files() if path.endswith(".md")]


def missing_paths(path: str, text: str) -> Iterator[Violation]:
    """Yields paths in backticks that do not exist: from the top of the repository, from `src/hotspare/`, or from the document's own
    folder."""
    tops = (ROOT, ROOT / "src" / "hotspare", ROOT / PurePosixPath(path).parent)
    for number, line in enumerate(text.splitlines(), 1):
        for code in _CODE.findall(line):
            if _PATH.fullmatch(code) and not any((top / code).exists() for top in tops):
                yield Violation(path, number, f"names {code}, which does not exist")


def missing_names(source: Source) -> Iterator[Violation]:
    """Yields dotted names in backticks that begin with a part of the package but lead to no module, or no word of it."""
    package = ROOT / "src" / "hotspare"
    for number, line in enumerate(source.text.splitlines(), 1):
        for name in _DOTTED.findall(line):
            folder, words = package, name.removeprefix("hotspare.").split(".")
            if name.endswith((".py", ".lua")) or (not (folder / words[0]).exists() and not (folder / f"{words[0]}.py").exists()):
                continue
            while words and (folder / words[0]).is_dir():
                folder /= words.pop(0)
            module = folder / f"{words[0]}.py" if words else folder
            if not module.exists() or not all(re.search(rf"\b{word}\b", module.read_text("utf-8")) for word in words[1:]):
                yield Violation(source.path, number, f"names {name}, which does not exist")


def anchors(text: str) -> set[str]:
    """Returns the anchors that GitHub gives to the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def missing_links(path: str, text: str) -> Iterator[Violation]:
    """Yields links within the repository that lead to no file, or whose anchor is not a heading of that page."""
    for number, line in enumerate(text.splitlines(), 1):
        for target, anchor in _LINK.findall(line):
            file = (ROOT / path).parent / target if target else ROOT / path
            if not file.exists() or (anchor and file.suffix == ".md" and anchor not in anchors(file.read_text("utf-8"))):
                yield Violation(path, number, f"links to {target}{anchor and '#'}{anchor}, which does not exist")


def missing_targets(path: str, text: str, makefile: str) -> Iterator[Violation]:
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    for number, line in enumerate(text.splitlines(), 1):
        for code in _CODE.findall(line):
            for target in _TARGET.findall(code):
                if target not in targets:
                    yield Violation(path, number, f"names make {target}, which does not exist")


def glossary_words(text: str) -> list[str]:
    rows = re.findall(r"^\| ([^|]+?) \|", text, re.MULTILINE)
    return [word for row in rows for word in row.split(", ") if row not in ("word", "---")]


def test_documents_name_paths_that_exist() -> None:
    assert [str(found) for path in documents() for found in missing_paths(path, read(path))] == []


def test_links_lead_to_pages_and_headings_that_exist() -> None:
    assert [str(found) for path in documents() for found in missing_links(path, read(path))] == []


def test_sources_name_modules_that_exist() -> None:
    assert violations(missing_names, sources("src", "benchmarks")) == []


def test_documents_name_make_targets_that_exist() -> None:
    makefile = read("Makefile")
    assert [str(found) for path in documents() for found in missing_targets(path, read(path), makefile)] == []


@pytest.mark.parametrize("word", WORDS)
def test_glossary_defines(word: str) -> None:
    assert glossary_words(read("docs/glossary.md")).count(word) == 1


def test_words_with_one_meaning_here_are_in_the_glossary() -> None:
    """Except words that are not used: these are in no source."""
    rows = re.findall(r"^\| ([^|]+?) \| ([^|]+?) \|", read("docs/design/words.md"), re.MULTILINE)
    rows = [row for row in rows if row[0] not in ("word", "---")]
    unused = [word for word, meaning in rows if meaning.startswith("not used")]
    assert {word for word, _ in rows} - set(unused) <= set(glossary_words(read("docs/glossary.md")))
    assert len(rows) > len(unused) > 0
    assert [
        (source.path, word)
        for source in sources("src")
        for word in unused
        if re.search(rf"\b{word}s?\b", source.text, re.IGNORECASE)
    ] == []


def test_glossary_gives_each_word_one_meaning() -> None:
    words = glossary_words(read("docs/glossary.md"))
    assert sorted(words) == sorted(set(words))


def test_readme_has_every_command() -> None:
    from hotspare.cli.main import COMMANDS

    _, _, section = read("README.md").partition("\n## Commands\n")
    rows = [line for line in section.partition("\n## ")[0].splitlines() if line.startswith("|") and "hotspare" not in line]
    assert sorted(re.findall("`([a-z]+)`", "\n".join(rows))) == sorted(COMMANDS)


def to_be_found() -> list[str]:
    """Returns what a newcomer looks for: every folder of code, contract and law; the folder of a window type is one."""
    top = "src/hotspare/"
    code = [path.removeprefix(top) for path in repository_files() if path.startswith(top) and path.endswith(".py")]
    folders = {f"{parent}/" for path in code for parent in PurePosixPath(path).parents if str(parent) != "."}
    contracts = {path for path in code if path.endswith("/contract.py")}
    laws = {path for path in repository_files() if re.fullmatch(r"tests/laws/test_\w+\.py", path)}
    return sorted(folders | contracts | laws)


def test_architecture_or_a_page_behind_it_names_everything_that_a_stranger_looks_for() -> None:
    text = "".join(read(path) for path in documents() if path == "ARCHITECTURE.md" or path.startswith("docs/design/"))
    assert [name for name in to_be_found() if f"`{name}`" not in text] == []


def test_architecture_lists_the_packages_in_the_order_of_imports() -> None:
    listed = re.findall(r"^\| `(\w+)/` \|", read("ARCHITECTURE.md"), re.MULTILINE)
    assert listed == [package for package in MAY_IMPORT if (ROOT / "src/hotspare" / package).is_dir()]


def test_architecture_is_read_in_minutes_and_leads_to_every_page_behind_it() -> None:
    text = read("ARCHITECTURE.md")
    assert len(text.encode()) <= ARCHITECTURE_BYTES_MAX
    pages = [path for path in documents() if path.startswith("docs/design/") and not path.endswith("-measured.md")]
    assert [path for path in pages if f"({path})" not in text] == []


def projects_in(text: str) -> list[str]:
    """Returns the whole projects among a document's YAML blocks."""
    return [block for block in re.findall(r"^```yaml\n(.*?)^```", text, re.MULTILINE | re.DOTALL) if block.startswith("project:")]


def test_readme_has_a_project() -> None:
    assert projects_in(read("README.md"))


def test_projects_in_documents_load(tmp_path: Path) -> None:
    for path in documents():
        for block in projects_in(read(path)):
            file = tmp_path / "project.yaml"
            file.write_text(block, encoding="utf-8")
            assert resolve(load_project(file).project).streams, path


def test_projects_in_the_package_load() -> None:
    files = [path for path in repository_files() if path.startswith(("src/", "examples/")) and path.endswith(".yaml")]
    for path in files:
        assert resolve(load_project(ROOT / path).project).streams, path


def test_changelog_keeps_its_form() -> None:
    headings = re.findall(r"^##+ (.+)$", read("CHANGELOG.md"), re.MULTILINE)
    kinds = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    assert headings[0] == "[Unreleased]"
    assert all(heading in kinds or re.match(r"\[[\w.]+\]", heading) for heading in headings)


def test_path_bites() -> None:
    text = "see `flow/`, `tests/repo/`, `gone/`, `flow/gone.py`, `a/b`, `Makefile`"
    found = [violation.what for violation in missing_paths("README.md", text)]
    assert found == ["names gone/, which does not exist", "names flow/gone.py, which does not exist"]


def test_name_bites() -> None:
    text = "# `flow.step`, `hotspare.flow.step.step`, `flow.batch.x`, `flow.step.gone`, `flow.gone.x`, `a.b`, `flow.head`"
    found = [violation.what for violation in missing_names(Source.of("src/hotspare/x.py", text))]
    assert found == [f"names {name}, which does not exist" for name in ("flow.batch.x", "flow.step.gone", "flow.gone.x")]


def test_link_bites() -> None:
    text = "[a](LICENSE), [b](gone.md), [c](#gone), [d](docs/glossary.md#queries), [e](docs/glossary.md#gone), [f](https://x.y/z)"
    found = [violation.what for violation in missing_links("README.md", text)]
    assert found == [f"links to {name}, which does not exist" for name in ("gone.md", "#gone", "docs/glossary.md#gone")]


def test_target_bites() -> None:
    text = "run `make test ARGS=x`, `make gone` or make it"
    found = [violation.what for violation in missing_targets("README.md", text, "test: setup\n")]
    assert found == ["names make gone, which does not exist"]


def test_glossary_words_are_read() -> None:
    text = "| word | meaning |\n|---|---|\n| standby, hot spare | x |\n| tick | y |\n"
    assert glossary_words(text) == ["standby", "hot spare", "tick"]

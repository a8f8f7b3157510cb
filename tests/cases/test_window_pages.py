"""docs/windows: each window type has a page, and its examples give their stated outputs; whole, message by message and restarted
after each message (laws Cut and Crash)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from hotspare.model.window_type import type_of
from hotspare.windows.registry import WINDOW_TYPES
from tests.cases.case import Case, expected_by_cause, outputs_by_cause, parse_case, raw_batches, run

PAGES = sorted((Path(__file__).parents[2] / "docs" / "windows").glob("*.md"))
_EXAMPLE = re.compile(r"```yaml\n(project:.*?)```\n(.*?)(?=```yaml\nproject:|\Z)", re.DOTALL)
_DRAWN = re.compile(r"^```\n(?!at )(.*?)^```\n|((?:^    .*\n)+)", re.DOTALL | re.MULTILINE)
_EVENTS = re.compile(r"```\n(at .*?)```\n", re.DOTALL)


class Example(NamedTuple):
    page: Path
    project: str
    script: str

    @property
    def case(self) -> Case:
        return parse_case(f"{self.project}\n---\n{self.script}", str(self.page))


def _examples(page: Path) -> list[Example]:
    """Returns each project of the page with the first events after it, "" if it has none."""
    found = [(project, _EVENTS.search(rest)) for project, rest in _EXAMPLE.findall(page.read_text(encoding="utf-8"))]
    return [Example(page, project, events[1] if events else "") for project, events in found]


EXAMPLES = [example for page in PAGES for example in _examples(page)]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.page.stem)
def test_what_an_example_says_comes_out(example: Example) -> None:
    assert example.script, f"{example.page}: an example without events"
    case = example.case
    expected = expected_by_cause(case)
    assert expected
    batches = raw_batches(case)
    for groups, restarts in (([batches], False), ([[batch] for batch in batches], False), ([[batch] for batch in batches], True)):
        outputs, _ = run(case, groups, restarts=restarts)
        assert outputs_by_cause(outputs) == expected


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_has_a_picture_of_what_goes_in_and_out(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    before = text[: text.index("Line by line, ")]
    drawn = _DRAWN.findall(re.sub(r"```(?:yaml|xml)\n.*?```\n", "", before, flags=re.DOTALL))
    assert any((fenced or indented).count("\n") > 1 for fenced, indented in drawn), "none before its events"


@pytest.mark.parametrize("name", WINDOW_TYPES)
def test_a_type_has_a_page_with_an_example(name: str) -> None:
    pages = {page.stem: page for page in PAGES}
    page = pages.get(name) or pages[name.partition("-")[0]]
    text = page.read_text(encoding="utf-8")
    assert f"`{name}`" in text or text.startswith(f"# {name.capitalize()} window")
    assert any(type_of(window.window).name == name for e in _examples(page) for window in e.case.plan.resolved.windows)

"""docs/translations.md and the pages for users of EPL and CQL: each example gives its stated output, and a table leads to it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hotspare.projects.load import load_text
from hotspare.windows.shared.expressions import expression_mistakes
from tests.cases.case import expected_by_cause, outputs_by_cause, parse_case, raw_batches, run

DOCS = Path(__file__).parents[2] / "docs"
PAGE, MOVING = "translations.md", ("moving-from-epl.md", "moving-from-cql.md")
EXAMPLES = {
    f"{page}, {title}": example
    for page in (PAGE, *MOVING)
    for title, body in re.findall(
        r"^##+ (.+?)\n(.*?)(?=^##+ |\Z)", (DOCS / page).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    for example in re.findall(r"```case\n(.*?)```", body, re.DOTALL)
}


def anchor(title: str) -> str:
    return re.sub(r"[^a-z0-9_ ]", "", title.lower()).replace(" ", "-")


def test_tables_of_constructs_lead_to_every_example() -> None:
    linked = set[tuple[str, str]]()
    for page in MOVING:
        rows = [line for line in (DOCS / page).read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
        links = re.findall(r"\]\(([a-z.-]*)#([a-z0-9_-]+)\)", "\n".join(rows))
        linked |= {(target or page, name) for target, name in links}
    assert {(page, anchor(title)) for page, title in (name.split(", ", 1) for name in EXAMPLES)} <= linked


@pytest.mark.parametrize("title", EXAMPLES)
def test_an_example_does_what_it_says(title: str) -> None:
    """SPEC A42, A43: as one batch and message by message."""
    text = EXAMPLES[title]
    assert load_text(text.partition("\n---\n")[0], expressions=expression_mistakes).warnings == ()
    case = parse_case(text, title)
    batches, expected = raw_batches(case), expected_by_cause(case)
    assert any(expected.values()), "shows nothing"
    for groups in ([batches], [[batch] for batch in batches]):
        assert outputs_by_cause(run(case, groups, restarts=False)[0]) == expected

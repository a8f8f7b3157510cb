"""docs/translations.md: each CQL or EPL statement has a translation into windows, and every example gives its stated output."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hotspare.projects.load import load_text
from hotspare.windows.shared.expressions import expression_mistakes
from tests.cases.case import expected_by_cause, outputs_by_cause, parse_case, raw_batches, run

PAGE = Path(__file__).parents[2] / "docs" / "translations.md"
TEXT = PAGE.read_text(encoding="utf-8")
EXAMPLES = {
    title: example
    for title, body in re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL)
    for example in re.findall(r"```case\n(.*?)```", body, re.DOTALL)
}


def anchor(title: str) -> str:
    return re.sub(r"[^a-z0-9 ]", "", title.lower()).replace(" ", "-")


def test_every_row_of_the_table_leads_to_an_example_and_every_example_is_shown_by_a_row() -> None:
    rows = [line for line in TEXT.splitlines() if line.startswith("| ")][1:]
    linked = [re.findall(r"\]\(#([a-z0-9-]+)\) \|$", row) for row in rows]
    assert all(len(each) == 1 for each in linked), [row for row, each in zip(rows, linked, strict=True) if len(each) != 1]
    assert {each[0] for each in linked} == set(map(anchor, EXAMPLES))


@pytest.mark.parametrize("title", EXAMPLES)
def test_an_example_does_what_it_says(title: str) -> None:
    """SPEC A42, A43: as one batch and message by message."""
    text = EXAMPLES[title]
    assert load_text(text.partition("\n---\n")[0], expressions=expression_mistakes).warnings == ()
    case = parse_case(text, f"{PAGE.name}, {title}")
    batches, expected = raw_batches(case), expected_by_cause(case)
    assert any(expected.values()), "shows nothing"
    for groups in ([batches], [[batch] for batch in batches]):
        assert outputs_by_cause(run(case, groups, restarts=False)[0]) == expected

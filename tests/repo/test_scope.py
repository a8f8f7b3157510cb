"""Checks that docs/scope.md follows from rows and tests, that cited rows exist, and that a test shows each implemented row."""

from __future__ import annotations

import pytest

from tests.repo import scope
from tests.repo.scope import Row, Shown, State
from tests.repo.tree import Source, read, repository_files, sources, violations

CITING = ("src/", "tests/", "benchmarks/", "docs/", "examples/")
ROWS = ("A1", "A2", "A3", "A10", "B1")


def test_page_is_fresh() -> None:
    assert read(scope.PAGE) == scope.render(), "run `make docs`"


def test_rows_are_numbered_through() -> None:
    assert len(set(scope.row_ids())) == len(scope.row_ids())
    for letter in {row_id[0] for row_id in scope.row_ids()}:
        numbers = [int(row_id[1:]) for row_id in scope.row_ids() if row_id[0] == letter]
        assert numbers == list(range(1, len(numbers) + 1)), letter


def test_every_row_that_is_cited_exists() -> None:
    texts = [path for path in repository_files() if path.startswith(CITING) or path.endswith(".md")]
    texts = [
        path for path in texts if path.endswith((".py", ".md", ".case", ".yaml", ".xml")) and not path.startswith("tests/repo/")
    ]
    assert [str(found) for path in texts for found in scope.misfits(path, read(path), scope.row_ids())] == []


def test_no_test_names_a_row_in_another_form() -> None:
    assert violations(lambda source: scope.bare(source, scope.row_ids()), sources("tests", "benchmarks")) == []


def test_the_state_of_a_row_is_what_tests_show() -> None:
    assert list(scope.unshown(scope.rows(), scope.shown())) == []


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("(SPEC A1)", ("A1",)),
        ("SPEC A1, A3-A5, 5.2 and B1: what it says", ("A1", "A3", "A4", "A5", "B1")),
        ("# SPEC A1,\n# A2; SPEC B1", ("A1", "A2", "B1")),
        ("SPEC 5.2, 2.1", ()),
        ("SPEC A5-A3, SPEC A1-B2", ("A5-A3", "A1-B2")),
        ("section A1", ()),
    ],
)
def test_citations_are_read(text: str, rows: tuple[str, ...]) -> None:
    assert scope.cited(text) == rows


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("see SPEC A4", "cites A4, which is no row"),
        ("see SPEC A1, C1", "cites C1, which is no row"),
        ("see SPEC J: the form", "cites no row after SPEC"),
        ("see (SPEC: a word)", "cites no row after SPEC"),
    ],
)
def test_a_citation_that_leads_nowhere_bites(text: str, what: str) -> None:
    assert [found.what for found in scope.misfits("docs/x.md", text, ROWS)] == [what]


@pytest.mark.parametrize("text", ["SPEC A1-A3, A10", "SPEC 5.1", "the word `SPEC`", "# SPEC\n# A1", "rows A4"])
def test_citations_that_are_right(text: str) -> None:
    assert list(scope.misfits("docs/x.md", text, ROWS)) == []


@pytest.mark.parametrize(
    ("docstring", "whats"),
    [
        ("A1: a rule.", ["names A1 without SPEC"]),
        ("A rule (SPEC A1; A2).", ["names A2 without SPEC"]),
        ("A rule (SPEC A1, A2).", []),
        ("A rule of Z80, `A1`, section/A1, xA1 and A1x.", []),
        ("A rule.\n\n        command --only A1\n\n    More.", []),
    ],
)
def test_a_row_in_another_form_bites(docstring: str, whats: list[str]) -> None:
    source = Source.of("tests/base/test_x.py", f'def test_x():\n    """{docstring}"""\n')
    assert [found.what for found in scope.bare(source, ROWS)] == whats


@pytest.mark.parametrize(
    ("state", "note", "shown", "says"),
    [
        (State.THERE, "", [], "A1 is said to be there, and no test cites it"),
        (State.THERE, "", [Shown("docs/x.md", False)], "A1 is said to be there, and no test cites it"),
        (State.THERE, "", [Shown("t::x", True)], None),
        (State.PARTLY, "y is missing", [], "A1 is said to be there in part, and nothing cites it"),
        (State.PARTLY, "", [Shown("docs/x.md", False)], "A1 does not say what is missing"),
        (State.PARTLY, "y is missing", [Shown("docs/x.md", False)], None),
        (State.NOT_YET, "", [Shown("t::x", True)], "A1 is said not to be there, and t::x shows it"),
        (State.NOT_YET, "", [Shown("docs/x.md", False)], None),
    ],
)
def test_a_state_that_nothing_shows_bites(state: State, note: str, shown: list[Shown], says: str | None) -> None:
    row = Row("A1", "a rule", state, note, "Rules")
    assert list(scope.unshown([row], {"A1": tuple(shown)})) == ([says] if says else [])


def test_rows_are_read() -> None:
    text = "# Rules\n\nA1 | a rule | there\nA2 | another | partly | y is missing\n"
    assert scope.parse_rows(text) == (
        Row("A1", "a rule", State.THERE, "", "Rules"),
        Row("A2", "another", State.PARTLY, "y is missing", "Rules"),
    )


@pytest.mark.parametrize("line", ["A1 | a rule", "A1 | a rule | perhaps", "A1 | a rule | there | x | y"])
def test_a_row_that_is_not_understood_is_named(line: str) -> None:
    with pytest.raises(ValueError, match=f"{scope.ROWS}:2: not understood"):
        scope.parse_rows(f"# Rules\n{line}\n")

"""The rule on docstrings, as far as a machine can check it (CONTRIBUTING.md)."""

from __future__ import annotations

import pytest

from tests.repo import prose
from tests.repo.tree import sources, violations, whats


def test_docstrings_are_sentences_in_the_words_of_the_trade() -> None:
    assert violations(prose.docstrings, sources(*prose.FOLDERS)) == []


@pytest.mark.parametrize(
    ("docstring", "bites"),
    [
        ("What a reader gets.", ["opens with 'What'"]),
        ("Returns what a reader gets.", []),
        ("Returns nothing while nobody asks anew.", ["'anew'", "'nobody'"]),
        ("Whether the file exists.", []),
        ("Onset of a fault.", []),
    ],
)
def test_openers_and_words_are_found(docstring: str, bites: list[str]) -> None:
    found = whats(prose.docstrings, "src/hotspare/x.py", f'"""{docstring}"""')
    assert [what.partition(":")[0] for what in found] == ([", ".join(bites)] if bites else [])

"""The count of docstrings that have to be read twice falls, file by file, and never rises (CONTRIBUTING.md)."""

from __future__ import annotations

import pytest

from tests.repo import prose
from tests.repo.tree import sources, violations, whats


def test_no_file_has_more_of_them_than_it_had() -> None:
    files, listed = sources(*prose.FOLDERS), prose.listed()
    now = prose.found(files)
    risen = {path for path, count in now.items() if count > listed.get(path, 0)}
    assert violations(prose.docstrings, [source for source in files if source.path in risen]) == []
    fallen = {path: count for path, count in listed.items() if now.get(path, 0) < count}
    assert fallen == {}, "lower the counts: python -m tests.repo.prose"


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

"""Each public class name has one meaning: no two public classes share one (docs/glossary.md)."""

from __future__ import annotations

from tests.repo.names import doubled_classes
from tests.repo.tree import Source, sources


def test_no_two_public_classes_have_one_name() -> None:
    assert [str(violation) for violation in doubled_classes(sources("src"))] == []


def test_a_doubled_name_is_found_where_it_stands_and_private_ones_may_be_doubled() -> None:
    first = Source.of("src/hotspare/bus/x.py", "class Pace: ...\nclass _Own: ...\n")
    second = Source.of("src/hotspare/ha/y.py", "class _Own: ...\n\n\nclass Pace: ...\n")
    (found,) = doubled_classes([first, second])
    assert str(found) == "src/hotspare/ha/y.py:4: class Pace is also in src/hotspare/bus/x.py: one name, one meaning"

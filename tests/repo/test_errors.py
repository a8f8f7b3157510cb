"""The errors form one tree with stable, unique codes, drawn where it is defined and documented in docs/errors.md (design, section
8)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from hotspare.base.errors import HotspareError
from tests.repo import errors_page
from tests.repo.tree import Source, Violation, dotted, nodes, read, sources, violations, whats


def test_codes_are_unique_and_well_formed() -> None:
    codes = [found.code for found in errors_page.classes()]
    assert len(set(codes)) == len(codes)
    assert all(re.fullmatch(r"HS-\d{4}", code) for code in codes)


def test_a_code_stands_in_its_family() -> None:
    for found in errors_page.classes():
        parent = found.__mro__[1]
        if parent not in (HotspareError, Exception):
            assert found.code[:5] == parent.code[:5], f"{found.__name__} {found.code} below {parent.__name__} {parent.code}"


def test_the_drawn_tree_is_the_real_one() -> None:
    real = {c.__name__: "" if c is HotspareError else c.__mro__[1].__name__ for c in errors_page.classes()}
    assert {name: parent for name, (parent, _) in errors_page.drawn().items()} == real


def test_every_error_has_a_meaning() -> None:
    for line in errors_page.render().splitlines():
        if line.startswith("| HS-"):
            assert not line.endswith("|  |"), line


def test_page_is_fresh() -> None:
    assert read(errors_page.PAGE) == errors_page.render(), "run `make docs`"


def message_form(source: Source) -> Iterator[Violation]:
    """Yields primary lines of errors that start with a capital or end with a full stop."""
    names = {found.__name__ for found in errors_page.classes()} - {"ProjectError"}
    for node in nodes(source, ast.Raise):
        if not (
            isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and dotted(node.exc.func) in names and node.exc.args
        ):
            continue
        first = node.exc.args[0]
        parts = first.values if isinstance(first, ast.JoinedStr) else [first]
        start, end = parts[0], parts[-1]
        if isinstance(start, ast.Constant) and str(start.value)[:1].isupper() and not str(start.value)[:2].isupper():
            yield source.violation(node, "primary line starts with a capital")
        if isinstance(end, ast.Constant) and str(end.value).endswith("."):
            yield source.violation(node, "primary line ends with a full stop")


def one_tree(source: Source) -> Iterator[Violation]:
    """Yields errors defined outside errors.py: the tree and the page must show them all."""
    names = {found.__name__ for found in errors_page.classes()}
    for node in nodes(source, ast.ClassDef):
        if isinstance(node, ast.ClassDef) and names & {dotted(base).rpartition(".")[2] for base in node.bases}:
            yield source.violation(node, f"{node.name} belongs in errors.py")


def test_messages_keep_their_form() -> None:
    assert violations(message_form, sources("src")) == []


def test_no_error_outside_the_tree() -> None:
    assert violations(one_tree, (s for s in sources("src") if s.path != "src/hotspare/base/errors.py")) == []


@pytest.mark.parametrize(
    "text",
    [
        "raise UsageError('No such topic')",
        "raise UsageError('no such topic.')",
        "raise errors",
        "raise UsageError(f'{x} is gone.')",
    ],
)
def test_message_form_bites(text: str) -> None:
    assert len(whats(message_form, "src/hotspare/x.py", text)) == (0 if text == "raise errors" else 1)


def test_message_form_allows() -> None:
    assert (
        whats(
            message_form,
            "src/hotspare/x.py",
            "raise UsageError(f'no such topic {x}', hint='Create it.')\nraise UsageError('JVM gone')",
        )
        == []
    )


def test_one_tree_bites() -> None:
    assert whats(one_tree, "src/hotspare/x.py", "class Lost(BusError):\n    code = 'HS-0399'") == ["Lost belongs in errors.py"]
    assert whats(one_tree, "src/hotspare/x.py", "class Lost(ValueError): ...") == []

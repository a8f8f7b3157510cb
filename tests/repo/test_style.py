"""Sizes, opening docstrings, file names and boolean parameters (house style; CONTRIBUTING.md)."""

from __future__ import annotations

import pytest

from tests.repo import style
from tests.repo.tree import Rule, sources, violations, whats

EVERYWHERE = ("src", "tests", "benchmarks")
SRC = "src/hotspare/ha/x.py"


@pytest.mark.parametrize("rule", [style.file_size, style.function_size, style.opening_docstring, style.file_name])
def test_house_style(rule: Rule) -> None:
    assert violations(rule, sources(*EVERYWHERE)) == []


def test_no_bare_boolean_parameters() -> None:
    assert violations(style.boolean_parameters, sources("src")) == []


def test_allowed_booleans_exist_and_say_why() -> None:
    texts = {source.path: source.text for source in sources("src")}
    for (path, name), reason in style.BOOLEAN_PARAMETERS.items():
        assert f"def {name.partition('.')[0]}" in texts.get(path, ""), f"{path}: {name} is gone"
        assert len(reason) > 10, f"{path}: {name} needs a reason"


def function_of(lines: int) -> str:
    return "def f():\n" + "    x = 1\n" * (lines - 1)


@pytest.mark.parametrize(
    ("path", "lines", "bites"),
    [
        (SRC, style.FUNCTION_LINES_MAX, False),
        (SRC, style.FUNCTION_LINES_MAX + 1, True),
        ("tests/base/test_x.py", style.TEST_FUNCTION_LINES_MAX, False),
        ("tests/base/test_x.py", style.TEST_FUNCTION_LINES_MAX + 1, True),
    ],
)
def test_function_size_bites(path: str, lines: int, bites: bool) -> None:
    assert bool(whats(style.function_size, path, function_of(lines))) is bites


@pytest.mark.parametrize(("lines", "bites"), [(style.FILE_LINES_MAX, False), (style.FILE_LINES_MAX + 1, True)])
def test_file_size_bites(lines: int, bites: bool) -> None:
    assert bool(whats(style.file_size, SRC, "x = 1\n" * lines)) is bites


@pytest.mark.parametrize(("text", "bites"), [("", False), ('"""Why."""\n', False), ("x = 1\n", True), ("# why\nx = 1\n", True)])
def test_opening_docstring_bites(text: str, bites: bool) -> None:
    assert bool(whats(style.opening_docstring, SRC, text)) is bites


@pytest.mark.parametrize(("name", "bites"), [("helpers", True), ("utils", True), ("spill", False)])
def test_file_name_bites(name: str, bites: bool) -> None:
    assert bool(whats(style.file_name, f"src/hotspare/ha/{name}.py", "")) is bites


@pytest.mark.parametrize(
    "text",
    [
        "def f(a: bool): ...",
        "def f(*, a: bool): ...",
        "def f(*, a: bool = False): ...",
        "def f(a: bool | None = None): ...",
        "def f(a: Optional[bool]): ...",
        "def f(a: 'bool'): ...",
        "def f(a=True): ...",
        "class A:\n    async def f(self, a: bool) -> None: ...",
    ],
)
def test_boolean_parameter_bites(text: str) -> None:
    assert whats(style.boolean_parameters, SRC, text) == ["f.a is a bare boolean"]


@pytest.mark.parametrize(
    "text",
    [
        "def f(a: Mode) -> bool: ...",
        "def f(a: Annotated[bool, typer.Option('--json')] = False): ...",
        "class A:\n    ready: bool = False",
        "def f(a: list[bool]): ...",
        "def f(a: int = 0): ...",
    ],
)
def test_boolean_parameter_allows(text: str) -> None:
    assert whats(style.boolean_parameters, SRC, text) == []

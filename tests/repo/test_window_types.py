"""Adding a window type touches its folder and one line of the registry: no other file names one."""

from __future__ import annotations

import re

import pytest

from tests.repo.tree import Source, read, sources, violations
from tests.repo.window_types import REGISTRY, WINDOWS, class_stem, naming, type_name, window_types

TYPES = window_types()


def test_every_window_type_has_its_folder_and_a_line_in_the_registry() -> None:
    assert {"source", "copy", "filter", "compute", "functional", "calculate"} <= TYPES
    listed = {name for name in TYPES if re.search(rf"\.{name}\.declaration import {class_stem(name)}Type", read(REGISTRY))}
    assert listed == TYPES


def test_nothing_else_names_a_window_type() -> None:
    assert violations(lambda source: naming(source, TYPES), sources("src")) == []


def test_the_readme_tells_of_every_window_type() -> None:
    (line,) = re.findall(r"^- Windows other than (.*)$", read("README.md"), re.MULTILINE)
    assert sorted(TYPES) == sorted(name for name in TYPES if re.search(rf"\b{type_name(name)}\b", line))


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("src/hotspare/projects/analysis.py", "isinstance(window, CopyWindow)"),
        ("src/hotspare/flow/plan.py", "from hotspare.windows.copy.operator import CopyOperator"),
        ("src/hotspare/flow/plan.py", "import hotspare.windows.copy.declaration"),
        ("src/hotspare/cli/x.py", "'kept: {type: copy}'"),
        ("src/hotspare/model/frontends/x.py", "{'window-copy': 1}"),
        (f"{WINDOWS}filter/operator.py", "from hotspare.windows.copy.declaration import CopyWindow"),
        (f"{WINDOWS}filter/declaration.py", "x = windows.CopyWindow"),
    ],
)
def test_the_rule_bites(path: str, text: str) -> None:
    assert [found.what for found in naming(Source.of(path, text), frozenset({"copy"}))] == ["names the window type copy"]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (f"{WINDOWS}copy/operator.py", "from hotspare.windows.copy.declaration import CopyWindow"),
        (REGISTRY, "from hotspare.windows.copy.declaration import CopyType"),
        ("src/hotspare/flow/poison.py", "import copy\ncopy.deepcopy(state)"),
        ("src/hotspare/model/project.py", "filter = 'the source of a copy'"),
    ],
)
def test_the_rule_allows(path: str, text: str) -> None:
    assert list(naming(Source.of(path, text), frozenset({"copy"}))) == []

"""docs/projects.md agrees with the code: its example loads, and its tables name what exists (SPEC A6, A14-A26, A39, I2-I6)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hotspare.model.connectors import CONNECTOR_PROPERTIES, MISSPELLED
from hotspare.model.durations import UNIT_US
from hotspare.model.frontends.values import FIELD_TYPES, RETENTION_KINDS, TYPE_ALIASES
from hotspare.model.window_type import type_of
from hotspare.projects import yaml as yaml_project
from hotspare.projects.load import load_text
from hotspare.windows.calculate.algorithms import SUMMARY_OUTPUTS
from hotspare.windows.registry import WINDOW_TYPES
from hotspare.windows.shared.expressions import expression_mistakes

PAGE = Path(__file__).parents[2] / "docs" / "projects.md"
PAGES = (PAGE, *sorted((PAGE.parent / "windows").glob("*.md")))
"""The page of all projects, and those of window types with a page of their own."""
CONNECTORS_MARK = "<!-- connectors -->\n"


def connector_tables() -> str:
    """Returns the part of the page that is generated from the table of connector properties."""
    lines = ["", "| class, direction | properties that exist | accepted without effect | do not exist yet |", "|---|---|---|---|"]
    for kind, directions in CONNECTOR_PROPERTIES.items():
        for direction, table in directions.items():
            columns: dict[str, list[str]] = {"implemented": [], "accepted, no effect": [], "not implemented": []}
            for name, support in table.items():
                columns[support.value].append(f"`{name}`")
            cells = " | ".join(" ".join(names) for names in columns.values())
            lines.append(f"| `{kind}`, {direction.name.lower()} | {cells} |")
    return "\n".join(lines) + "\n"


def test_the_examples_run_and_show_every_window_type() -> None:
    shown: set[str] = set()
    for page in PAGES:
        examples = re.findall(r"```yaml\n(project:.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
        assert examples, page
        for example in examples:
            loaded = load_text(example, expressions=expression_mistakes)
            assert loaded.warnings == ()
            shown |= {type_of(w.window).name for w in loaded.resolved.windows}
    assert shown == set(WINDOW_TYPES)


@pytest.mark.parametrize(
    "names",
    [
        yaml_project.PROJECT_KEYS,
        yaml_project.QUERY_KEYS,
        yaml_project.COMMON_KEYS,
        yaml_project.CONNECTOR_KEYS,
        *(each.yaml_keys for each in WINDOW_TYPES.values()),
        tuple(WINDOW_TYPES),
        tuple(RETENTION_KINDS),
        tuple(FIELD_TYPES),
        tuple(TYPE_ALIASES),
        tuple(f"{unit}s" for unit in UNIT_US),
        tuple(MISSPELLED),
        tuple(name for name in yaml_project.INDEX_NAMES if not name.startswith("pi_")),
    ],
)
def test_every_word_of_the_form_is_on_the_page(names: tuple[str, ...]) -> None:
    words = {word for page in PAGES for word in re.findall(r"array\(\w+\)|[\w-]+", page.read_text(encoding="utf-8"))}
    assert set(names) <= words


def test_summary_outputs_are_those_of_the_algorithm() -> None:
    page = PAGE.parent / "windows" / "calculate.md"
    rows = dict(re.findall(r"^\| `(\w+Out)` \| (.*) \|$", page.read_text(encoding="utf-8"), re.MULTILINE))
    assert rows == SUMMARY_OUTPUTS


def test_the_connector_table_is_made_from_the_code() -> None:
    after = PAGE.read_text(encoding="utf-8").split(CONNECTORS_MARK)[1]
    assert after.startswith(connector_tables())

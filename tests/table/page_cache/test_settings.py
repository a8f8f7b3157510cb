"""Settings of memory: a budget, a folder, and which windows stay."""

from __future__ import annotations

from pathlib import Path

import pytest

from hotspare.base.errors import ProjectError, UsageError
from hotspare.cli.looking.details import memory_text
from hotspare.cli.shared.values import parse_memory_option
from hotspare.model.frontends.esp_xml.text import dump as to_xml
from hotspare.model.project import Resident
from hotspare.projects.fingerprint import project_hash
from hotspare.projects.load import load_text
from hotspare.projects.yaml import dump as to_yaml
from hotspare.table.page_cache.open import page_cache_for

PROJECT = """
project: p
queries:
  q:
    windows:
      a: {type: source, opcodes: any, schema: "id*:int64"}
      b: {type: copy, resident: RESIDENT}
    edges: [a -> b]
"""


@pytest.mark.parametrize("dump", [to_yaml, to_xml])
@pytest.mark.parametrize("resident", list(Resident))
def test_both_texts_say_which_windows_stay(dump, resident: Resident) -> None:  # type: ignore[no-untyped-def]
    """SPEC G3."""
    loaded = load_text(PROJECT.replace("RESIDENT", resident.value)).project
    assert loaded.queries[0].windows[1].resident is resident
    assert load_text(dump(loaded)).project == loaded


def test_it_is_no_part_of_what_a_project_means() -> None:
    hashes = {project_hash(load_text(PROJECT.replace("RESIDENT", each.value)).project) for each in Resident}
    assert len(hashes) == 1


def test_another_word_is_a_mistake() -> None:
    with pytest.raises(ProjectError) as found:
        load_text(PROJECT.replace("RESIDENT", "sometimes"))
    (mistake,) = found.value.mistakes
    assert "'sometimes'" in mistake.message
    assert all(each.value in mistake.hint for each in Resident)


@pytest.mark.parametrize(
    ("text", "size"), [("", 0), ("512MiB", 512 << 20), ("4 GiB", 4 << 30), ("1.5g", 3 << 29), ("2048k", 2 << 20), ("1TB", 1 << 40)]
)
def test_sizes(text: str, size: int) -> None:
    assert parse_memory_option(text, None) == size


@pytest.mark.parametrize("text", ["much", "-1GiB", "512", "1XiB", "1023KiB"])
def test_no_sizes(text: str) -> None:
    with pytest.raises(UsageError, match="--memory"):
        parse_memory_option(text, None)


def test_groups_of_a_process_share_its_budget(tmp_path: Path) -> None:
    residence = page_cache_for(8 << 20, tmp_path, 4)
    assert residence is not None
    assert residence.size == 2 << 20
    assert page_cache_for(0, tmp_path) is None


def test_status_shows_the_memory_of_engines_that_have_a_budget() -> None:
    assert memory_text({"memory": {"budget": 512 << 20, "may_leave": 3 << 20}}) == "budget 512 MiB, may leave 3 MiB"

"""A sample of rows of docs/scope.md: with what the row says taken out of the code, the test that is named for it fails."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.repo import scope
from tests.repo.tree import ROOT
from tests.scope.plants import PLANTS, Ending

pytestmark = pytest.mark.timeout(900)  # some ten seconds of work for an idle core, more where kernels are not compiled yet


@pytest.fixture(scope="module")
def endings() -> dict[str, Ending]:
    """How the named tests end with each plant, in a process of their own; "" is without any."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.scope.plants"],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        check=True,
    )
    runs = [json.loads(line) for line in done.stderr.splitlines() if line.startswith('{"plant"')]
    return {run["plant"]: Ending(run["ending"]) for run in runs}


def test_without_a_plant_the_named_tests_pass(endings: dict[str, Ending]) -> None:
    assert endings[""] is Ending.PASSED


@pytest.mark.parametrize("name", PLANTS)
def test_without_what_the_row_says_its_test_fails(endings: dict[str, Ending], name: str) -> None:
    assert endings[name] is Ending.FAILED, f"{PLANTS[name].place} does not show row {PLANTS[name].row}"


@pytest.mark.parametrize("name", PLANTS)
def test_the_test_is_one_that_is_named_for_the_row(name: str) -> None:
    places = [shown.place for shown in scope.shown()[PLANTS[name].row]]
    assert PLANTS[name].place.partition("[")[0] in places


def test_the_sample_is_over_many_areas() -> None:
    assert len(PLANTS) >= 15
    assert len({plant.row[0] for plant in PLANTS.values()}) >= 7

"""Plays every failover scenario, and checks that invalid scenarios are refused (laws 6 and 7)."""

from pathlib import Path

import pytest

from tests.cases.failover_case import VERBS, Play, read_line, read_scenario

FOLDER = Path(__file__).parent
SCENARIOS = sorted((FOLDER / "failover").glob("*.case"))


def test_there_are_scenarios() -> None:
    assert SCENARIOS


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_scenario(path: Path, tmp_path: Path) -> None:
    Play(tmp_path).run(read_scenario(path))


def test_an_unknown_verb_is_an_error_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "broken.case"
    path.write_text("# nothing\nstart e0\n\nexplode e0\n")
    with pytest.raises(ValueError, match=r"broken.case:4: no such verb: explode; the verbs are .*start"):
        read_scenario(path)


def test_a_verb_with_wrong_arguments_says_how_it_is_written() -> None:
    with pytest.raises(ValueError, match=r"x.case:1: not understood: publish three; it is written: publish N"):
        read_line("x.case:1", "publish three")


def test_an_expectation_that_is_not_met_names_its_line_and_tells_the_story(tmp_path: Path) -> None:
    lines = [read_line("x.case:1", "start e0"), read_line("x.case:2", "role e0 active"), read_line("x.case:3", "epochs 7")]
    with pytest.raises(AssertionError, match=r"x.case:3: epochs 7\nthe epoch is 1(.|\n)*e0 campaigns for epoch 1"):
        Play(tmp_path).run(lines)


def test_every_verb_is_described() -> None:
    described = (FOLDER / "README.md").read_text()
    missing = [form.usage for forms in VERBS.values() for form in forms if f"`{form.usage}`" not in described]
    assert not missing

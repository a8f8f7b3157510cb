"""`hotspare replay --runner ordered` (law Runner): the same bytes as the local runner, head in driver or workers, two inputs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hotspare.cli.replaying.plan import prepare_replay
from hotspare.cli.replaying.run import run_local, run_ordered
from hotspare.runners.contract import HeadPlace
from tests.cli.test_replay import request

pytestmark = [pytest.mark.spark, pytest.mark.law]


def test_law_runner_replay_gives_the_same_bytes(tmp_path: Path) -> None:
    """Ticks, deletes by time (there is a time field) and a bad row are among the messages."""
    paths = {"q/source": tmp_path / "a.csv", "q/other": tmp_path / "b.csv"}
    paths["q/source"].write_text("".join(f"i,n,,{number * 160_000},{number % 5}\n" for number in range(600)) + "i,n,,,x\n")
    paths["q/other"].write_text("".join(f"p,n,{number % 7},n{number}\n" for number in range(50)))
    outputs = {"q/recent": tmp_path / "recent.csv", "q/end": tmp_path / "end.csv"}
    options = {
        "inputs": {name: str(path) for name, path in paths.items()},
        "times": {"q/source": "at"},
        "bad": tmp_path / "bad.csv",
    }
    replay = prepare_replay(request(tmp_path, outputs, **options))
    files = [*outputs.values(), tmp_path / "bad.csv"]
    expected_counts = run_local(replay)
    expected = [file.read_bytes() for file in files]
    assert expected[0].count(b"\nD,R") > 100
    for head_place, messages_max in ((HeadPlace.DRIVER, 7), (HeadPlace.WORKERS, 1000)):
        for file in files:
            file.unlink()
        counts = run_ordered(replace(replay, messages_max=messages_max), head_place)
        assert [file.read_bytes() for file in files] == expected
        assert counts == expected_counts

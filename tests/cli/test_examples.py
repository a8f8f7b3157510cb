"""The examples run as their README describes, and give the outputs in their folders."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
RUNS = [
    ("payments", "fraud/payments=payments.csv", {"fraud/alerts": "expected-alerts.csv"}),
    ("motors", "watch/readings=motors.csv", {"watch/recent": "expected-recent.csv", "watch/summed": "expected-summed.csv"}),
]
ELSEWHERE = ["history", "machines"]
"""Examples that other tests run: tests/integration/spark/test_history_example.py, and README's commands in tests/documents."""


@pytest.mark.parametrize(("name", "source", "outputs"), RUNS, ids=[run[0] for run in RUNS])
def test_an_example_gives_what_stands_beside_it(name: str, source: str, outputs: dict[str, str], tmp_path: Path) -> None:
    files = {window: tmp_path / expected for window, expected in outputs.items()}
    out = [part for window, file in files.items() for part in ("--out", f"{window}={file}")]
    command = [sys.executable, "-m", "hotspare", "replay", f"{name}.yaml", "--in", source, *out]
    done = subprocess.run(command, cwd=EXAMPLES / name, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for window, file in files.items():
        assert file.read_text() == (EXAMPLES / name / outputs[window]).read_text(), window


def test_every_example_is_run() -> None:
    assert sorted(p.name for p in EXAMPLES.iterdir() if p.is_dir()) == sorted([*ELSEWHERE, *(run[0] for run in RUNS)])

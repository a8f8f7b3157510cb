"""Alerts through the command: three standard deviations of each sensor, compared with Python's statistics (docs/alerts.md)."""

from __future__ import annotations

import random
import statistics
from collections import defaultdict, deque
from pathlib import Path

import pytest

from tests.cli.running import hotspare_here

pytestmark = pytest.mark.system

ROWS = 20
PROJECT = """
project: watch
queries:
  sensors:
    windows:
      readings: {type: source, index: empty, opcodes: insert-only, schema: "id*:int64,sensor:string,value:double"}
      newest: {type: copy, retention: {bycount_sliding: 20, by: [sensor]}}
      statistics:
        type: aggregate
        emit: new
        schema: "sensor*:string,id:int64,n:int64,mean:double,deviation:double,value:double"
        outputs:
          {id: ESP_aLast(id), n: ESP_aCount(), mean: ESP_aAve(value), deviation: ESP_aStd(value), value: ESP_aLast(value)}
        publish: true
      alarms: {type: filter, index: empty, condition: n = 20 and abs(value - mean) > 3 * deviation, publish: true}
    edges: [readings -> newest -> statistics -> alarms]
"""
SPIKES = {90: 12.0, 170: 11.0, 250: -13.0, 330: 12.5}
"""The deviation of a reading, by its number."""


def _readings() -> list[tuple[int, str, float]]:
    drawn = random.Random(20)
    means = {"a": 20.0, "b": 50.0, "c": -5.0}
    rows = []
    for number in range(350):
        sensor = drawn.choice("abc")
        rows.append((number, sensor, round(means[sensor] + drawn.uniform(-1, 1) + SPIKES.get(number, 0.0), 2)))
    return rows


def test_three_sigma_alarms_are_the_true_ones(tmp_path: Path) -> None:
    """Four alarms, from windows of exactly 20 rows; each reading has one row of statistics, over at most 20 rows."""
    readings = _readings()
    project, given, alarms, figures = (tmp_path / name for name in ("watch.yaml", "readings.csv", "alarms.csv", "statistics.csv"))
    project.write_text(PROJECT)
    given.write_text("".join(f"i,n,{number},{sensor},{value}\n" for number, sensor, value in readings))
    outputs = ("--out", f"sensors/alarms={alarms}", "--out", f"sensors/statistics={figures}")
    done = hotspare_here("replay", str(project), "--in", f"sensors/readings={given}", *outputs)
    assert done.returncode == 0, done.stderr
    windows: dict[str, deque[float]] = defaultdict(lambda: deque(maxlen=ROWS))
    expected_figures, expected_alarms = [], []
    for number, sensor, value in readings:
        window = windows[sensor]
        window.append(value)
        mean, deviation = statistics.fmean(window), statistics.stdev(window) if len(window) > 1 else None
        expected_figures.append((sensor, number, len(window)))
        if len(window) == ROWS and deviation is not None and abs(value - mean) > 3 * deviation:
            expected_alarms.append((sensor, number, ROWS, f"{mean:.6f}", f"{deviation:.6f}", f"{value:.6f}"))
    made = [line.split(",") for line in figures.read_text().splitlines()]
    assert [(row[2].strip(), int(row[3]), int(row[4])) for row in made] == expected_figures
    found = [line.split(",") for line in alarms.read_text().splitlines()]
    assert {tuple(row[:2]) for row in (*made, *found)} == {("I", "N")}
    assert [(row[2].strip(), int(row[3]), int(row[4]), *row[5:]) for row in found] == expected_alarms
    assert [number for _, number, *_ in expected_alarms] == list(SPIKES)

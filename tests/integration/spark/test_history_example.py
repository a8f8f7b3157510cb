"""The example of docs/dataframes.md that is a script: a live project over years of payments, in small."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from benchmarks._plain import environment

pytestmark = pytest.mark.spark

SCRIPT = Path(__file__).parents[3] / "examples" / "history" / "history.py"
SMALL = ("--years", "1", "--cards", "20", "--one-stolen-in", "300")


def rows_of(folder: Path, *names: str) -> list[tuple[Any, ...]]:
    columns = pq.read_table(folder, columns=list(names))
    return sorted(zip(*(columns[name].to_pylist() for name in names), strict=True))


def test_each_theft_is_one_alert() -> None:
    """The owner pays at most twice within a day: whatever the amounts, the total exceeds the limit from one of the thief's payments
    on, not before."""
    example = runpy.run_path(str(SCRIPT))
    limit = float(example["PROJECT"].read_text().partition("condition: total > ")[2].partition("\n")[0])
    for payments in range(example["THEFT"] + 1):
        spent = payments * example["THEFT_AMOUNT"]
        assert spent > limit or spent + 2 * example["OWNERS_AMOUNT_MAX"] <= limit
    assert example["THEFT"] * example["THEFT_AMOUNT"] > limit


def test_the_alerts_of_a_year_of_payments_are_those_that_thieves_caused(tmp_path: Path) -> None:
    """A query tried on history runs unchanged on the live stream. SPEC K1."""
    command = [sys.executable, str(SCRIPT), str(tmp_path), *SMALL]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2_000:]
    payments = rows_of(tmp_path / "payments", "card", "paid_at", "country", "amount", "id")
    foreign = [row for row in payments if row[2] == "elsewhere"]
    first = [row for row in foreign if row[4] % 4 == 1]
    assert 4 * len(first) == len(foreign) > 0
    at_home = {card: country for card, _, country, _, _ in payments if country != "elsewhere"}
    assert rows_of(tmp_path / "abroad", "card", "paid_at", "first", "second") == [
        (card, at, at_home[card], "elsewhere") for card, at, *_ in first
    ]
    too_much = rows_of(tmp_path / "too_much", "card", "paid_at", "total")
    assert [(card, at.date()) for card, at, _ in too_much] == [(card, at.date()) for card, at, *_ in first]
    for card, at, total in too_much:
        ages = [((at - paid).total_seconds(), amount) for each, paid, _, amount, _ in payments if each == card]
        day, and_heartbeat = (sum(amount for age, amount in ages if 0 <= age < until) for until in (86_400, 87_000))
        assert total > 2_000 and day - 0.01 <= total <= and_heartbeat + 0.01
    assert done.stdout.splitlines()[-1] == f"payments {len(payments)} stolen {len(first)} too_much {len(first)} abroad {len(first)}"

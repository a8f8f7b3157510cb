"""The examples of docs/dataframes.md, one after another."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hotspare.runners.spark.session import Session
from tests.spark_sessions import quick_options

pytestmark = pytest.mark.spark

PAGE = Path(__file__).parents[3] / "docs" / "dataframes.md"
_BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)


def test_the_examples_run(tmp_path: Path) -> None:
    text = PAGE.read_text()
    for name in ("payments.parquet", "alerts.parquet"):
        text = text.replace(f'"{name}"', f'"{tmp_path / name}"')
    blocks = _BLOCK.findall(text)
    assert len(blocks) == 5
    session = Session(quick_options(cores=2))
    try:
        known: dict[str, object] = {"spark": session.spark, "FOLDER": str(tmp_path)}
        for number, block in enumerate(blocks):
            exec(compile(block, f"{PAGE.name}, example {number + 1}", "exec"), known)
        alerts = session.spark.read.parquet(str(tmp_path / "alerts.parquet"))
        assert alerts.count() > 0
        assert alerts.where("total <= 1800").count() == 0
    finally:
        session.stop()

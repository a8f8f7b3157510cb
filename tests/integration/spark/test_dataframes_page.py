"""The examples of docs/dataframes.md, one after another."""

from __future__ import annotations

import os
import re
import subprocess
import sys
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


SCRIPT = """
from pyspark.sql import SparkSession
from hotspare.spark import apply, register

PROJECT = "project: p\\nqueries: {q: {windows: {s: {type: source, opcodes: any, schema: 'id*:int64,x:double', publish: true}}}}"
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
rows = spark.sql("select 1L as id, 2D as x")
register(spark)
print("found", apply(PROJECT, {"q/s": rows}, order_by="id")["q/s"].select("id").collect()[0][0])
"""


def test_a_script_runs_whatever_python3_is(tmp_path: Path) -> None:
    """Workers run the driver's interpreter if a script is run as `.venv/bin/python script.py`, without the environment on PATH."""
    other = tmp_path / "python3"
    other.write_text("#!/bin/sh\necho an interpreter without hotspare >&2\nexit 1\n")
    other.chmod(0o755)
    (tmp_path / "script.py").write_text(SCRIPT)
    environment = {name: value for name, value in os.environ.items() if name != "PYSPARK_PYTHON"}
    environment["PATH"] = f"{tmp_path}{os.pathsep}{environment['PATH']}"
    ran = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert "found 1" in ran.stdout, ran.stderr

"""Spark's private interface is used in one file."""

from __future__ import annotations

import ast

from tests.repo.tree import nodes, sources

FILE = "src/hotspare/runners/spark/private.py"
NAMES = {"_jvm", "_jsc", "_jdf", "_jc", "_jsparkSession", "_create_udf", "_accumulatorServer", "_gateway"}


def test_no_other_file_uses_private_names_of_spark() -> None:
    others = [source for source in sources("src") if source.path != FILE]
    assert {(other.path, node.attr) for other in others for node in nodes(other, ast.Attribute) if node.attr in NAMES} == set()

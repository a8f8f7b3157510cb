"""Spark's limits for long-lived tasks are in one file, once each, and each with its reason."""

from __future__ import annotations

import ast

from hotspare.runners.spark.settings import LIMITS, limits_conf
from tests.repo.tree import Source, nodes, sources

FILE = "src/hotspare/runners/spark/settings.py"
LASTING = ("spark.task.", "spark.stage.", "spark.speculation", "spark.excludeOnFailure", "spark.network.", "spark.decommission")
"""Prefixes of such a limit's name."""


def test_each_limit_is_set_once_and_says_why() -> None:
    assert len(limits_conf()) == len(LIMITS)
    reasons = [limit.reason for limit in LIMITS]
    assert len(set(reasons)) == len(reasons)
    assert all(len(reason.split()) >= 8 and limit.value for reason, limit in zip(reasons, LIMITS, strict=True))


def _texts(source: Source) -> set[str]:
    return {node.value for node in nodes(source, ast.Constant) if isinstance(node.value, str)}


def test_no_other_file_sets_one() -> None:
    others = [source for source in sources("src") if source.path != FILE]
    assert {(other.path, text) for other in others for text in _texts(other) if text.startswith(LASTING)} == set()

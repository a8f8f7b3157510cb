"""Errors of Spark's tasks reach the driver with their class."""

from __future__ import annotations

import json

import pytest

from hotspare.base.errors import HotspareError, PositionLost, ProjectError, RunnerError, UsageError
from hotspare.runners.spark.failure import error_from_json, error_to_json, query_error


@pytest.mark.parametrize("kind", [PositionLost, UsageError, RunnerError])
def test_an_error_keeps_its_class_over_a_link(kind: type[HotspareError]) -> None:
    error = kind("offset 3 is gone", detail="kept from 7 — ünï", hint="keep\nmore")
    back = error_from_json(json.loads(json.dumps(error_to_json(error))))
    assert type(back) is kind
    assert (back.message, back.detail, back.hint) == (error.message, error.detail, error.hint)


def test_an_error_that_cannot_be_rebuilt_keeps_its_message() -> None:
    back = error_from_json(error_to_json(ProjectError("p", [])))
    assert type(back) is RunnerError


def test_a_text_of_spark_is_quoted_in_bounds() -> None:
    assert len(str(query_error("x" * 1_000_000))) < 5_000

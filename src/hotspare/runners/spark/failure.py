"""Carries an error from a task of Spark to the driver as the same object, and describes the end of a query."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hotspare.base import errors
from hotspare.base.errors import HotspareError, RunnerError

_SPARK_TEXT_LENGTH_MAX = 2_000


def error_to_json(error: HotspareError) -> dict[str, Any]:
    """Returns the error as a JSON object, from which `error_from_json` makes an equal one."""
    return {"class": type(error).__name__, "message": error.message, "detail": error.detail, "hint": error.hint}


def error_from_json(document: Mapping[str, Any]) -> HotspareError:
    """Returns the error that `error_to_json` wrote. An error whose class takes other arguments becomes a RunnerError."""
    kind = getattr(errors, str(document["class"]), None)
    if not (isinstance(kind, type) and issubclass(kind, HotspareError)) or kind is errors.ProjectError:
        kind = RunnerError
    return kind(document["message"], detail=document["detail"], hint=document["hint"])


def query_error(text: str) -> RunnerError:
    """Returns the error for a query that ended with `text`, Spark's error, of which at most _SPARK_TEXT_LENGTH_MAX characters are
    quoted."""
    return RunnerError("spark ended the query", detail=text[:_SPARK_TEXT_LENGTH_MAX])

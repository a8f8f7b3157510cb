"""Carries an error of a Spark worker process to the driver as the same object, through Spark's error texts."""

from __future__ import annotations

import base64
import json
import re

from hotspare.base import errors
from hotspare.base.errors import HotspareError, RunnerError

_MARK = re.compile(r"hotspare-error:([A-Za-z0-9_\-=]+):")
_SPARK_TEXT_LENGTH_MAX = 2_000


class WorkerFailure(Exception):
    """Raised in a worker, with the original error packed into the text: Spark passes on the text of an error, but not its type."""

    def __init__(self, error: HotspareError) -> None:
        document = {"class": type(error).__name__, "message": error.message, "detail": error.detail, "hint": error.hint}
        packed = base64.urlsafe_b64encode(json.dumps(document).encode()).decode()
        super().__init__(f"hotspare-error:{packed}: {error}")


def unpack(text: str) -> HotspareError:
    """Returns the error that a worker packed into `text` (`WorkerFailure`); without one, a RunnerError that quotes Spark's text."""
    found = _MARK.search(text)
    if found:
        document = json.loads(base64.urlsafe_b64decode(found.group(1)))
        kind = getattr(errors, document["class"], None)
        if isinstance(kind, type) and issubclass(kind, HotspareError) and kind is not errors.ProjectError:
            return kind(document["message"], detail=document["detail"], hint=document["hint"])
    return RunnerError("spark ended the query", detail=text[:_SPARK_TEXT_LENGTH_MAX])

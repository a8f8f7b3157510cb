"""Keeps secrets out of logs and error texts: passwords in URLs, and values whose names mark them as secret."""

from __future__ import annotations

import re

MASK = "***"

_URL_PASSWORD = re.compile(r"(?P<start>[A-Za-z][A-Za-z0-9+.\-]*://[^\s/@:]*):(?P<secret>[^\s/]*)@(?=[^\s@]*)")
_SECRET_NAME = re.compile(r"(?:password|passwd|secret|token|credential|api_?key|sasl_jaas)", re.IGNORECASE)
_SECRET_PARAMETER = re.compile(
    r"(?P<start>\b[\w.\-]*(?:password|passwd|secret|token|credential|api_?key)[\w.\-]*=)[^\s&,;]+", re.IGNORECASE
)


def masked(text: str) -> str:
    """Returns `text` with MASK in place of each password of a URL and each value of a `name=value` pair whose name marks it as
    secret."""
    text = _URL_PASSWORD.sub(lambda match: f"{match['start']}:{MASK}@", text)
    return _SECRET_PARAMETER.sub(lambda match: match["start"] + MASK, text)


def masked_value(name: str, value: object) -> object:
    """Returns `value` as a log line may show it: MASK if the name of the field marks it as secret, otherwise masked as by
    `masked`."""
    if _SECRET_NAME.search(name):
        return MASK
    if isinstance(value, str):
        return masked(value)
    return value if isinstance(value, int | float | None) else masked(str(value))

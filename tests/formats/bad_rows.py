"""Bad rows of a codec as objects, for comparisons."""

from __future__ import annotations

from typing import NamedTuple

from hotspare.rows.refusals import BadRows


class BadRow(NamedTuple):
    message: int
    row: int
    reason: str
    sentence: str
    text: str


def listed(bad: BadRows) -> list[BadRow]:
    columns = bad.message.tolist(), bad.index.tolist(), *(c.to_pylist() for c in (bad.reason, bad.sentence, bad.text))
    return [BadRow(*row) for row in zip(*columns, strict=True)]

"""The identity of content in every store: its checksum and its size."""

from __future__ import annotations

from dataclasses import dataclass

import xxhash


@dataclass(frozen=True, slots=True)
class Blob:
    """The key of content: `hash` identifies it, `size` is checked too."""

    hash: str
    size: int


def checksum_of(content: bytes) -> str:
    digest: str = xxhash.xxh3_128_hexdigest(content)
    return digest


def blob_of(content: bytes) -> Blob:
    return Blob(checksum_of(content), len(content))

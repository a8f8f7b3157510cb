"""Whether a message is a text (`formats.loops` has the same for many texts)."""

from __future__ import annotations


def is_utf8(value: bytes | None) -> bool:
    try:
        (value or b"").decode()
    except UnicodeDecodeError:
        return False
    return True

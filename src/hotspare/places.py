"""Which file of this machine a URL of a bus or a coordination names: who only looks, or names one wrongly, makes none."""

from __future__ import annotations

from pathlib import Path


def named_path(url: str) -> Path | None:
    """The file that a bus or coordination is in; None of a URL that names none, or is no right one: who opens it says so."""
    path = url.removeprefix("sqlite:///").partition("?")[0] if url.startswith("sqlite:///") else ""
    return Path(path) if path else None


def has_its_file(url: str) -> bool:
    """Whether that file exists; of a URL that names none nothing is known, so yes."""
    path = named_path(url)
    return path is None or path.exists()

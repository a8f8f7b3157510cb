"""Pages of the changelog on a machine's disk: whatever is missing or damaged there is read from the topic again."""

from __future__ import annotations

import contextlib
import re
import uuid
from pathlib import Path

from hotspare.stores.content import checksum_of

_TEMPORARY = "tmp-"
_OWN = re.compile(rf"{_TEMPORARY}[0-9a-f]{{32}}|[0-9a-f]{{32}}-[0-9a-f]{{32}}")
"""Names of files that such a cache has: a page that is being written, and one by its hash and its writer."""


class PageCache:
    """In a folder, which may be deleted at any time, and is of several engines; None keeps nothing. No errors. Files of others that
    are there stay."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    @property
    def is_kept(self) -> bool:
        return self._folder is not None

    def get(self, name: str) -> bytes | None:
        """None where it is not there whole."""
        if self._folder is None:
            return None
        with contextlib.suppress(OSError):
            content = (self._folder / name).read_bytes()
            return content if checksum_of(content) == name.partition("-")[0] else None
        return None

    def put(self, name: str, content: bytes) -> None:
        if self._folder is not None:
            with contextlib.suppress(OSError):
                self._folder.mkdir(parents=True, exist_ok=True)
                temporary = self._folder / f"{_TEMPORARY}{uuid.uuid4().hex}"
                temporary.write_bytes(content)
                temporary.replace(self._folder / name)

    def keep(self, names: set[str]) -> None:
        """Delete all other pages."""
        if self._folder is not None:
            with contextlib.suppress(OSError):
                for path in self._folder.iterdir():
                    if path.name not in names and _OWN.fullmatch(path.name):
                        path.unlink(missing_ok=True)

"""The files that a publisher's Lua code reads: those of the project that it names in quotes, with their content at load time.

Code that opens files as it runs would depend on when it runs. So their texts become part of the program, and an engine that takes
the code over checks that they are unchanged.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from hotspare.base.errors import UsageError

FILE_BYTES_MAX = 16 << 20
_OPENED = re.compile(r"""\bio\.(?:open|lines)\s*\(\s*(?P<quote>["'])(?P<path>[^"'\n]+)(?P=quote)""")
_PLAIN = frozenset(range(0x20, 0x7F)) - frozenset(b'"\\')


def file_texts(code: str, home: Path) -> dict[str, bytes]:
    """Returns the content of each file that the code opens, by the path as written. Files in other folders and missing files are
    left out: to the code they do not exist.

    Raises UsageError if a file is too large.
    """
    found = {path: project_file(home, path) for path in sorted(opened_paths(code))}
    return {path: text for path, text in found.items() if text is not None}


def opened_paths(code: str) -> frozenset[str]:
    """Returns the paths that the code opens by a literal."""
    return frozenset(match["path"] for match in _OPENED.finditer(code))


def project_file(home: Path, written: str) -> bytes | None:
    """Returns the file's content; None if it does not exist, or is outside the project's folder. Raises UsageError if it is too
    large."""
    path = _inside(home, written)
    if path is None:
        return None
    if (size := path.stat().st_size) > FILE_BYTES_MAX:
        raise UsageError(f"file {path} has {size} bytes: a publisher's code can read files of at most {FILE_BYTES_MAX}")
    return path.read_bytes()


def _inside(home: Path, written: str) -> Path | None:
    """Returns the file if it is within the project's folder, else None. `test_files/NAME` may be there as `NAME`, as for
    connectors."""
    wanted = home / written
    for path in (wanted, wanted.parent.parent / wanted.name):
        if path.is_file() and path.resolve().is_relative_to(home.resolve()):
            return path
    return None


def files_digest(texts: dict[str, bytes]) -> str:
    """Returns a digest of paths and texts; "" without files."""
    digest = hashlib.blake2b(digest_size=8)
    for path, text in sorted(texts.items()):
        digest.update(b"%d %d " % (len(path.encode()), len(text)) + path.encode() + text)
    return digest.hexdigest() if texts else ""


def lua_texts(texts: dict[str, bytes]) -> str:
    """Returns the source of the Lua function `hs_text(path)`, which returns the text of a file, or nil."""
    cases = "".join(f"if path == {_literal(path.encode())} then return {_literal(text)} end " for path, text in texts.items())
    return f"function hs_text(path) {cases}return nil end\n"


def _literal(text: bytes) -> str:
    return '"' + "".join(chr(byte) if byte in _PLAIN else f"\\{byte:03d}" for byte in text) + '"'

"""Reads user code from a file next to the project. The file is read once, with the project, and the text becomes part of it."""

from __future__ import annotations

from pathlib import Path

from hotspare.base.errors import Place
from hotspare.model.code import Code
from hotspare.model.mistakes import Mistakes

CODE_FILE_BYTES_MAX = 1 << 20


def code_from_file(written: str, place: Place, home: str, found: Mistakes) -> Code:
    """Returns the code in the file `written`, which must be in the folder `home` or below; `home` is "" for a project without a
    folder. Adds a mistake and returns empty code if the file cannot be read."""
    refusal, data = _content(written, home)
    if not refusal:
        try:
            return Code.from_source_text(data.decode("utf-8-sig"), Place(written, 1))
        except UnicodeDecodeError:
            refusal = "is not UTF-8"
    found.add(place, f"code file {written!r} {refusal}", "name a file of UTF-8 text in the folder of the project")
    return Code("", place)


def _content(written: str, home: str) -> tuple[str, bytes]:
    """Returns why the file cannot be read, or "", and its bytes."""
    if not home:
        return "cannot be read: the project was not loaded from a file, so it has no folder", b""
    try:
        folder = Path(home).resolve()
        path = (folder / written).resolve()
        if not path.is_relative_to(folder):
            return "is not in the folder of the project", b""
        if not path.is_file():
            return "does not exist", b""
        with path.open("rb") as file:
            data = file.read(CODE_FILE_BYTES_MAX + 1)
    except (OSError, ValueError) as error:
        return f"cannot be read: {error}", b""
    return (f"is longer than {CODE_FILE_BYTES_MAX:,} bytes", b"") if len(data) > CODE_FILE_BYTES_MAX else ("", data)

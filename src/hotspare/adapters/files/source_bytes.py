"""The bytes of a file to be published, from any position: those of a plain file, or the uncompressed bytes of a compressed one.

A position in a compressed file counts uncompressed bytes. So a file and its compressed copy have the same positions, and a
publisher that was killed continues at the same row, also if the file was compressed again. To go back far, the file is decompressed
from its beginning.
"""

from __future__ import annotations

import os
import re
import stat
from io import FileIO
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from hotspare.base.errors import UsageError

CODEC_OF_SUFFIX = {".gz": "gzip", ".zst": "zstd"}
_MAGIC = {
    "gzip": rb"\x1f\x8b",
    "zstd": rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18",
    "bzip2": rb"BZh[1-9]1AY&SY",
    "xz": rb"\xfd7zXZ\0",
    "zip": rb"PK\x03\x04",
    "lz4": rb"\x04\x22\x4d\x18",
}
"""First bytes of compressed files; for zstd also a skippable frame, as pzstd writes it."""
_MAGIC_BYTES_MAX = 10
_SUFFIX = {codec: suffix for suffix, codec in CODEC_OF_SUFFIX.items()}
_PORTION_BYTES = 256 * 1024
REWIND_BYTES_MAX = 20 << 20
"""The distance that a reader may seek back in a compressed file without decompressing it again: more than the longest row and the
read-ahead."""


class SourceBytes(Protocol):
    """An open file. Its calls raise OSError, and UsageError for a compressed file that cannot be unpacked."""

    def read_at(self, count: int, offset: int) -> bytes:
        """Returns at most `count` bytes from `offset` on, none at the end."""

    def size(self) -> int:
        """Returns the number of bytes now; for a compressed file this may read to its end."""

    def size_or_zero(self) -> int:
        """Returns the size if it is known, else 0."""

    def is_same_file(self, path: Path) -> bool:
        """Whether the path still names this file."""

    def close(self) -> None: ...


def open_bytes(path: Path) -> SourceBytes:
    """Opens a file, and decompresses it if its suffix names a codec. Raises UsageError if it cannot be read or is not a regular
    file. Never blocks, as opening a pipe would."""
    try:
        file = FileIO(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
        if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            return _open_by_magic(path, PlainBytes(file))
        file.close()
    except OSError as error:
        raise UsageError(f"file {path} cannot be read", detail=error.strerror or str(error)) from error
    raise UsageError(
        f"{path} is not a regular file, so its rows cannot be read again after a restart",
        hint="write the rows to a file, or send them to a socket: `hotspare publish ... tcp://:PORT`",
    )


def is_compressed(path: Path) -> bool:
    """Whether a file with this name is decompressed."""
    return path.suffix.lower() in CODEC_OF_SUFFIX


def _open_by_magic(path: Path, plain: PlainBytes) -> SourceBytes:
    begin, codec = plain.read_at(_MAGIC_BYTES_MAX, 0), CODEC_OF_SUFFIX.get(path.suffix.lower())
    found = next((name for name, magic in _MAGIC.items() if re.match(magic, begin)), None)
    if codec is None and found is None:
        return plain
    if codec == found and codec is not None:
        return DecompressedBytes(path, plain, codec)
    plain.close()
    if codec is not None:
        raise UsageError(f"file {path} is not compressed by {codec}, but has its suffix", hint=f"rename it without {path.suffix}")
    if found not in _SUFFIX:
        raise UsageError(
            f"file {path} is compressed by {found}, which is not supported", hint="compress it by gzip or zstd, or not at all"
        )
    raise UsageError(
        f"file {path} is compressed by {found}, but has no suffix for it", hint=f"rename it to {path.name}{_SUFFIX[found]}"
    )


class PlainBytes:
    """An uncompressed file."""

    def __init__(self, file: FileIO) -> None:
        self._file = file

    def read_at(self, count: int, offset: int) -> bytes:
        return os.pread(self._file.fileno(), count, offset)

    def size(self) -> int:
        return os.fstat(self._file.fileno()).st_size

    def size_or_zero(self) -> int:
        return self.size()

    def is_same_file(self, path: Path) -> bool:
        try:
            return os.path.samestat(path.stat(), os.fstat(self._file.fileno()))
        except FileNotFoundError:
            return False

    def close(self) -> None:
        self._file.close()


class DecompressedBytes:
    """The uncompressed bytes of a compressed file; `plain` is the file itself."""

    def __init__(self, path: Path, plain: PlainBytes, codec: str) -> None:
        self._path = path
        self._plain = plain
        self._codec = codec
        self._size: int | None = None
        self._begin()

    def _begin(self) -> None:
        self._stream = pa.CompressedInputStream(pa.OSFile(str(self._path)), self._codec)
        self._kept = bytearray()
        self._end = 0

    def read_at(self, count: int, offset: int) -> bytes:
        if offset < self._end - len(self._kept):
            self._begin()
        while self._end < offset + count and self._decompress_next():
            pass
        begin = offset - (self._end - len(self._kept))
        return bytes(self._kept[begin : begin + count])

    def _decompress_next(self) -> bool:
        """Decompresses another portion; False at the end."""
        data = self._portion()
        self._kept += data
        self._end += len(data)
        if len(self._kept) > 2 * REWIND_BYTES_MAX:
            del self._kept[:-REWIND_BYTES_MAX]
        if not data:
            self._size = self._end
        return bool(data)

    def _portion(self) -> bytes:
        try:
            return bytes(self._stream.read(_PORTION_BYTES))
        except (OSError, pa.ArrowException) as error:
            what = f"file {self._path} cannot be decompressed by {self._codec} after byte {self._end} of its content"
            raise UsageError(
                what, detail=str(error).partition("\n")[0], hint="check that it is complete, or compress it again"
            ) from error

    def size(self) -> int:
        if self._size is None:
            other = DecompressedBytes(self._path, self._plain, self._codec)
            while other._decompress_next():
                pass
            other._stream.close()
            self._size = other._size
        assert self._size is not None
        return self._size

    def size_or_zero(self) -> int:
        return self._size or 0

    def is_same_file(self, path: Path) -> bool:
        return self._plain.is_same_file(path)

    def close(self) -> None:
        self._stream.close()
        self._plain.close()

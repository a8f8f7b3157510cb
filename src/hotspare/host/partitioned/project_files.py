"""A project's files on their way to executors that do not see them: the project's own text, and the small files of its folder.

Code that stands in files is read from the folder of the project (`model/code_files.py`), so that folder goes along, as far as it is
small. Data that connectors read or write has to be in a place that all machines see.
"""

from __future__ import annotations

import contextlib
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from hotspare.base.scratch import make_scratch

FILE_BYTES_MAX = 1 << 20
ALL_BYTES_MAX = 8 << 20
_DEPTH_MAX = 4


@dataclass(frozen=True, slots=True)
class ProjectFiles:
    """`files` by their path within the project's home."""

    project: str
    files: dict[str, bytes] = field(repr=False)

    @classmethod
    def of(cls, project: Path, home: Path | None) -> ProjectFiles:
        """OSError where the project cannot be read. Of its home, by default its own folder, files that are too large, or that come
        when there are too many already, stay behind."""
        folder = (home or project.parent).resolve()
        path = project.resolve()
        name = path.relative_to(folder).as_posix() if path.is_relative_to(folder) else path.name
        files = {name: path.read_bytes()}
        left = ALL_BYTES_MAX
        for each in sorted(folder.rglob("*")):
            inside = each.relative_to(folder)
            if len(inside.parts) > _DEPTH_MAX or any(part.startswith(".") for part in inside.parts) or inside.as_posix() in files:
                continue
            with contextlib.suppress(OSError):
                size = each.stat().st_size
                if each.is_file() and size <= min(FILE_BYTES_MAX, left):
                    files[inside.as_posix()] = each.read_bytes()
                    left -= size
        return cls(name, files)

    def unpack(self, stack: contextlib.ExitStack) -> tuple[Path, Path]:
        """(the project, its home) in a folder of this process, which goes with `stack`."""
        home = make_scratch("project")
        stack.callback(shutil.rmtree, home, ignore_errors=True)
        for name, content in self.files.items():
            path = home / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        return home / self.project, home

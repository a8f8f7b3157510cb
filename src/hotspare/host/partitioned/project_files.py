"""Carries a project to executors that do not see its files: the project's own text, and the small files of its folder.

Code in files is read from the folder of the project (`model/code_files.py`), so the small files of that folder are sent, too. Data
that connectors read or write has to be in a place that all machines see.
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
    """The project's file and its small neighbors. `files` has the content by path within the project's home."""

    project: str
    files: dict[str, bytes] = field(repr=False)

    @classmethod
    def from_project(cls, project: Path, home: Path | None) -> ProjectFiles:
        """Reads the project and the files of its home, by default its own folder. Skips files that are too large, or that exceed
        the total limit. Raises OSError if the project cannot be read."""
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
        """Writes the files to a folder of this process, which is deleted with `stack`. Returns (the project, its home)."""
        home = make_scratch("project")
        stack.callback(shutil.rmtree, home, ignore_errors=True)
        for name, content in self.files.items():
            path = home / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        return home / self.project, home

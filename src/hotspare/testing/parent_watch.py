"""Ends the engines of a cluster when who started them is gone without a word, as a test run that is killed.

A shell beside them reads a pipe: which processes began and which ended, and that all is over. Where the pipe closes before that, it
ends by SIGKILL those that are left. An engine that is frozen is ended, too; its JVM follows it by itself.
"""

from __future__ import annotations

import contextlib
import subprocess

_WATCHER = """
left=
while read -r word id; do
  case $word in
    began) left="$left $id" ;;
    ended) now=$left; left=; for each in $now; do [ "$each" = "$id" ] || left="$left $each"; done ;;
    over) exit 0 ;;
  esac
done
for each in $left; do kill -9 "$each"; done
"""


class ParentWatch:
    """Of processes of this one. Used by one thread at a time."""

    def __init__(self) -> None:
        self._shell: subprocess.Popen[bytes] | None = None

    def began(self, process_id: int) -> None:
        if self._shell is None:
            self._shell = subprocess.Popen(  # noqa: S603 - our own words
                ["/bin/sh", "-c", _WATCHER],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._tell(f"began {process_id}")

    def ended(self, process_id: int) -> None:
        """Before its id may be another one's."""
        self._tell(f"ended {process_id}")

    def close(self) -> None:
        """Nobody is watched any more; harmless when nobody was."""
        if self._shell is None:
            return
        self._tell("over")
        assert self._shell.stdin is not None
        with contextlib.suppress(OSError):
            self._shell.stdin.close()
        self._shell.wait()
        self._shell = None

    def _tell(self, line: str) -> None:
        if self._shell is not None and self._shell.stdin is not None:
            with contextlib.suppress(OSError):  # a watcher that is gone watches nobody
                self._shell.stdin.write(line.encode() + b"\n")
                self._shell.stdin.flush()

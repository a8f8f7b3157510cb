"""The `hotspare` command, and `python -m hotspare`."""

from __future__ import annotations

import os
import sys


def start() -> None:
    """Runs the command with the settings that every engine has (UTC, locale, hash seed 0). Replaces the process once if Python was
    started without them (`base.interpreter.reexec_process`).

    `hotspare run` and `hotspare replay` become the parent of a process that runs the same command (`host.watchdog`). Nothing else
    is imported before, because the parent keeps it in memory."""
    parent, command = None, "".join(sys.argv[1:2])
    if command in ("run", "replay"):
        from hotspare.host.watchdog.parent import is_parent_wanted, parent_of_engine, run_parent

        if is_parent_wanted(command, sys.argv[2:], os.environ):
            run_parent(command, sys.argv[2:])
        parent = parent_of_engine(os.environ)
    from hotspare.base.interpreter import end_with_parent, reexec_process

    if parent is not None:
        end_with_parent(parent)
    reexec_process()
    from hotspare.cli.main import main

    main()


if __name__ == "__main__":
    start()

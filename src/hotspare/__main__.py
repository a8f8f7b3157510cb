"""The `hotspare` command, and `python -m hotspare`."""

from __future__ import annotations

from hotspare.base.interpreter import reexec_process


def start() -> None:
    """Runs the command with the settings that every engine has (UTC, locale, hash seed 0). Replaces the process once if Python was
    started without them (`base.interpreter.reexec_process`)."""
    reexec_process()
    from hotspare.cli.main import main

    main()


if __name__ == "__main__":
    start()

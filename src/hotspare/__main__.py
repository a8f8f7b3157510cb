"""The `hotspare` command, and `python -m hotspare`."""

from __future__ import annotations

from hotspare.base.interpreter import reexec_process


def start() -> None:
    """Runs the command in the environment of every engine."""
    reexec_process()
    from hotspare.cli.main import main

    main()


if __name__ == "__main__":
    start()

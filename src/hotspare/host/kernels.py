"""Compiles the kernels that an engine needs before it starts: `python -m hotspare.host.kernels --help`.

Child processes compile, two at once on two cores. Each compiles one window type and ends, because the memory that numba takes grows
with each kernel. Processes that need the same code wait for the one that compiles it.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import traceback
from argparse import ArgumentParser
from collections.abc import Callable, Sequence
from pathlib import Path

from hotspare.base.file_locks import exclusive_lock
from hotspare.flow.warm import run_examples, types_of
from hotspare.model.resolved import Resolved
from hotspare.projects.load import load_project
from hotspare.rows.compile import KERNELS, import_all
from hotspare.rows.kernel_files import incomplete, on_disk, record_complete
from hotspare.rows.machine_code import cache_folder
from hotspare.windows.registry import WINDOW_TYPES

_LONGEST = "aggregate"
"""The window type whose kernels take longest to compile; they are compiled first."""


def needs_compiling(project: Resolved) -> bool:
    """Whether code of this project's window types may be missing on disk."""
    return bool(incomplete(types_of(project)))


def load_kernels(project: Resolved) -> None:
    """Loads the machine code that an engine of this project needs, after child processes have compiled the missing part."""
    types = types_of(project)
    if incomplete(types):
        subprocess.run([sys.executable, "-m", __name__, *types], stdout=subprocess.DEVNULL, check=False)  # noqa: S603 - our own module
    run_examples(types)
    record_complete(types)


def compile_apart(types: Sequence[str], report: Callable[[str], None]) -> None:
    """Compiles the kernels that these window types lack on disk, in child processes. Waits while another process compiles. `report`
    gets a line for each type.

    A type whose examples fail to run stays incomplete: the process that needs it reports why.
    """
    folder = cache_folder()
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # code in a folder that cannot be written is of no use to others: they need not wait
            folder.mkdir(parents=True, exist_ok=True)
            stack.enter_context(exclusive_lock(folder / "compiling.lock"))
        import_all()
        missing = sorted(incomplete(types), key=lambda name: name == _LONGEST)
        children: dict[int, str] = {}
        while missing or children:
            while missing and len(children) < (os.cpu_count() or 1):
                each = missing.pop()
                children[_compiling_child(each)] = each
            pid, _ = os.wait()
            report(f"kernels: {on_disk()} of {len(KERNELS)} compiled, {children.pop(pid)} windows are complete")


def _compiling_child(type_name: str) -> int:
    """Forks a process that compiles the kernels of one type and then exits. Returns its id."""
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return pid
    try:
        run_examples([type_name])
        record_complete([type_name])
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def main(arguments: Sequence[str] | None = None) -> None:
    """Compiles the kernels of the named window types, of a project's types, or of all types. Prints a line for each type."""
    parser = ArgumentParser(prog=f"python -m {__spec__.name}", description=__doc__)
    parser.add_argument("types", nargs="*", choices=[[], *WINDOW_TYPES], metavar="TYPE", help="window types (all)")
    parser.add_argument("--project", type=Path, help="the window types of this project")
    chosen = parser.parse_args(arguments)
    types = chosen.types or (types_of(load_project(chosen.project).resolved) if chosen.project else list(WINDOW_TYPES))
    compile_apart(types, lambda line: print(line, flush=True))


if __name__ == "__main__":
    main()

"""Runs a page's commands as written there, in a folder of its own that holds the page's example data."""

from __future__ import annotations

import contextlib
import re
import shlex
import shutil
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pyarrow.parquet as pq

from hotspare.testing.cluster import wait_until
from tests.cli.running import hotspare_here
from tests.documents.blocks import ROOT, Block
from tests.e2e.prepared import PreparedProcess

DATA = Path(__file__).parent / "pages"
WITHOUT_SPARK = ("--runner", "local")
_PROJECT = re.compile(r"^```yaml\n(project: (\w+)\n.*?)^```", re.MULTILINE | re.DOTALL)
_ASSIGNED = re.compile(r"(?P<name>\w+)=\$\((?P<command>.*)\)")
_COUNTED = re.compile(r"\b(?P<rows>\d+) rows of (?P<what>[^\s,;]+)")
_READY = ("engine_started", "task_runs")
"""Log events of `hotspare run` once engines read their input."""
_STOP_S = 60.0


@dataclass
class Begun:
    """A command that runs until it is stopped."""

    words: Sequence[str]
    process: PreparedProcess
    log: Path

    @property
    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def wait_for(self, *words: str) -> None:
        """Waits until its log has one of these words."""
        wait_until(
            lambda: any(word in self.said for word in words) or self.process.returncode is not None, f"{words} of {self.words}"
        )
        assert any(word in self.said for word in words), self.said


class PageFolder:
    """A folder with example data, `data`, and with the projects of the pages `projects` under their names.

    `places` maps addresses and folders of pages to those of this machine. `run_options` are added to `hotspare run` if it names no
    runner."""

    def __init__(
        self,
        folder: Path,
        data: str,
        projects: Sequence[str] = (),
        places: Mapping[str, str] | None = None,
        run_options: Sequence[str] = WITHOUT_SPARK,
    ) -> None:
        self.folder = folder / "a page [1] of 100%"
        self.begun: list[Begun] = []
        self._places = dict(places or {})
        self._run_options = run_options
        self._logs = folder
        shutil.copytree(DATA / data, self.folder)
        for page in projects:
            for text, name in _PROJECT.findall((ROOT / page).read_text(encoding="utf-8")):
                (self.folder / f"{name}.yaml").write_text(text, encoding="utf-8")
        for file in self.folder.glob("*.cfg"):
            file.write_text(self._here(file.read_text()))

    def __enter__(self) -> PageFolder:
        return self

    def __exit__(self, *_: object) -> None:
        for each in self.begun:
            each.process.send_signal(signal.SIGKILL)

    def play(self, block: Block, statuses: Mapping[str, int] | None = None) -> None:
        """Runs each command of the block. Its exit status is 0, or that of its beginning in `statuses`."""
        for command in block.commands():
            self.do(command, next((status for begin, status in (statuses or {}).items() if command.startswith(begin)), 0))

    def do(self, command: str, status: int = 0) -> None:
        """Runs a command to its end. Starts one that runs until it is stopped, and waits until it is ready. After `hotspare stop`,
        waits for the end of the engine."""
        assigned = _ASSIGNED.fullmatch(command)
        name, *words = shlex.split(self._here(assigned["command"] if assigned else command))
        if name in ("kill", "cmp"):
            self._use(name, words)
            return
        assert Path(name).name == "hotspare", command
        if words[-1] == "&" or _runs_on(words):
            self._begin([word for word in words if word != "&"])
            return
        with contextlib.chdir(self.folder):
            if words[0] == "status":  # a role is taken a moment after its engine is ready
                wait_until(lambda: hotspare_here(*words).returncode == status, f"exit status {status} of {command}")
                return
            done = hotspare_here(*words)
        assert done.returncode == status, (command, done.stderr, done.stdout)
        if assigned:
            self._places[f"${assigned['name']}"] = done.stdout.strip()
        if words[0] == "replay":
            self._check_counts(words, done.stderr)
        if words[0] == "stop":
            self.await_end(words[2], 0)

    def await_end(self, engine: str, status: int) -> None:
        """Waits for the end of the engine of this name, and checks its exit status."""
        (ended,) = [each for each in self.begun if each.words[0] == "run" and engine in each.words]
        assert ended.process.wait(_STOP_S) == status, ended.said
        self.begun.remove(ended)

    def rows(self, name: str) -> list[str]:
        """Returns the rows of a file so far, and none before it exists."""
        file = self.folder / name
        return file.read_text().splitlines() if file.exists() else []

    def wait_rows(self, name: str, is_enough: Callable[[list[str]], bool]) -> None:
        wait_until(lambda: is_enough(self.rows(name)), f"rows of {name}", poll_s=0.05)

    def stop(self, verb: str = "") -> None:
        """Stops commands as Ctrl-C does, the newest first; with `verb` these alone. The file of a subscriber that reports how many
        rows it wrote has them."""
        for each in [each for each in reversed(self.begun) if verb in ("", each.words[0])]:
            self.begun.remove(each)
            each.process.send_signal(signal.SIGINT)
            assert each.process.wait(_STOP_S) == 0, (each.words, each.said)
            counted = _COUNTED.search(each.said)
            if each.words[0] == "subscribe" and counted and "--topic" not in each.words:
                titles = int("--plain" in each.words)
                assert len(self.rows(_positional(each.words))) == titles + int(counted["rows"]), each.said

    def _here(self, text: str) -> str:
        for there, here in self._places.items():
            text = text.replace(there, here)
        return text

    def _use(self, name: str, words: Sequence[str]) -> None:
        """Does what the shell does. `kill -9 %N` kills the Nth background command, as soon as it has rows. `cmp` waits until the
        files are equal, because rows may still be in flight."""
        if name == "kill":
            self.wait_rows("live.csv", lambda rows: len(rows) > 2)
            self.begun[int(words[-1].removeprefix("%")) - 1].process.send_signal(signal.SIGKILL)
        else:
            one, other = words
            wait_until(lambda: self.rows(one) == self.rows(other), f"{one} and {other} to be equal", poll_s=0.05)

    def _begin(self, words: Sequence[str]) -> None:
        log = self._logs / f"{len(list(self._logs.glob('*.log')))}.log"
        more = self._run_options if words[0] == "run" and "--runner" not in words else ()
        begun = Begun(words, PreparedProcess([*words, *more], self.folder, log), log)
        self.begun.append(begun)
        if words[0] == "run":
            begun.wait_for(*_READY)

    def _check_counts(self, words: Sequence[str], said: str) -> None:
        """Checks that the files of `--out` have the rows that the command reports."""
        files = dict(value.split("=") for option, value in pairwise(words) if option == "--out")
        counted = {each["what"]: int(each["rows"]) for each in _COUNTED.finditer(said)}
        counted |= {window: int(rows) for window, rows in re.findall(r"^(\S+): (\d+) rows$", said, re.MULTILINE)}
        assert counted.keys() == files.keys(), said
        for window, file in files.items():
            is_table = (self.folder / file).is_dir()
            titles = int("--plain" in words)
            found = pq.read_table(self.folder / file).num_rows if is_table else len(self.rows(file)) - titles
            assert found == counted[window] > 0, (said, file)


def _runs_on(words: Sequence[str]) -> bool:
    """Whether the command runs until it is stopped."""
    verb, rest = words[0], " ".join(words[1:])
    return (
        verb == "run"
        or (verb == "subscribe" and "--to-end" not in rest)
        or (verb == "publish" and ("--growing" in rest or "tcp://" in rest or ("--topic" in rest and "--maxevents" not in rest)))
        or (verb == "adapter" and "growinginputfile=true" in rest)
    )


def _positional(words: Sequence[str]) -> str:
    """Returns the file of a command that takes one, and whose options all have a value."""
    return next(word for before, word in pairwise(words) if not before.startswith("--") and not word.startswith("--"))

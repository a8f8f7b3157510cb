"""Every engine runs in one environment, whatever it was started in (SPEC A36)."""

from __future__ import annotations

import locale
import os
import subprocess
import sys
import time

import pytest

from hotspare.base.interpreter import ENVIRONMENT, fixed_environment

SEEN = "import os, sys, time; print(time.tzname, hash('text'), len(str(10 ** 4299)), sys.get_int_max_str_digits())"
STARTED_IN = [
    {"TZ": "Asia/Kolkata", "PYTHONHASHSEED": "7", "PYTHONINTMAXSTRDIGITS": "640"},
    {"TZ": "America/St_Johns", "PYTHONINTMAXSTRDIGITS": "0"},
    dict(ENVIRONMENT),
]


def _seen(started_in: dict[str, str], code: str) -> str:
    others = {name: value for name, value in os.environ.items() if name not in ("TZ", "PYTHONHASHSEED")}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, env=others | started_in, capture_output=True, text=True, check=True, timeout=60).stdout


def test_a_command_starts_again_in_the_environment_of_every_engine() -> None:
    code = f"from hotspare.base.interpreter import reexec_process; reexec_process(); {SEEN}"
    seen = {_seen(each, code) for each in STARTED_IN}
    assert len(seen) == 1
    assert "UTC" in seen.pop()


def test_numpy_starts_no_threads_of_its_own() -> None:
    threads = "import numpy, os; print(len(os.listdir('/proc/self/task')))"
    code = f"from hotspare.base.interpreter import reexec_process; reexec_process(); {threads}"
    assert _seen({"OPENBLAS_NUM_THREADS": "2"}, code) == "1\n"


def test_what_a_command_starts_has_its_environment() -> None:
    start = f"print(subprocess.run([sys.executable, '-c', {SEEN!r}], capture_output=True, text=True).stdout)"
    code = f"import subprocess, sys; from hotspare.base.interpreter import fix_environment; fix_environment(); {start}"
    seen = {_seen(each, code) for each in STARTED_IN}
    assert len(seen) == 1
    assert "UTC" in seen.pop()


def test_every_part_of_the_locale_is_fixed_and_given_back() -> None:
    before = locale.setlocale(locale.LC_ALL)
    locale.setlocale(locale.LC_ALL, "C.UTF-8")
    other = locale.setlocale(locale.LC_ALL)
    parts = {name: getattr(locale, name) for name in dir(locale) if name.startswith("LC_") and name != "LC_ALL"}
    try:
        with fixed_environment():
            found = {name: locale.setlocale(part) for name, part in parts.items()}
        assert found == dict.fromkeys(parts, "C") | {"LC_CTYPE": "C.UTF-8"}
        assert locale.setlocale(locale.LC_ALL) == other
    finally:
        locale.setlocale(locale.LC_ALL, before)


def test_a_task_of_another_program_gives_its_environment_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    time.tzset()
    try:
        with fixed_environment():
            assert time.tzname == ("UTC", "UTC")
            assert os.environ["PYTHONHASHSEED"] == "0"
        assert time.tzname[0] == "IST"
        assert "PYTHONHASHSEED" not in os.environ
    finally:
        monkeypatch.undo()
        time.tzset()

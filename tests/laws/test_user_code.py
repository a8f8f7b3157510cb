"""User code is a function of its events and of the state it keeps (laws Cut and Crash, of user code; SPEC A36).

Every example of this repository in Lua and Python, and random programs, run whole and restored at each event, in two processes that
differ in time zone and hash seed. All results are equal to the bit.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from hotspare.model.types import Field, FieldType
from hotspare.projects.load import load_text
from hotspare.windows.registry import WINDOW_TYPES, example_project
from tests.laws.code_programs import program

pytestmark = pytest.mark.law

ROOT = Path(__file__).parents[2]
PROGRAMS = 5000 if os.environ.get("HYPOTHESIS_PROFILE") == "thorough" else 500
A_REQUEST = 25
"""Programs sent to both processes at once: they run at the same time."""
ENVIRONMENTS = ({"TZ": "Asia/Kolkata", "PYTHONHASHSEED": "1"}, {"TZ": "America/New_York", "PYTHONHASHSEED": "4294967295"})
_PROJECT = re.compile(r"```yaml\n(project:.*?)```\n(?:.*?```\n(at .*?)```\n)?", re.DOTALL)
_CODE = re.compile(r"type: (?:lua|python|python-columns|custom)\b|^ *(?:local )?(?:function|def) \w", re.MULTILINE)


class Worker:
    """A process of `code_worker`."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        env = {**os.environ, **environment, "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))}
        command = [sys.executable, "-m", "tests.laws.code_worker"]
        self._process = subprocess.Popen(command, env=env, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, requests: Sequence[Mapping[str, str]]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("".join(json.dumps(request) + "\n" for request in requests))
        self._process.stdin.flush()

    def answers(self, count: int) -> list[dict[str, Any]]:
        assert self._process.stdout is not None
        return [json.loads(self._process.stdout.readline()) for _ in range(count)]

    def close(self) -> None:
        self._process.communicate()


@pytest.fixture(scope="module")
def workers() -> Iterator[list[Worker]]:
    workers = [Worker(environment) for environment in ENVIRONMENTS]
    yield workers
    for worker in workers:
        worker.close()


def _asked(workers: Sequence[Worker], requests: Sequence[Mapping[str, str]]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    for begin in range(0, len(requests), A_REQUEST):
        piece = requests[begin : begin + A_REQUEST]
        for worker in workers:
            worker.ask(piece)
        one, other = (worker.answers(len(piece)) for worker in workers)
        yield from zip(one, other, strict=True)


def difference(one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """Returns the difference between two processes, or of a restored engine; "" for none. State that cannot be stored may be a bad
    event only at a later event."""
    if failure := one.get("failure", other.get("failure")):
        return f"it fails: {failure}"
    if one != other:
        differ = {
            key: (one.get(key), other.get(key)) for key in sorted(one.keys() | other.keys()) if one.get(key) != other.get(key)
        }
        return f"two processes differ: {differ}"
    if "refused" in one or (one["unkept"] and "restored" not in one):
        return ""
    seen = len(one["restored"])
    if one["whole"][:seen] != one["restored"] or (not one["unkept"] and seen != len(one["whole"])):
        return f"restored it differs: {[pair for pair in zip(one['whole'], one['restored'], strict=False) if pair[0] != pair[1]]}"
    if not one["unkept"] and one["states"][-1] != one["state"]:
        return "restored it has another state"
    return ""


def _value(field: Field, number: int) -> str:
    if field.type is FieldType.STRING:
        return f"k{number % 3}"
    if field.type in (FieldType.INT32, FieldType.INT64, FieldType.STAMP, FieldType.DATE):
        return str(number)
    return f"{number * 1.25}" if field.type in (FieldType.DOUBLE, FieldType.MONEY) else ""


def _input_of(text: str, path: str) -> str:
    """Returns rows for every source of a project that has no input."""
    resolved = load_text(text, path).resolved
    lines = []
    for n in range(1, 9):
        for source in resolved.sources:
            values = ",".join(_value(field, n) for field in resolved.schema(source).fields)
            lines.append(f"at {n} s {source.window}: I,N,{values}")
    return "\n".join((*lines, f"at {n + 60} s tick"))


def _examples() -> Iterator[dict[str, str]]:
    """Yields each project with user code of the documents, the examples and the cases, with input."""
    for path in sorted((ROOT / "tests" / "cases" / "windows").glob("*.case")):
        if _CODE.search(text := path.read_text(encoding="utf-8")):
            yield {"case": text, "path": path.name}
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        for project, script in _PROJECT.findall(path.read_text(encoding="utf-8")):
            if _CODE.search(project):
                yield {"case": f"{project}\n---\n{script or _input_of(project, path.name)}", "path": path.name}
    files = {path.name: path.read_text(encoding="utf-8") for path in sorted((ROOT / "examples").rglob("*.yaml"))}
    for name, project in (files | {name: example_project(name) for name in sorted(WINDOW_TYPES)}).items():
        if _CODE.search(project):
            yield {"case": f"{project}\n---\n{_input_of(project, name)}", "path": name}


def test_examples_give_the_same_bits_wherever_they_run_and_restart(workers: list[Worker]) -> None:
    examples = list(_examples())
    assert len(examples) >= 40
    differ = {}
    for request, answers in zip(examples, _asked(workers, examples), strict=True):
        if found := difference(*answers):
            differ[request["path"]] = found
    assert not differ


def test_programs_give_the_same_bits_wherever_they_run_and_restart(workers: list[Worker]) -> None:
    programs = [program(seed) for seed in range(PROGRAMS)]
    requests = [{"language": each.language.value, "code": each.code} for each in programs]
    differ, refused = {}, 0
    for seed, answers in enumerate(_asked(workers, requests)):
        refused += "refused" in answers[0]
        if found := difference(*answers):
            differ[seed] = f"{programs[seed].language.value}: {found}\n{programs[seed].code}"
    assert refused < PROGRAMS // 20, "programs that do not load show nothing"
    assert not differ, f"programs of seeds {list(differ)} differ; the first:\n{next(iter(differ.values()))}"

"""Machine code is found by what a kernel computes, not by where its text is. Code on disk is recorded by window type."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple, cast

import numpy as np
import pytest

from hotspare.rows import compile as kernels
from hotspare.rows import kernel_files as records
from hotspare.rows.machine_code import cache_folder, kernel_key

_HEAD = """
from typing import NamedTuple
import numpy as np

LIMIT, TABLE = np.int64(3), np.array([1.0, 2.0])


class Pair(NamedTuple):
    left: int
    right: int


def inner(number: int) -> int:
    return number + LIMIT


def outer(pair: Pair) -> int:
    return inner(pair.left) + TABLE[0]
"""


def keys(text: str, name: str = "outer") -> str:
    """Returns the key of a function of this module text. The kernels that it calls are the functions of the text."""
    module = type(sys)("module_of_the_test")
    sys.modules[module.__name__] = module
    exec(f"from __future__ import annotations\n{text}", module.__dict__)
    functions = {id(each): each for each in vars(module).values() if isinstance(each, FunctionType)}

    def key_of(value: object) -> str | None:
        return kernel_key(functions[id(value)], {}, key_of) if id(value) in functions else None

    return kernel_key(vars(module)[name], {}, key_of)


@pytest.mark.parametrize(
    ("was", "now"),
    [
        ("LIMIT, TABLE", "# a comment\n\nLIMIT, TABLE"),
        ("    return number + LIMIT", "    return number + LIMIT  # why"),
        ("class Pair", "class Unrelated(NamedTuple):\n    left: int\n\n\nclass Pair"),
    ],
    ids=["a comment before", "a comment within", "a class that no kernel takes"],
)
def test_a_change_that_computes_the_same_keeps_the_key(was: str, now: str) -> None:
    assert keys(_HEAD.replace(was, now)) == keys(_HEAD)


def test_a_changed_docstring_keeps_the_key() -> None:
    one, other = (_HEAD.replace("    return inner", f'    """{text}"""\n    return inner') for text in ("One.", "Another."))
    assert keys(one) == keys(other)


@pytest.mark.parametrize(
    ("was", "now"),
    [
        ("pair.left) +", "pair.right) +"),
        ("number + LIMIT", "number - LIMIT"),
        ("np.int64(3)", "np.int64(4)"),
        ("np.int64(3)", "3"),
        ("[1.0, 2.0]", "[1.0, 3.0]"),
        ("left: int\n    right: int", "right: int\n    left: int"),
    ],
    ids=["itself", "a kernel that it calls", "a constant of that", "the type of a constant", "an array", "the order of fields"],
)
def test_a_change_of_what_is_computed_changes_the_key(was: str, now: str) -> None:
    assert keys(_HEAD.replace(was, now)) != keys(_HEAD)


def test_a_kernel_may_not_read_what_its_key_cannot_show() -> None:
    with pytest.raises(TypeError, match="outer reads TABLE, a list"):
        keys(_HEAD.replace("np.array([1.0, 2.0])", "[1.0, 2.0]"))


def test_options_are_part_of_the_key() -> None:
    def key(options: Mapping[str, Any]) -> str:
        return kernel_key(cast(FunctionType, plus_one), options, lambda _: None)

    assert len({key({"forceinline": True}), key({"forceinline": False}), key({})}) == 3


class Numbers(NamedTuple):
    first: int


def plus_one(number: int) -> int:
    return number + 1


def test_a_type_is_complete_once_it_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert records.incomplete(["source", "copy"]) == ["source", "copy"]
    records.record_complete(["copy"])
    assert records.incomplete(["source", "copy"]) == ["source", "copy"], "the folder is missing, which is no error"
    cache_folder().mkdir(parents=True)
    records.record_complete(["copy"])
    assert records.incomplete(["source", "copy"]) == ["source"]


def test_what_this_process_compiled_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(kernels, "KERNELS", {})
    for expected in (["test_machine_code.plus_one"], []):
        made = kernels.kernel(plus_one)
        assert made(1) == 2
        assert records.compiled_here() == expected
        assert records.on_disk() == 1


def test_a_folder_that_cannot_be_written_costs_time_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "hotspare").write_text("a file in place of the folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(kernels, "KERNELS", {})
    assert kernels.kernel(plus_one)(np.int64(1)) == 2
    assert records.compiled_here() == ["test_machine_code.plus_one"]
    assert records.on_disk() == 0


_ELSEWHERE = """
from hotspare.rows.compile import KERNELS
from hotspare.table.loops import hashing
print(KERNELS["hashing.mix"].key)
"""


def test_another_python_process_finds_the_same_key() -> None:
    """Keys do not depend on the hash seed of a process."""
    found = {
        subprocess.run(
            [sys.executable, "-c", _ELSEWHERE], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(found) == 1

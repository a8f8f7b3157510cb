"""An engine reports before it compiles, which takes minutes once."""

from pathlib import Path

import pytest

from hotspare.flow import machine_code
from hotspare.rows import compile as kernels


def test_machine_code_is_there_once_a_kernel_was_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "cache_folder", lambda: str(tmp_path))
    assert not kernels.is_compiled()
    (tmp_path / "of-a-path").mkdir()
    (tmp_path / "of-a-path" / "relation.take-1.py311.1.nbc").touch()
    assert kernels.is_compiled()
    monkeypatch.setattr(kernels, "cache_folder", str)
    assert kernels.is_compiled(), "numba chose a folder, and nobody knows which"


def test_what_is_noted_counts_for_the_same_kernels_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_code, "folder", lambda: tmp_path)
    monkeypatch.setattr(machine_code, "compiled_here", lambda: ["relation.take"])
    machine_code.record_if_complete()
    assert not machine_code.is_complete(), "some was compiled just now: whether it can be found is seen at the next start"
    monkeypatch.setattr(machine_code, "compiled_here", list)
    machine_code.record_if_complete()
    assert machine_code.is_complete()
    monkeypatch.setattr("numba.__version__", "0.0.1")
    assert not machine_code.is_complete()
    monkeypatch.setattr(machine_code, "folder", lambda: tmp_path / "gone")
    machine_code.record_if_complete()
    assert not machine_code.is_complete()


def test_what_this_process_compiled_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "cache_folder", lambda: str(tmp_path))
    made: list[kernels.Kernel[..., object]] = []
    monkeypatch.setattr(kernels, "KERNELS", {})
    for _ in range(2):
        made.append(kernels.kernel(plus_one))
        assert made[-1](1) == 2
        told = machine_code.compiled_here()
        assert told == (["test_machine_code.plus_one"] if len(made) == 1 else [])


def plus_one(number: int) -> int:
    return number + 1

"""An engine says so before it compiles, which takes minutes once."""

from pathlib import Path

import pytest

from hotspare.engine import kernels


def test_machine_code_is_there_once_a_kernel_was_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "_CACHE_FOLDER", str(tmp_path))
    assert not kernels.is_compiled()
    (tmp_path / "of-a-path").mkdir()
    (tmp_path / "of-a-path" / "relation.take-1.py311.1.nbc").touch()
    assert kernels.is_compiled()
    monkeypatch.setattr(kernels, "_CACHE_FOLDER", "")
    assert kernels.is_compiled(), "numba chose a folder, and nobody knows which"


def test_that_all_of_it_is_there_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "_CACHE_FOLDER", str(tmp_path))
    assert not kernels.is_complete()
    kernels.note_complete()
    assert kernels.is_complete()
    monkeypatch.setattr(kernels, "_CACHE_FOLDER", str(tmp_path / "gone"))
    kernels.note_complete()
    assert not kernels.is_complete()
    monkeypatch.setattr(kernels, "_CACHE_FOLDER", "")
    assert not kernels.is_complete(), "numba chose a folder, and nobody knows which"

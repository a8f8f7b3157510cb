"""What of the package goes to the executors."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from hotspare.flow import machine_code
from hotspare.runners.spark.partitioned import environment


@pytest.mark.parametrize("kept_in", ["hotspare/__pycache__/kernels-own/loops_1", "kept/loops_1", "loops_1"])
def test_machine_code_of_other_versions_stays_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept_in: str) -> None:
    """Also where NUMBA_CACHE_DIR leads elsewhere, even above the package."""
    code = "__pycache__"
    for name in ("__init__.py", "__pycache__/a.pyc", f"{code}/kernels-own/loops_1/a.nbc", f"{code}/kernels-old/loops_1/a.nbc"):
        path = tmp_path / "hotspare" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    monkeypatch.setattr(environment, "hotspare", SimpleNamespace(__file__=str(tmp_path / "hotspare/__init__.py")))
    monkeypatch.setattr(machine_code, "folder", lambda: tmp_path / kept_in)
    found = {name for path, name in environment._package_files(tmp_path / "sitecustomize.py") if path.is_file()}
    own = {f"hotspare/{code}/kernels-own/loops_1/a.nbc"} if "kernels-own" in kept_in else set()
    assert found == {"hotspare/__init__.py"} | own

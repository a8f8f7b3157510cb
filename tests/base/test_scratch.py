"""Scratch folders of killed processes do not pile up, and those of living ones are left alone."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hotspare.base.scratch import make_scratch, remove_abandoned

CHILD = """
import sys
from pathlib import Path
from hotspare.base.scratch import make_scratch
print(make_scratch("spark", Path(sys.argv[1])))
"""


def test_a_folder_goes_once_its_process_has_ended(tmp_path: Path) -> None:
    made = subprocess.run([sys.executable, "-c", CHILD, str(tmp_path)], capture_output=True, text=True, check=True).stdout.strip()
    (Path(made) / "left").write_text("behind")
    own = make_scratch("held", tmp_path)
    assert not Path(made).exists()
    remove_abandoned(tmp_path)
    assert own.is_dir(), "this process lives"
    assert f"-{os.getpid()}-" in own.name


STAYS = CHILD + "sys.stdout.flush()\nsys.stdin.read()\n"


def test_a_folder_stays_of_a_process_that_cannot_be_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its process lives in another container with the same temporary folder: from here it seems to have ended."""
    monkeypatch.setattr("hotspare.base.scratch.has_process_ended", lambda process_id, started: True, raising=False)
    child = subprocess.Popen([sys.executable, "-c", STAYS, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with child:
        assert child.stdout is not None
        folder = Path(child.stdout.readline().strip())
        remove_abandoned(tmp_path)
        assert folder.is_dir()
        child.kill()
    remove_abandoned(tmp_path)
    assert not folder.exists()


def test_what_is_not_a_scratch_folder_stays(tmp_path: Path) -> None:
    (tmp_path / "hotspare-demo-abc").mkdir()
    (tmp_path / "hotspare-spark-1-xyz.txt").write_text("a file")
    (tmp_path / "hotspare-spark-1-xyz").write_text("a file")
    (tmp_path / "hotspare-spark-2-xyz").mkdir()
    remove_abandoned(tmp_path)
    assert len(list(tmp_path.iterdir())) == 4

"""Scratch folders of killed processes do not pile up, and those of living ones are left alone."""

import os
import subprocess
import sys
from pathlib import Path

from hotspare.scratch import make_scratch, remove_abandoned

CHILD = """
import sys
from pathlib import Path
from hotspare.scratch import make_scratch
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


def test_what_is_not_a_scratch_folder_stays(tmp_path: Path) -> None:
    (tmp_path / "hotspare-demo-abc").mkdir()
    (tmp_path / "hotspare-spark-1-2-xyz.txt").write_text("a file")
    remove_abandoned(tmp_path)
    assert len(list(tmp_path.iterdir())) == 2

"""An installed wheel carries its machine code: it needs no folder to write to, and no compiler."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]

_START = """
import sys
from pathlib import Path
import hotspare
from hotspare.host.kernels import load_kernels, needs_compiling
from hotspare.projects.load import load_project
from hotspare.rows import kernel_files

package = Path(hotspare.__file__).parent
resolved = load_project(package / "demo/sensors.yaml").resolved
print(package, needs_compiling(resolved))
load_kernels(resolved)
print(kernel_files.compiled_here())
"""


def test_an_installation_that_may_write_nowhere_starts_without_compiling(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "hotspare.host.kernels"], check=True, stdout=subprocess.DEVNULL)
    subprocess.run([sys.executable, ROOT / ".ci/build-wheel", tmp_path], check=True)
    (wheel,) = tmp_path.glob("hotspare-*.whl")
    site, no_folder = tmp_path / "site", tmp_path / "file"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    no_folder.touch()
    installed = {path: path.stat().st_mtime_ns for path in site.rglob("*")}
    environment = {
        "PATH": os.environ["PATH"],
        "XDG_CACHE_HOME": str(no_folder),
        "PYTHONPATH": str(site),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    done = subprocess.run([sys.executable, "-c", _START], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.stderr == ""
    assert done.stdout.splitlines() == [f"{site / 'hotspare'} False", "[]"]
    assert {path: path.stat().st_mtime_ns for path in site.rglob("*")} == installed

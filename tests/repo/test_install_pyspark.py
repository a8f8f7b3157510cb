"""`.ci/install-pyspark` puts Spark where its own set-up would, and pins what the lock names."""

from __future__ import annotations

import base64
import hashlib
import io
import re
import tarfile
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any

import pytest

from tests.repo.tree import ROOT, read


def script() -> Any:
    loader = SourceFileLoader("install_pyspark", str(ROOT / ".ci/install-pyspark"))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


def distribution(folder: Path, *names: str) -> Path:
    """Writes a source distribution of version 9.9 whose files hold their own names."""
    path = folder / "pyspark-9.9.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name in names:
            member = tarfile.TarInfo(f"pyspark-9.9/{name}")
            member.size, member.mode = len(name), 0o755 if name.startswith("deps/bin/") else 0o644
            archive.addfile(member, io.BytesIO(name.encode()))
    return path


def test_the_locked_version_has_a_pinned_hash() -> None:
    locked = re.search(r"^pyspark==(\S+)$", read("requirements.lock"), re.MULTILINE)
    assert locked is not None
    assert re.fullmatch(r"[0-9a-f]{64}", script().SHA256[locked[1]])


def test_files_go_where_the_set_up_of_spark_puts_them(tmp_path: Path) -> None:
    path = distribution(
        tmp_path,
        *("PKG-INFO", "LICENSE", "setup.py", "pyspark/__init__.py", "pyspark/sql/a.py", "lib/py4j.zip"),
        *("deps/jars/spark.jar", "deps/bin/spark-class", "deps/examples/pi.py"),
    )
    site = tmp_path / "site"
    records = script().unpack(path, "9.9", site)
    placed = {
        "pyspark-9.9.dist-info/METADATA": "PKG-INFO",
        "pyspark-9.9.dist-info/licenses/LICENSE": "LICENSE",
        "pyspark/__init__.py": "pyspark/__init__.py",
        "pyspark/sql/a.py": "pyspark/sql/a.py",
        "pyspark/python/lib/py4j.zip": "lib/py4j.zip",
        "pyspark/jars/spark.jar": "deps/jars/spark.jar",
        "pyspark/bin/spark-class": "deps/bin/spark-class",
        "pyspark/examples/src/main/python/pi.py": "deps/examples/pi.py",
    }
    assert {p.relative_to(site).as_posix(): p.read_text() for p in site.rglob("*") if p.is_file()} == placed
    assert (site / "pyspark/bin/spark-class").stat().st_mode & 0o111 == 0o111
    digests = {name: base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode() for name, text in placed.items()}
    assert sorted(records) == sorted((name, f"sha256={digests[name].rstrip('=')}", len(text)) for name, text in placed.items())


def test_a_file_outside_of_the_distribution_ends_the_installation(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="has a file"):
        script().unpack(distribution(tmp_path, "pyspark/../../x"), "9.9", tmp_path / "site")

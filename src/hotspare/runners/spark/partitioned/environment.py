"""What executors on other machines get along: this Python, the packages that hotspare needs, and hotspare itself.

Two archives, which Spark copies to every executor and unpacks in its folder: the environment, which is made once for each set of
versions and kept, and the package with its compiled kernels, which is small and made at every start. The machines need the same
system and processor as this one; nothing of it has to be installed there.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
import sysconfig
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

import hotspare
from hotspare.base.errors import RunnerError
from hotspare.flow import machine_code
from hotspare.rows import compile as kernels

_ENVIRONMENT, _PACKAGE = "hotspare-environment", "hotspare-package"
EXECUTOR_PYTHON = f"./{_ENVIRONMENT}/bin/python"
_MACHINE_CODE = "kernels-"
"""So begins the name of each version's folder of it, in the package."""
_EXTRAS = ("sql", "redis", "s3")
"""Of hotspare's own: what of them is installed goes along."""
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_NO_USE = re.compile(
    r"^(?:pyspark/(?:jars|bin|sbin|examples|data|licenses|python/lib)/|lib/python[\d.]+/"
    r"(?:test|idlelib|tkinter|turtledemo|ensurepip|lib2to3|site-packages|dist-packages|config-[^/]*)/)|(?:^|/)(?:tests?/|__pycache__/)"
)
"""Files that no task reads: Spark's Java side, which executors have themselves, tests, compiled Python of other paths."""

_FIND_KERNELS = """\
import hashlib, pathlib
package = pathlib.Path(__file__).resolve().parent / "hotspare"
for folder, sent in SENT.items():
    source = package / folder
    own = source.name + "_" + hashlib.sha1(str(source).encode()).hexdigest()
    for kept in package.glob("__pycache__/kernels-*"):
        if (kept / sent).exists() and not (kept / own).exists():
            try:
                (kept / own).symlink_to(sent)
            except OSError:
                pass
"""
"""Runs when Python starts on an executor: numba keeps compiled kernels in folders whose names are made of the folders of their
source. `SENT`: by folder of source below the package, the name that its machine code was sent under."""


@dataclass(frozen=True, slots=True)
class Shipment:
    """`archives` as spark.archives takes them; `variables` of the tasks' Python."""

    archives: str
    variables: dict[str, str] = field(default_factory=dict)


def shipment(cache: Path, place: Path) -> Shipment:
    """The archives: the environment in `cache`, made first where it is not there, the package in `place`.

    RunnerError where they cannot be written.
    """
    packages = needed_distributions()
    versions = [sys.version, sys.executable, *(f"{each.name} {each.version}" for each in packages)]
    name = hashlib.sha256("\n".join(versions).encode()).hexdigest()[:16]
    environment, package = cache / f"environment-{name}.tar.gz", place / "package.tar.gz"
    try:
        if not environment.is_file():
            cache.mkdir(parents=True, exist_ok=True)
            _write(environment, _environment_files(packages))
        find_kernels = place / "sitecustomize.py"
        find_kernels.write_text(f"SENT = {_sent_folders()!r}\n{_FIND_KERNELS}", encoding="utf-8")
        _write(package, _package_files(find_kernels))
    except OSError as error:
        raise RunnerError("the archive of this Python for the executors cannot be written", detail=str(error)) from error
    variables = {"PYTHONPATH": os.pathsep.join((_PACKAGE, f"{_ENVIRONMENT}/site")), "LD_LIBRARY_PATH": f"{_ENVIRONMENT}/lib"}
    return Shipment(f"{environment.as_uri()}#{_ENVIRONMENT},{package.as_uri()}#{_PACKAGE}", variables)


def _sent_folders() -> dict[str, str]:
    """`SENT` of this place of the package."""
    root = Path(hotspare.__file__).parent
    found = {}
    for folder in sorted({path.parent for path in kernels.loops()}):
        digest = hashlib.sha1(str(folder).encode(), usedforsecurity=False).hexdigest()
        found[folder.relative_to(root).as_posix()] = f"{folder.name}_{digest}"
    return found


def needed_distributions() -> list[Distribution]:
    """All that hotspare needs and what that needs, by name; without hotspare itself. RunnerError where it is not installed."""
    try:
        own = distribution("hotspare")
    except PackageNotFoundError as error:
        what = "hotspare runs without being installed, so what it needs is not known"
        raise RunnerError(what, hint="install it, or give --conf spark.pyspark.python") from error
    found: dict[str, Distribution] = {}
    open_names = list(_requirements(own, _EXTRAS))
    while open_names:
        name = open_names.pop()
        if name in found:
            continue
        try:
            found[name] = distribution(name)
        except PackageNotFoundError:
            continue  # of another system, or an extra that nobody wanted
        open_names += _requirements(found[name], ())
    return [found[name] for name in sorted(found)]


def _requirements(package: Distribution, extras: tuple[str, ...]) -> Iterator[str]:
    for text in package.requires or ():
        requirement, _, marker = text.partition(";")
        if "extra" in marker and not any(f"'{extra}'" in marker or f'"{extra}"' in marker for extra in extras):
            continue
        match = _NAME.match(requirement)
        if match is not None:
            yield match[0].lower().replace("_", "-")


def _environment_files(packages: list[Distribution]) -> Iterator[tuple[Path, str]]:
    """(where, under which name)."""
    yield Path(sys._base_executable).resolve(), "bin/python"  # type: ignore[attr-defined]
    library = Path(sysconfig.get_path("stdlib", vars={"base": sys.base_prefix, "installed_base": sys.base_prefix}))
    for path in sorted(library.rglob("*")):
        yield path, f"lib/{library.name}/{path.relative_to(library).as_posix()}"
    shared = sysconfig.get_config_var("INSTSONAME")
    folder = sysconfig.get_config_var("LIBDIR")
    if shared and folder and (Path(folder) / shared).is_file() and ".so" in shared:
        yield Path(folder) / shared, f"lib/{shared}"
    for package in packages:
        for file in package.files or ():
            if ".." not in file.parts:
                yield Path(str(package.locate_file(file))), f"site/{file.as_posix()}"


def _package_files(find_kernels: Path) -> Iterator[tuple[Path, str]]:
    """With the compiled kernels: an executor that had to compile them would take minutes."""
    yield find_kernels, find_kernels.name
    root, own = Path(hotspare.__file__).parent, machine_code.folder().parent.name
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root)
        is_of_other_kernels = any(part.startswith(_MACHINE_CODE) and part != own for part in name.parts)
        if path.suffix != ".pyc" and not is_of_other_kernels:
            yield path, f"hotspare/{name.as_posix()}"


def _write(target: Path, files: Iterator[tuple[Path, str]]) -> None:
    """Whole or not at all."""
    handle, fresh = tempfile.mkstemp(dir=target.parent, suffix=".tar.gz")
    os.close(handle)
    try:
        with tarfile.open(fresh, "w:gz", compresslevel=1, dereference=True) as archive:
            for path, name in files:
                if path.is_file() and not _is_of_no_use(name):
                    archive.add(path, name, recursive=False)
        Path(fresh).replace(target)
    finally:
        Path(fresh).unlink(missing_ok=True)


def _is_of_no_use(name: str) -> bool:
    return name.startswith(("lib/", "site/")) and _NO_USE.search(name.removeprefix("site/")) is not None

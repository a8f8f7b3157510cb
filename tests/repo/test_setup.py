"""The set-up works from nothing: locks fit pyproject.toml, targets explain themselves, scripts report what is missing."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.repo.imports import imported
from tests.repo.tree import ROOT, read, sources

SYSTEM_PATH = os.pathsep.join(("/usr/bin", "/bin"))


def locked(path: str) -> dict[str, str]:
    """Returns the one version that a lock file allows, by canonical name."""
    lines = [line for line in read(path).splitlines() if line and not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in (line.split("==") for line in lines)}


RUNTIME, TEST, JRE = (locked(f"requirements{part}.lock") for part in ("", "-test", "-jre"))


def unmet(requirements: list[str], versions: dict[str, str]) -> list[str]:
    parsed = [Requirement(text) for text in requirements]
    return [str(r) for r in parsed if not r.specifier.contains(versions.get(canonicalize_name(r.name), "0"))]


def test_locks_fit_the_project() -> None:
    project = tomllib.loads(read("pyproject.toml"))["project"]
    extras = project["optional-dependencies"]
    assert unmet(project["dependencies"], RUNTIME) == []
    assert unmet(extras["test"], RUNTIME | TEST) == []
    assert unmet(extras["jre"], JRE) == []


IMPORTED_AS = {"confluent-kafka": "confluent_kafka", "pyyaml": "yaml"}
"""Modules of packages that are imported under another name."""


def test_every_dependency_is_imported() -> None:
    packages = {name.partition(".")[0] for source in sources("src") for _, name in imported(source)}
    names = {Requirement(text).name for text in tomllib.loads(read("pyproject.toml"))["project"]["dependencies"]}
    assert {name for name in names if IMPORTED_AS.get(name, name) not in packages} == set()


@pytest.mark.parametrize("name", ["numba", "sqlglot"])
def test_packages_whose_inner_forms_are_used_are_pinned(name: str) -> None:
    """Machine code is named after numba's version; sqlglot's trees change in minor versions."""
    pinned = f"{name}=={RUNTIME[name]}"
    assert pinned in tomllib.loads(read("pyproject.toml"))["project"]["dependencies"]


def test_locks_bring_what_builds_the_package() -> None:
    assert unmet(tomllib.loads(read("pyproject.toml"))["build-system"]["requires"], RUNTIME) == []


def test_each_package_is_locked_once() -> None:
    assert not (RUNTIME.keys() & TEST.keys() or RUNTIME.keys() & JRE.keys() or TEST.keys() & JRE.keys())


def test_unmet_bites() -> None:
    assert unmet(["numpy>=2", "gone>=1", "typer>=99"], {"numpy": "2.4", "typer": "0.29"}) == ["gone>=1", "typer>=99"]


def test_every_target_explains_itself() -> None:
    makefile = read("Makefile")
    phony = re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    assert phony is not None
    explained = re.findall(r"^([a-z-]+):[^#\n]*## \S", makefile, re.MULTILINE)
    assert sorted(explained) == sorted(phony[1].split())


@pytest.mark.parametrize("script", ["run", "venv", "has-java", "lock"])
def test_scripts_can_be_run(script: str) -> None:
    assert os.access(ROOT / ".ci" / script, os.X_OK)


def program(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def run(script: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([ROOT / ".ci" / script, *arguments], env=environment, capture_output=True, text=True, check=False)


def tools(folder: Path, *names: str) -> str:
    """Returns a PATH with only the named tools."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        found = next(path for top in SYSTEM_PATH.split(os.pathsep) if (path := Path(top) / name).exists())
        (folder / name).symlink_to(found)
    return str(folder)


def test_no_supported_python_is_said_so(tmp_path: Path) -> None:
    path = tools(tmp_path / "bin", "sh", "env")
    program(tmp_path / "bin", "python3", "exit 1")
    done = run("venv", str(tmp_path / "venv"), PATH=path)
    assert done.returncode == 1
    assert "no Python of version 3.11" in done.stderr and "hint:" in done.stderr


def test_a_python_without_venv_is_said_so(tmp_path: Path) -> None:
    path = tools(tmp_path / "bin", "sh", "env")
    program(tmp_path / "bin", "python3", f'case "$*" in *ensurepip*) exit 1 ;; esac\nexec {sys.executable} "$@"')
    done = run("venv", str(tmp_path / "venv"), PATH=path)
    assert done.returncode == 1
    version = ".".join(map(str, sys.version_info[:2]))
    assert "cannot make virtual environments" in done.stderr and f"python{version}-venv" in done.stderr


@pytest.mark.parametrize(
    ("answer", "status"), [('openjdk version "17.0.15" 2025-04-15', 0), ('java version "1.8.0_402"', 1), ("none", 1)]
)
def test_java_is_found_by_its_version(tmp_path: Path, answer: str, status: int) -> None:
    path = tools(tmp_path / "bin", "sh", "sed", "head", "env")
    program(tmp_path / "bin", "java", f"echo '{answer}' >&2")
    assert run("has-java", "17", PATH=path).returncode == status


def test_java_home_comes_first_and_may_be_wrong(tmp_path: Path) -> None:
    path = tools(tmp_path / "bin", "sh", "sed", "head", "env")
    program(tmp_path / "home" / "bin", "java", "echo 'openjdk version \"21.0.1\"' >&2")
    assert run("has-java", "17", PATH=path, JAVA_HOME=str(tmp_path / "home")).returncode == 0
    assert run("has-java", "17", PATH=path, JAVA_HOME=str(tmp_path / "gone")).returncode == 1

"""Every path and URL that a command takes is absolute when the command gets it."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

from hotspare.base.places import absolute_path, absolute_path_or_url, absolute_url
from hotspare.cli.main import COMMANDS
from hotspare.cli.shared.turns import TurnOptions, resolve_transport
from hotspare.cli.shared.values import parse_path_assignments, parse_spark_settings
from hotspare.host.options import EngineOptions
from hotspare.host.restoring import snapshot_url
from tests.cli.running import hotspare_here

_URLS = ("bus", "coordination", "store", "other_store")
_PLACES = ("publish file", "publish schemas", "subscribe file", "persist to", "restore source")
"""Texts that are URLs by their names, and those that are a path or a URL by their commands."""
_READ_LATER = {"master", "restore", "in_", "out", "settings"}
"""Texts that hold more than a place, and are tested below; and Spark's master, which is not a place."""


def _parameters() -> Iterator[tuple[str, str, Any, Any]]:
    """Yields (command, parameter, its type, its typer declaration)."""
    for name in COMMANDS:
        module = importlib.import_module(f"hotspare.cli.{name}")
        functions: dict[str, Callable[..., None]] = getattr(module, "commands", None) or {"": module.command}
        for own, function in functions.items():
            hints = get_type_hints(function, include_extras=True)
            for parameter in inspect.signature(function).parameters:
                type_, *_, info = get_args(hints[parameter])
                yield f"{name} {own}".strip(), parameter, type_, info


def test_a_parameter_that_is_a_place_is_read_as_one() -> None:
    for command, parameter, type_, info in _parameters():
        what = f"{parameter} of {command}"
        if type_ in (Path, Path | None):
            assert info.parser is absolute_path, what
        elif type_ is str and parameter in _URLS:
            assert info.parser is absolute_url, what
        elif f"{command} {parameter}" in _PLACES:
            assert info.parser is absolute_path_or_url, what
        elif parameter not in _READ_LATER:
            assert not any(word in str(info.metavar) for word in ("URL", "PATH", "FILE")), what


def test_places_within_texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert parse_path_assignments(["q/w=a.parquet", "q/v=s3a://b/c"], "--in") == {
        "q/w": f"{tmp_path}/a.parquet",
        "q/v": "s3a://b/c",
    }
    assert snapshot_url("kept#newest") == f"{(tmp_path / 'kept').as_uri()}#newest"
    given = ["spark.jars=a.jar,local:/b.jar", "spark.archives=e.tgz#e", "spark.app.name=a/b", "spark.eventLog.dir=hdfs:///logs"]
    assert parse_spark_settings(given) == {
        "spark.jars": f"{tmp_path}/a.jar,local:/b.jar",
        "spark.archives": f"{tmp_path}/e.tgz#e",
        "spark.app.name": "a/b",
        "spark.eventLog.dir": "hdfs:///logs",
    }


def test_a_transport_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "pub.cfg"
    file.write_text('kafka { hostport = "h:1" globalconfig = "ssl.ca.location=ca.pem;sasl.username=u" }')
    found = resolve_transport(file, "", TurnOptions())
    assert found.bus_url == f"kafka://h:1?ssl.ca.location={tmp_path}/ca.pem&sasl.username=u"


def test_the_file_of_an_option_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = hotspare_here("adapter", "-C", "type=pub,url=dfESP://h:1/p/q/w,fsname=in.csv", "--bus", "sqlite:///bus.db", "--create")
    assert done.returncode == 2
    assert f"{tmp_path}/in.csv" in done.stderr


def test_an_engine_that_a_program_embeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    options = EngineOptions(Path("p.yaml"), "sqlite:///b.db", store_url="sqlite:///s.db", page_folder=Path("pages"))
    assert (options.project, options.page_folder, options.folder) == (tmp_path / "p.yaml", tmp_path / "pages", tmp_path)
    assert (options.bus_url, options.coordination_url) == (f"sqlite:///{tmp_path}/b.db", "")
    assert options.store_url == f"sqlite:///{tmp_path}/s.db"

"""Relative paths in connectors begin at the project's folder, also for an engine with a copy of the project (SPEC I2, I5)."""

from __future__ import annotations

from pathlib import Path

import pytest

from hotspare.adapters.esp.connector_paths import absolute_bindings, with_absolute_paths
from hotspare.base.errors import ProjectError
from hotspare.host.project import checked_project
from hotspare.model.project import Connector

PROJECT = """
project: shop
queries:
  q:
    windows:
      orders:
        type: source
        index: empty
        opcodes: insert-only
        schema: "id*:int64,amount:double"
        connectors:
          file: {kind: fs, direction: publish, properties: {fsname: in.csv, fstype: csv}}
          socket: {kind: fs, direction: publish, properties: {fsname: ":7000", fstype: csv}}
          topic:
            kind: kafka
            direction: publish
            properties:
              kafkahostport: h:1
              kafkatopic: t
              kafkatype: avro
              avroschemaregistryurl: schemas
              kafkaglobalconfig: sasl.username=u;ssl.ca.location=ca.pem;ssl.key.location="/k y";ssl.crl.location="c l"
      large:
        type: filter
        condition: amount > 100
        publish: true
        connectors:
          out: {kind: fs, direction: subscribe, properties: {fsname: "@ESP_PROJECT_HOME@/out.csv", fstype: csv}}
    edges: [orders -> large]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "shop" / "schemas").mkdir(parents=True)
    found = tmp_path / "shop" / "shop.yaml"
    found.write_text(PROJECT)
    return found


def connectors(file: Path) -> dict[str, Connector]:
    resolved = checked_project(file, {}).resolved
    return {each.name: each for window in resolved.windows for each in window.window.connectors}


def test_paths_begin_at_the_projects_folder(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading the project checks whether the folder of schemas exists."""
    monkeypatch.chdir("/")
    home, found = file.parent, {name: with_absolute_paths(each, file.parent) for name, each in connectors(file).items()}
    assert (found["file"].get("fsname"), found["out"].get("fsname")) == (f"{home}/in.csv", f"{home}/out.csv")
    assert found["socket"].get("fsname") == ":7000"
    assert found["topic"].get("avroschemaregistryurl") == f"{home}/schemas"
    expected = f'sasl.username=u;ssl.ca.location="{home}/ca.pem";ssl.key.location="/k y";ssl.crl.location="{home}/c l";'
    assert found["topic"].get("kafkaglobalconfig") == expected
    (home / "schemas").rmdir()
    with pytest.raises(ProjectError, match="not a source of schemas"):
        checked_project(file, {})


def test_a_copy_of_the_project_has_the_same_files(file: Path, tmp_path: Path) -> None:
    """Bindings given outside the project are kept."""
    given = {"file": {"fsname": "other.csv", "header": "1"}}
    bindings = absolute_bindings(checked_project(file, {}, bindings=given).resolved, file.parent, given)
    copy = tmp_path / "copy" / "shop.yaml"
    copy.parent.mkdir()
    copy.write_text(PROJECT)
    resolved = checked_project(copy, {}, copy.parent, bindings=bindings).resolved
    found = {each.name: with_absolute_paths(each, copy.parent) for window in resolved.windows for each in window.window.connectors}
    assert (found["file"].get("fsname"), found["file"].get("header")) == (f"{file.parent}/other.csv", "1")
    assert found["out"].get("fsname") == f"{file.parent}/out.csv"
    assert found["topic"].get("avroschemaregistryurl") == f"{file.parent}/schemas"

"""The result of opening a URL, and the refusal of one that opens nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hotspare.base.errors import BusLocked, UsageError
from hotspare.bus.contract import Partition
from hotspare.bus.open import open_bus
from hotspare.bus.sqlite import SqliteBus
from hotspare.coordination.open import default_coordination_url, open_coordination
from hotspare.coordination.sqlite import SqliteCoordination
from hotspare.host.restoring import store_url
from hotspare.stores.directory import DirectoryStore
from hotspare.stores.open import default_store_url, open_existing_store, open_store
from tests.contract.material import member, outgoing, values


def test_a_file_is_named_absolutely_or_from_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    absolute, relative = open_bus(f"sqlite:///{tmp_path}/bus.db"), open_bus("sqlite:///bus.db")
    absolute.create_topic("in")
    absolute.append(Partition("in"), outgoing("a"))
    assert values(relative, "in") == ["a"]
    monkeypatch.chdir("/")
    assert values(relative, "in") == ["a"]
    for bus in (absolute, relative):
        assert isinstance(bus, SqliteBus)
        bus.close()
    assert [path.name for path in tmp_path.iterdir()] == ["bus.db"]


def test_everything_of_the_embedded_default_stands_beside_its_bus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "a b%20ü#"
    folder.mkdir()
    monkeypatch.chdir(folder)
    for url in ("sqlite:///demo.db", f"sqlite:///{folder}/demo.db", f"sqlite:///{folder}/demo.db?busy_timeout_ms=200"):
        bus = open_bus(url)
        coordination = open_coordination(default_coordination_url(url))
        store = open_store(default_store_url(url))
        assert isinstance(coordination, SqliteCoordination)
        assert isinstance(store, DirectoryStore)
        store.write_candidate("g", "n", "e", 1, b"", [])
        assert {path.name for path in folder.iterdir()} >= {"demo.db", "demo.db-coord", "demo.db-snapshots"}
        coordination.close()
        bus.close()
    assert {path.name for path in folder.iterdir()} == {"demo.db", "demo.db-coord", "demo.db-snapshots"}


def test_memory_is_shared_by_its_name() -> None:
    url = "memory://test_memory_is_shared_by_its_name"
    open_bus(url).create_topic("in")
    assert dict(open_bus(url).topics()) == {"in": 1}
    assert dict(open_bus(url + "_2").topics()) == {}
    open_coordination(default_coordination_url(url)).refresh_member("g", member("a"))
    assert [m.engine for m in open_coordination(url).members("g")] == ["a"]
    open_store(default_store_url(url)).write_candidate("g", "n", "e", 1, b"", [])
    assert [info.name for info in open_store(url).list("g")] == ["n"]


def test_the_busy_timeout_can_be_set(tmp_path: Path) -> None:
    bus = open_bus(f"sqlite:///{tmp_path}/bus.db?busy_timeout_ms=7")
    bus.create_topic("in")
    holder = SqliteBus(tmp_path / "bus.db")
    with holder._file.writing(), pytest.raises(BusLocked, match=r"waited \d{1,2} ms"):
        bus.append(Partition("in"), outgoing("a"))
    holder.close()
    bus.close()


@pytest.mark.parametrize(
    ("opener", "url", "said"),
    [
        (open_bus, "kafka://user:secret@host:9092", "URL of a kafka bus does not name its brokers"),
        (open_bus, "kafka://host:9092?acks=1", "option acks of a kafka bus is set by hotspare"),
        (open_bus, "kafka://host:9092?timeout_ms=secret", "option timeout_ms"),
        (open_bus, "kafka://host:9092?secret%20=1", "an option with an invalid name"),
        (open_bus, "kafka://host:9092?security.protocol=secret", "options: security.protocol"),
        (open_bus, "oracle://user:secret@host", "'oracle' is not a kind of bus"),
        (open_bus, "bus.db", "'bus.db' is not a kind of bus"),
        (open_bus, "", "is not a kind of bus"),
        (open_bus, "memory://", "memory:// needs a name"),
        (open_bus, "sqlite://bus.db", "three slashes"),
        (open_bus, "sqlite:///", "three slashes"),
        (open_bus, "sqlite:///x.db?mode=rw", "option 'mode=rw'"),
        (open_bus, "sqlite:///x.db?busy_timeout_ms=-1", "option 'busy_timeout_ms=-1'"),
        (open_coordination, "zookeeper:///path", "'' is not a zookeeper host"),
        (open_coordination, "zookeeper://a:2181,/path", "'' is not a zookeeper host"),
        (open_coordination, "zookeeper://a:99999", "'a:99999' is not a zookeeper host"),
        (open_coordination, "zookeeper://user:secret@a:2181/path", "must not have a user before the host"),
        (open_coordination, "zookeeper://a/x/../y", "zookeeper path '/x/../y' cannot be used"),
        (open_coordination, "zookeeper://a/zookeeper/config", "cannot be used"),
        (open_coordination, "zookeeper://a?session_timeout_ms=1", "option session_timeout_ms='1'"),
        (open_coordination, "zookeeper://a?digest=user:secret", "is not known"),
        (open_coordination, "zookeeper://a?user=x&user=y&password=secret", "given twice"),
        (open_coordination, "zookeeper://a?password=secret", "needs both user and password"),
        (open_coordination, "zookeeper://a?user=x&password_file=/nowhere", "password_file /nowhere"),
        (open_coordination, "etcd://user:secret@host", "'etcd' is not a kind of coordination"),
        (open_coordination, "sqlite:/x.db", "'sqlite:/x.db' is not a kind"),
        (open_store, "kafka://user:secret@host:9092", "URL of the changelog cannot be read"),
        (open_store, "redis://:secret@host/name", "URL of a Redis store cannot be read"),
        (open_store, "redis://:secret@host:6379?db=secret", "option 'db' of a Redis store is not known"),
        (open_store, "ftp://user:secret@host", "'ftp' is not a kind of snapshot store"),
        (open_store, "file://relative/folder", "needs an absolute folder"),
        (open_store, "file:///", "needs an absolute folder"),
        (open_store, "file:///a%00b", "needs an absolute folder"),
        (open_existing_store, "sqlite:///relative.db", "names no database"),
        (open_existing_store, "file:///nowhere/a%20b", "there is no folder /nowhere/a b"),
        (open_existing_store, "sqlite:////nowhere/a%20b.db", "there is no file /nowhere/a b.db"),
        (open_store, "file:///folder?keyfile=/secret", "accepts only the options for a key"),
        (open_store, "file:///folder#secret", "write %3F for a question mark and %23"),
        (open_store, "file://[secret", "URL of a snapshot store cannot be read"),
        (open_store, "s3://user:secret\uff0f@bucket", "URL of a snapshot store cannot be read"),
        (store_url, "redis://user:secret@host", "a password must not be in this URL"),
        (store_url, "kafka://host:9092/name?sasl.password=secret", "a password must not be in this URL"),
        (store_url, "kafka://host:9092/name?ssl.key.pem=secret", "a password must not be in this URL"),
        (store_url, "az://container/path?account_key=secret", "a password must not be in this URL"),
        (store_url, "file:///folder?key=secret", "a password must not be in this URL"),
        (default_coordination_url, "kafka://host:9092", "give --coordination URL"),
        (default_store_url, "kafka://host:9092", "give --store URL"),
        (default_store_url, "sqlite:///", "give --store URL"),
    ],
)
def test_a_url_that_opens_nothing_is_refused_without_its_secrets(opener: Callable[[str], Any], url: str, said: str) -> None:
    with pytest.raises(UsageError) as refused:
        opener(url)
    assert said in str(refused.value)
    assert "hint: " in str(refused.value)
    assert "secret" not in str(refused.value)

"""The changelog on Kafka: a cache that is only a cache, frozen writers and collectors (SPEC G5, G6)."""

from __future__ import annotations

import contextlib
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from hotspare.base.errors import SnapshotDamaged, SnapshotFormat, StoreError, UsageError
from hotspare.stores.changelog import store as changelog
from hotspare.stores.changelog.store import ChangelogStore
from hotspare.stores.changelog.topics import Topic, parse_url
from hotspare.stores.contract import SnapshotStatus
from hotspare.stores.open import open_store
from hotspare.stores.settings import StoreSettings
from hotspare.testing.kafka_server import KafkaServers
from tests.contract.material import Page

PAGES = {"a": b"shared", "b": b"only one"}


@dataclass
class Place:
    """The group `k` of a store, and access to the data behind it."""

    url: str
    store: ChangelogStore
    other: ChangelogStore
    bootstrap: str
    name: str

    @property
    def collector(self) -> ChangelogStore:
        """A store for which a writer counts as dead at once."""
        return ChangelogStore(self.url, settings=StoreSettings(writer_timeout_s=-1))

    def put(self, name: str, order: int, **pages: Any) -> None:
        self.store.write_candidate("k", name, "e", order, b"header", (pages or PAGES).items())

    def pages(self) -> list[str]:
        """Returns the keys of the pages that compaction would keep."""
        found = {each.key: each.value for each in self.topic("pages").read(0)}
        return sorted(key for key, value in found.items() if value is not None)

    def records(self, kind: str) -> list[str]:
        found = {each.key: each.value for each in self.topic("manifests").read(0)}
        return [key for key, value in found.items() if value is not None and key.split("/")[1] == kind]

    def topic(self, part: str) -> Topic:
        return Topic(parse_url(self.url)[0], f"{self.name}.{part}")


@pytest.fixture
def place(kafka: KafkaServers) -> Place:
    name = f"shots-{uuid4().hex}"
    url = f"{kafka.url}/{name}"
    return Place(url, ChangelogStore(url), ChangelogStore(url), kafka.bootstrap, name)


def before_call(monkeypatch: pytest.MonkeyPatch, owner: object, method: str, act: Callable[[], object], once: str = "") -> None:
    """Calls `act` before the first call of that method whose arguments contain `once`, as if it froze meanwhile."""
    real, left = getattr(owner, method), [act]

    def call(self: object, *arguments: Any) -> Any:
        if left and once in str(arguments):
            left.pop()()
        return real(self, *arguments)

    monkeypatch.setattr(owner, method, call)


def test_the_cache_is_only_a_cache(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SPEC G5, Z24: the cache is deleted or damaged, the engine restarted, and the state is the same."""
    cache = tmp_path / "cache"
    pages = {f"p{i}": b"%d" % i * 1000 for i in range(20)} | {"large": bytes(range(256)) * 8000}
    place.put("one", 1, **pages)
    place.store.confirm("k", "one")
    for prepare in (lambda: None, lambda: shutil.rmtree(cache), lambda: [each.write_bytes(b"?") for each in cache.iterdir()]):
        prepare()
        store = open_store(f"{place.url}?cache={cache}")
        assert [info.status for info in store.list("k")] == [SnapshotStatus.CONFIRMED]
        assert dict(store.get("k", "one").pages) == pages
    monkeypatch.setattr(Topic, "read_at", lambda *_: pytest.fail("read from Kafka, and it is in the cache"))
    assert dict(open_store(f"{place.url}?cache={cache}").get("k", "one").pages) == pages
    monkeypatch.undo()
    (cache / "accounts.txt").write_text("of somebody else")
    open_store(f"{place.url}?cache={cache}").discard_group("k")
    assert [path.name for path in cache.iterdir()] == ["accounts.txt"]


def test_a_list_reads_no_pages(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.put("one", 1)
    read: list[str] = []
    before_call(monkeypatch, Topic, "read_at", lambda: read.append("pages"))
    assert [info.name for info in ChangelogStore(place.url).list("k")] == ["one"]
    assert read == []


def test_topics_are_compacted_and_checked(place: Place, kafka: KafkaServers) -> None:
    """SPEC Z20: nothing expires by age."""
    place.store.identity()
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    for config, count, said in (
        ({"cleanup.policy": "compact,delete"}, 1, "cleanup.policy compact,delete"),
        ({"cleanup.policy": "compact"}, 2, "2 partitions"),
        ({"cleanup.policy": "compact", "max.message.bytes": "3000"}, 1, "a changelog needs at least 4096"),
    ):
        name = f"other-{uuid4().hex}"
        (made,) = admin.create_topics([NewTopic(f"{name}.manifests", count, 1, config=config)]).values()
        made.result()
        with pytest.raises(StoreError, match=said):
            ChangelogStore(f"{kafka.url}/{name}").list("k")


def test_chunks_are_as_small_as_the_topic_wants(place: Place, kafka: KafkaServers) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    config = {"cleanup.policy": "compact", "max.message.bytes": "10000"}
    (made,) = admin.create_topics([NewTopic(f"{place.name}.pages", 1, 1, config=config)]).values()
    made.result()
    content = random.Random(1).randbytes(50_000)
    place.put("one", 1, p=content)
    assert place.store.get("k", "one").pages["p"] == content
    assert len(place.pages()) > 7


def test_what_nobody_names_gets_tombstones(place: Place) -> None:
    place.put("one", 1)
    place.put("two", 2, a=b"shared")
    assert len(place.pages()) == 5
    place.store.discard("k", "one")
    assert len(place.pages()) == 3
    place.store.discard_group("k")
    assert place.pages() == []
    assert all(place.records(kind) == [] for kind in ("claim", "shot", "dropped", "confirmed", "doomed"))


class Died(BaseException):
    """Simulates a kill: no cleanup runs."""


def test_a_writer_that_died_leaves_nothing_that_counts(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """SPEC H14. It dies at every point: before each write to Kafka."""
    place.put("whole", 1, p=b"whole")
    died = 0
    while died < 20:
        with monkeypatch.context() as patched, contextlib.suppress(Died):
            left, real = [died], Topic.append

            def append(self: Topic, records: Any, left: list[int] = left, real: Any = real) -> Any:
                left[0] -= 1
                if left[0] < 0:
                    raise Died
                return real(self, records)

            patched.setattr(Topic, "append", append)
            patched.setattr(changelog._Writing, "__exit__", lambda *_: None)
            place.put("torn", 2)
            break
        assert [info.name for info in place.other.list("k")] == ["whole"]
        died += 1
    assert died == 6  # two claims, two pages, the manifest, the snapshot
    place.collector.prune_snapshots("k", 1)
    assert place.records("claim") == []
    assert len(place.pages()) == 3 + 3
    assert dict(ChangelogStore(place.url).get("k", "torn").pages) == PAGES


def test_a_writer_that_is_taken_for_dead_writes_again(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def abandon() -> None:
        place.collector.prune_snapshots("k", 1)
        assert place.pages() == []

    page = Page(b"written before it stood still")
    before_call(monkeypatch, ChangelogStore, "append_records", abandon, once="/shot/")
    place.put("slow", 1, p=page)
    assert page.encoded == 2
    assert place.other.get("k", "slow").pages["p"] == b"written before it stood still"
    assert len(place.pages()) == 3


@pytest.mark.parametrize("point", ["claim", "shot"])
def test_what_a_frozen_writer_counts_on_is_there(place: Place, monkeypatch: pytest.MonkeyPatch, point: str) -> None:
    page = Page(b"counted on")
    place.put("one", 1, p=page)
    before_call(monkeypatch, ChangelogStore, "append_records", lambda: place.other.discard("k", "one"), once=f"/{point}/")
    place.put("two", 2, p=page)
    assert dict(ChangelogStore(place.url).get("k", "two").pages) == {"p": b"counted on"}
    place.store.discard_group("k")
    place.store.prune_snapshots("k", 1)
    assert place.pages() == []


@pytest.mark.parametrize("point", ["append_records", "delete_pages"])
def test_what_a_frozen_collector_deletes_nobody_counts_on(place: Place, monkeypatch: pytest.MonkeyPatch, point: str) -> None:
    """It freezes before it announces the deletion, or before it deletes; others collect, and a writer has the same page."""
    page = Page(b"doomed")
    place.put("one", 1, p=page)

    def meanwhile() -> None:
        place.other.prune_snapshots("k", 1)
        place.other.write_candidate("k", "two", "e", 2, b"header", [("p", page)])

    before_call(monkeypatch, ChangelogStore, point, meanwhile, once="/doomed/" if point == "append_records" else "generator")
    place.store.discard("k", "one")
    assert page.encoded == 2
    assert ChangelogStore(place.url).get("k", "two").pages["p"] == b"doomed"


def test_what_is_confirmed_while_it_is_replaced_stays(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.put("one", 1, p=b"old")
    before_call(monkeypatch, ChangelogStore, "append_records", lambda: place.other.confirm("k", "one"), once="/shot/")
    with pytest.raises(StoreError, match="is confirmed and has another content"):
        place.put("one", 1, p=b"new")
    (info,) = place.store.list("k")
    assert info.status is SnapshotStatus.CONFIRMED
    assert place.store.get("k", "one").pages["p"] == b"old"


def test_damage_is_told_and_written_anew(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    page, real = Page(b"a page that comes back damaged"), Topic.read_at
    place.put("one", 1, p=page)
    assert place.store.get("k", "one").pages["p"] == b"a page that comes back damaged"
    monkeypatch.setattr(Topic, "read_at", lambda self, wanted, found: real(self, wanted, lambda key, got: found(key, got[:-1])))
    for store in (place.store, place.other):  # its pages; and the manifest, for the one that reads it first
        with pytest.raises(SnapshotDamaged, match="snapshot one of group k is damaged"):
            store.get("k", "one")
    monkeypatch.undo()
    place.put("two", 2, p=page)
    assert page.encoded == 2
    assert place.store.get("k", "two").pages["p"] == b"a page that comes back damaged"
    place.store.discard_group("k")
    assert place.records("doomed") == place.pages() == []


def test_a_newer_format_is_refused_and_its_pages_stay(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changelog, "FORMAT", 2)
    place.put("newer", 1, a=b"newer")
    monkeypatch.undo()
    older = ChangelogStore(place.url)
    older.write_candidate("k", "ours", "e", 2, b"", [("a", b"ours")])
    with pytest.raises(SnapshotFormat, match="has format 2"):
        older.get("k", "newer")
    older.discard("k", "ours")
    monkeypatch.setattr(changelog, "FORMAT", 2)
    assert place.store.get("k", "newer").pages["a"] == b"newer"


@pytest.mark.parametrize("url", ["kafka://user:secret@host:9092/x", "kafka:///x", "kafka://host:9092/x/y"])
def test_a_url_that_names_no_changelog_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="cannot be read") as refused:
        open_store(url)
    assert "secret" not in f"{refused.value.detail}"

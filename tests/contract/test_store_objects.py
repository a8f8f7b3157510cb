"""Snapshots in object storage: writers and collectors that freeze anywhere, a full server (SPEC G4, G6)."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import fsspec
import pytest

from hotspare.base.errors import SnapshotDamaged, SnapshotFormat, StoreError, UsageError
from hotspare.stores import directory_layout
from hotspare.stores.contract import SnapshotStatus
from hotspare.stores.objects.bucket import Bucket
from hotspare.stores.objects.layout import GroupObjects
from hotspare.stores.objects.store import ObjectStore
from hotspare.stores.open import open_store
from hotspare.stores.settings import StoreSettings
from hotspare.testing.s3_server import SECRET_ENV, S3Server
from tests.contract.material import Page

PAGES = {"a": b"shared", "b": b"only one"}


@dataclass
class Place:
    """The group `o` of a store, and access to the data behind it."""

    url: str
    store: ObjectStore
    other: ObjectStore
    bucket: Bucket

    @property
    def group(self) -> GroupObjects:
        return GroupObjects(self.bucket, "o")

    def collect(self) -> None:
        """Collects with a store for which a writer counts as dead at once."""
        with contextlib.closing(ObjectStore(self.url, settings=StoreSettings(writer_timeout_s=-1))) as store:
            store.prune_snapshots("o", 1)

    def put(self, name: str, order: int, **pages: Any) -> None:
        self.store.write_candidate("o", name, "e", order, b"header", (pages or PAGES).items())

    def keys(self, kind: str) -> list[str]:
        return list(self.bucket.sizes(f"o/{kind}"))


@pytest.fixture
def place(s3: S3Server) -> Iterator[Place]:
    with contextlib.ExitStack() as opened:
        store, other = (opened.enter_context(contextlib.closing(ObjectStore(s3.url))) for _ in range(2))
        bucket = Bucket(s3.url)
        bucket.delete(f"o/{key}" for key in bucket.sizes("o"))
        yield Place(s3.url, store, other, bucket)


def before_call(monkeypatch: pytest.MonkeyPatch, owner: object, method: str, act: Callable[[], object], *, once: str = "") -> None:
    """Calls `act` before the first call of that method whose arguments contain `once`, as if it froze meanwhile."""
    real, left = getattr(owner, method), [act]

    def call(self: object, *arguments: Any) -> Any:
        if left and once in str(arguments):
            left.pop()()
        return real(self, *arguments)

    monkeypatch.setattr(owner, method, call)


def test_what_nobody_names_is_deleted(place: Place) -> None:
    place.put("one", 1)
    place.put("two", 2, a=b"shared")
    assert len(place.keys("pages")) == 3
    place.store.discard("o", "one")
    assert len(place.keys("pages")) == 2
    place.store.discard_group("o")
    assert place.bucket.sizes("o") == {}


def test_one_listing_tells_all_snapshots(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many pages they have."""
    place.put("one", 1)
    place.store.confirm("o", "one")
    asked: list[str] = []
    before_call(monkeypatch, Bucket, "get_object", lambda: asked.append("an object"))
    assert [info.status for info in place.store.list("o")] == [SnapshotStatus.CONFIRMED]
    assert asked == []


class Died(BaseException):
    """Simulates a kill: no cleanup runs."""


def die_before(patched: pytest.MonkeyPatch, number: int, points: list[str]) -> None:
    """Dies before the write of object `number`; appends its key to `points`."""
    turn, left = threading.Lock(), [number]

    def replace(real: Any) -> Any:
        def call(self: Bucket, key: str, content: bytes) -> Any:
            with turn:
                left[0] -= 1
                if left[0] == 0:
                    points.append(key if "/seal-" in key else key.rpartition("/")[0])
            if left[0] <= 0:
                raise Died
            return real(self, key, content)

        return call

    for name in ("put_object", "create"):
        patched.setattr(Bucket, name, replace(getattr(Bucket, name)))
    patched.setattr(GroupObjects, "release_claims", lambda *_: None)


def test_a_writer_that_died_leaves_nothing_that_counts(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """SPEC H14. It dies at every point: before each object that it writes."""

    place.store.identity()
    points: list[str] = []
    while len(points) < 20:
        place.bucket.delete(f"o/{key}" for key in place.bucket.sizes("o"))
        with monkeypatch.context() as patched, contextlib.suppress(Died):
            die_before(patched, len(points) + 1, points)
            place.put("torn", 1)
            break
        assert place.other.list("o") == []
    with monkeypatch.context() as patched, contextlib.suppress(Died):
        die_before(patched, 3, points)
        place.put("other", 2, a=b"left behind", b=b"and this")
    assert {point.split("-")[0] for point in points} >= {"o/claims", "o/pages", "o/snapshots", "o/snapshots/seal"}
    assert len(place.keys("claims")) > 2
    assert [info.name for info in place.other.list("o")] == ["torn"]
    place.collect()
    assert place.keys("claims") == place.keys("doomed") == []
    assert len(place.keys("pages")) == 3
    assert dict(place.other.get("o", "torn").pages) == PAGES


def test_a_writer_that_is_taken_for_dead_writes_again(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is frozen before its seal, and its pages are collected: the snapshot is whole all the same."""

    def abandon() -> None:
        place.collect()
        assert place.keys("pages") == []

    page = Page(b"written before it stood still")
    before_call(monkeypatch, GroupObjects, "decide_seal", abandon, once="whole")
    place.put("slow", 1, p=page)
    assert page.encoded == 2
    assert place.other.get("o", "slow").pages["p"] == b"written before it stood still"


@pytest.mark.parametrize("point", ["write_claim", "announce_deletion", "write_manifest", "decide_seal"])
def test_what_a_frozen_writer_counts_on_is_there(place: Place, monkeypatch: pytest.MonkeyPatch, point: str) -> None:
    """It freezes before `point`, and the only snapshot that names the page is discarded and collected meanwhile."""
    page = Page(b"counted on")
    place.put("one", 1, p=page)
    before_call(monkeypatch, GroupObjects, point, lambda: place.other.discard("o", "one"))
    place.put("two", 2, p=page)
    assert dict(place.other.get("o", "two").pages) == {"p": b"counted on"}


def test_what_a_frozen_collector_deletes_nobody_counts_on(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has read the references, and freezes before it deletes; others collect, and a writer has the same page."""
    page = Page(b"doomed")
    place.put("one", 1, p=page)

    def meanwhile() -> None:
        place.other.prune_snapshots("o", 1)
        place.other.write_candidate("o", "two", "e", 2, b"header", [("p", page)])

    before_call(monkeypatch, Bucket, "delete", meanwhile, once="generator object _collect")
    place.store.discard("o", "one")
    assert page.encoded == 2
    assert place.other.get("o", "two").pages["p"] == b"doomed"
    assert place.keys("doomed") == []


def test_what_a_dead_collector_doomed_is_not_counted_on_until_it_is_gone(place: Place) -> None:
    page = Page(b"doomed by somebody")
    place.put("one", 1, p=page)
    place.group.announce_deletion("somebody", place.keys("pages"))
    place.put("two", 2, p=page)
    assert len(place.keys("pages")) == 4
    place.store.discard("o", "one")
    place.store.prune_snapshots("o", 1)
    assert place.keys("doomed") == []
    assert place.store.get("o", "two").pages["p"] == b"doomed by somebody"


def test_of_two_that_write_one_name_one_stays(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    before_call(
        monkeypatch, GroupObjects, "decide_seal", lambda: place.other.write_candidate("o", "one", "e", 1, b"", [("p", b"other")])
    )
    place.put("one", 1, p=b"mine")
    assert [info.name for info in place.store.list("o")] == ["one"]
    assert place.store.get("o", "one").pages["p"] in (b"mine", b"other")
    place.store.prune_snapshots("o", 1)
    assert len([key for key in place.keys("snapshots") if key.startswith("seal-")]) == 1


@pytest.mark.parametrize("point", ["decide_seal", "decide_fate"])
def test_what_is_confirmed_while_it_is_replaced_stays(place: Place, monkeypatch: pytest.MonkeyPatch, point: str) -> None:
    place.put("one", 1, p=b"old")
    (before,) = place.group.snapshots().entries
    confirmed = b"confirmed"
    before_call(monkeypatch, GroupObjects, point, lambda: place.group.decide("fate-", before.writer, confirmed))
    with pytest.raises(StoreError, match="is confirmed and has another content"):
        place.put("one", 1, p=b"new")
    (info,) = place.store.list("o")
    assert info.status is SnapshotStatus.CONFIRMED
    assert place.store.get("o", "one").pages["p"] == b"old"


def test_damage_is_told_and_written_anew(place: Place) -> None:
    page = Page(b"a page that will be damaged")
    place.put("one", 1, p=page)
    for key in place.keys("pages"):
        place.bucket.put_object(f"o/pages/{key}", b"?")
    with pytest.raises(SnapshotDamaged, match="snapshot one of group o is damaged"):
        place.store.get("o", "one")
    place.put("two", 2, p=page)
    assert place.store.get("o", "two").pages["p"] == b"a page that will be damaged"
    for key in place.keys("snapshots"):
        if ",two," in key:
            place.bucket.put_object(f"o/snapshots/{key}", b"?")
    with pytest.raises(SnapshotDamaged, match="manifest is truncated"):
        place.store.get("o", "two")


def test_a_newer_format_is_refused_and_its_pages_stay(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory_layout, "FORMAT", 2)
    place.put("newer", 1, a=b"newer")
    monkeypatch.undo()
    place.put("ours", 2, a=b"ours")
    with pytest.raises(SnapshotFormat, match="has format 2"):
        place.store.get("o", "newer")
    place.store.discard("o", "ours")
    monkeypatch.setattr(directory_layout, "FORMAT", 2)
    assert place.store.get("o", "newer").pages["a"] == b"newer"


def test_storage_without_conditional_writes_is_refused(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def create(self: Bucket, key: str, content: bytes) -> bool:
        self.put_object(key, content)
        return True

    monkeypatch.setattr(Bucket, "create", create)
    with pytest.raises(StoreError, match="created an object that exists already"):
        place.put("one", 1)
    assert place.store.list("o") == []


@pytest.mark.servers
def test_a_server_that_is_full_leaves_what_was_whole() -> None:
    """It fills in the middle of a write; the store's user gets an error, and goes on when there is room again."""
    with S3Server() as server, contextlib.closing(ObjectStore(server.url)) as store:
        identity = store.identity()
        store.write_candidate("g", "whole", "e", 1, b"", [("p", b"first")])
        pages = [(f"p{i}", Page(b"%d" % i, server.fill if i == 30 else lambda: None)) for i in range(60)]
        with pytest.raises(StoreError, match="a request to the object storage of snapshots failed") as told:
            store.write_candidate("g", "torn", "e", 2, b"", pages)
        assert server.password not in f"{told.value.detail} {told.value}"
        server.clear()
        assert [info.name for info in store.list("g")] == ["whole"]
        assert store.identity() == identity
        store.write_candidate("g", "torn", "e", 2, b"", [(name, Page(b"again")) for name, _ in pages])
        assert store.get("g", "whole").pages["p"] == b"first"
        assert len(store.get("g", "torn").pages) == 60


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("s3://user:secret@host/x", "cannot be read"),
        ("s3:///x", "cannot be read"),
        ("s3://b/x?secret=secret", "option 'secret' of s3:// snapshots is not known"),
        ("s3://b/x?access_key=a", "needs its secret"),
        (f"s3://b/x?password_env={SECRET_ENV}", "needs its secret"),
        ("s3://b/x?access_key=a&password_env=NOT_THERE_1", "password_env NOT_THERE_1: no such environment variable"),
        ("gs://b/x", "need its fsspec driver"),
        ("gs://b/x?access_key=secret", "option 'access_key' of gs:// snapshots is not known"),
    ],
)
def test_a_url_that_names_no_storage_is_refused(url: str, said: str, s3: S3Server) -> None:
    with pytest.raises(UsageError, match=said) as refused:
        open_store(url)
    assert "secret" not in f"{refused.value.detail} {refused.value.hint}" or "its secret" in said


def test_a_bucket_that_is_not_there_is_a_store_error(s3: S3Server) -> None:
    with contextlib.closing(open_store(s3.url.replace("//snapshots/", "//nowhere/"))) as store, pytest.raises(StoreError):
        store.write_candidate("g", "one", "e", 1, b"", [])


def test_what_a_driver_that_is_not_tested_raises_is_a_store_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class HttpError(Exception):
        pass

    class Files:
        def cat_file(self, path: str) -> bytes:
            raise HttpError("503")

    monkeypatch.setattr(fsspec, "filesystem", lambda *_, **__: Files())
    with pytest.raises(StoreError) as told:
        Bucket("gs://bucket/prefix").get_object("key")
    assert told.value.detail == "HttpError: 503"

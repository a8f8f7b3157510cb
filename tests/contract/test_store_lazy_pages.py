"""Pages of a large snapshot on a server: several are read in one call if they are expected, and held as long as a reader has
them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from hotspare.base.errors import SnapshotDamaged, StoreError
from hotspare.stores import lazy_pages
from hotspare.stores.content import Blob, blob_of
from hotspare.stores.settings import StoreSettings
from hotspare.testing.cluster import wait_until

CONTENTS = {f"p{i}": b"%d" % i * 10 for i in range(100)}
BLOBS = {name: blob_of(content) for name, content in CONTENTS.items()}
BY_HASH = {blob_of(content).hash: content for content in CONTENTS.values()}


@dataclass
class CountedHold:
    """A hold whose first renewal fails, as if the server were down."""

    renewed: int = 0
    is_let_go: threading.Event = field(default_factory=threading.Event)

    def renew(self) -> None:
        self.renewed += 1
        if self.renewed == 1:
            raise StoreError("away")

    def release(self) -> None:
        self.is_let_go.set()
        raise ValueError("the store is closed at this moment")


def test_what_is_expected_comes_in_few_calls_and_is_kept_until_it_is_asked_for() -> None:
    calls: list[int] = []

    def read(wanted: Sequence[Blob]) -> dict[str, bytes]:
        calls.append(len(wanted))
        return {blob.hash: BY_HASH[blob.hash] for blob in wanted}

    pages = lazy_pages.LazyPages(BLOBS, read, CountedHold())
    assert pages["p99"] == CONTENTS["p99"]
    names = [f"p{i}" for i in range(64)]
    for begin in range(0, 64, 32):
        pages.prefetch_pages(names[begin : begin + 32])
        assert {name: pages[name] for name in names[begin : begin + 32]} == {n: CONTENTS[n] for n in names[begin : begin + 32]}
    assert calls == [1, 16, 16, 16, 16]
    pages.prefetch_pages(["p1", "p2"])
    assert pages["p1"] == CONTENTS["p1"]
    pages.prefetch_pages(["p3"])
    assert pages["p2"] == CONTENTS["p2"]
    assert calls[5:] == [2, 2], "what was read ahead and is expected no more is not kept"


def test_who_reads_all_in_order_needs_few_calls() -> None:
    calls: list[int] = []

    def read(wanted: Sequence[Blob]) -> dict[str, bytes]:
        calls.append(len(wanted))
        return {blob.hash: BY_HASH[blob.hash] for blob in wanted}

    pages = lazy_pages.LazyPages(BLOBS, read, CountedHold())
    assert dict(pages.items()) == CONTENTS
    assert calls == [1, 16, 16, 16, 16, 16, 16, 3]


def test_a_call_is_no_larger_than_is_kept() -> None:
    calls: list[int] = []

    def read(wanted: Sequence[Blob]) -> dict[str, bytes]:
        calls.append(sum(blob.size for blob in wanted))
        return {blob.hash: BY_HASH[blob.hash] for blob in wanted}

    pages = lazy_pages.LazyPages(BLOBS, read, CountedHold(), StoreSettings(read_ahead_bytes=70))
    pages.prefetch_pages([f"p{i}" for i in range(10, 30)])
    assert [pages[f"p{i}"] for i in range(10, 30)] == [CONTENTS[f"p{i}"] for i in range(10, 30)]
    assert max(calls) <= 70
    assert sum(calls) == 400


def test_a_server_that_is_away_is_asked_again_and_damage_is_not() -> None:
    failures: list[StoreError] = [StoreError("away"), StoreError("away"), SnapshotDamaged("damaged")]

    def read(wanted: Sequence[Blob]) -> dict[str, bytes]:
        if failures and (len(failures) > 1 or wanted[0] == BLOBS["p2"]):
            raise failures.pop(0)
        return {blob.hash: BY_HASH[blob.hash] for blob in wanted}

    pages = lazy_pages.LazyPages(BLOBS, read, CountedHold())
    assert pages["p1"] == CONTENTS["p1"]
    with pytest.raises(SnapshotDamaged):
        pages["p2"]
    assert failures == []


def test_they_are_held_as_long_as_somebody_has_them() -> None:
    hold = CountedHold()
    pages = lazy_pages.LazyPages(BLOBS, lambda _: {}, hold, StoreSettings(renew_s=0.001))
    wait_until(lambda: hold.renewed > 2, "it is renewed again after it failed")
    assert not hold.is_let_go.is_set()
    assert len(pages) == 100
    del pages
    assert hold.is_let_go.wait(60)


def test_whatever_fails_is_a_store_error() -> None:
    """Else an engine would blame the event that needs the page, and refuse it."""

    def read(wanted: Sequence[Blob]) -> dict[str, bytes]:
        raise RuntimeError("a driver's")

    with pytest.raises(StoreError, match="cannot be read") as told:
        lazy_pages.LazyPages(BLOBS, read, CountedHold())["p1"]
    assert told.value.detail == "RuntimeError: a driver's"

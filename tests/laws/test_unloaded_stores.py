"""A restore from a real store reads the pages that it needs, each once, and the next snapshot writes only new pages (SPEC G7)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from hotspare.base.errors import SnapshotDamaged
from hotspare.flow.pipeline import Pipeline
from hotspare.flow.snapshot import KeyFilterContent, RowPageContent
from hotspare.rows.tuning import Tuning, tuning_override
from hotspare.stores.contract import Store
from hotspare.stores.directory import DirectoryStore
from hotspare.table.page_cache.budget import Budget
from hotspare.table.pages import FilterPiece
from hotspare.table.queue import BLOCK_ROWS
from tests.laws.core_scripts import joined, snapshot_bytes
from tests.laws.unloaded_kit import Asked, absent, only_at_use, opened
from tests.laws.unloaded_windows import (
    BY_FLOOR_AND_ROOM,
    BY_ROOM,
    EVERY,
    GROUPED,
    JOINED,
    KEYED,
    MATCHED,
    QUEUED,
    RETAINED,
    ROWS,
    SECOND,
    SMALL_PAGES,
    VALUED,
    VALUES_EACH,
    Held,
    Sent,
    calls,
    retained_rows,
    values_of_groups,
)

pytestmark = pytest.mark.law

PAGES = -(-ROWS // SMALL_PAGES.page_slots)
AT = 1_000
"""The number of the first batch after a restore."""


@pytest.fixture(params=["folder", "database"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """Opens a folder, which is read page by page, or a store that is read as one on a server is; for small pages."""
    store = opened(request.param, tmp_path)
    with tuning_override(SMALL_PAGES):
        yield store
    store.close()


class Restored:
    """An engine that was restored from a store, and the pages that it reads."""

    def __init__(self, held: Held, store: Store) -> None:
        self._held, self._at = held, AT
        found = held.stored(store).get("g", "s")
        self.pages = Asked(found.pages)
        self.pipeline = Pipeline.restore(held.plan(), found.header, self.pages)
        self._told = 0

    @property
    def row_pages(self) -> int:
        """The number of pages of rows that the snapshot has."""
        return sum(name.rpartition("/")[2].isdecimal() for name in self.pages)

    def feed(self, topic: str, time_us: int, rows: list[str]) -> pa.RecordBatch | None:
        """Returns the output of the window `kept`."""
        self._at += 1
        return self.pipeline.feed(self._held.batch(self._at, Sent(topic, time_us, rows))).get("q/kept")

    def read(self) -> list[str]:
        """Returns the pages of the window that were read since the last call, sorted, each with its part."""
        names, self._told = self.pages.names[self._told :], len(self.pages.names)
        return sorted(name.removeprefix("q/kept#0/") for name in names if name.startswith("q/kept#0/"))


def test_of_rows_with_keys_the_page_of_the_key(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads the page that is being filled, then the one with the key of an event, and one after each step; each page once."""
    restored = Restored(KEYED, store)
    assert (restored.row_pages, restored.read()) == (PAGES, ["rows/9"])
    made = restored.feed("numbers", 3 * SECOND, ["P,N,80,-1"])
    assert made.column("value").to_pylist() == [-1, 80]
    assert restored.read() == ["rows/1", "rows/keys0", "rows/outline0"]
    for step in range(1, 20):
        restored.feed("numbers", 3 * SECOND + step, ["P,N,80,0"])
    assert absent(restored.pipeline) == {}
    assert sorted(restored.pages.names) == sorted(restored.pages)


def test_of_groups_the_page_of_the_group(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    restored = Restored(GROUPED, store)
    assert (restored.row_pages, restored.read()) == (PAGES, ["groups/9"])
    made = restored.feed("numbers", 3 * SECOND, ["I,N,9999,80"])
    assert made.column("n").to_pylist() == [2, 1]
    assert restored.read() == ["groups/1", "groups/keys0", "groups/outline0"]


def test_of_groups_that_keep_rows_the_page_of_the_key_and_that_of_the_group(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    only_at_use(monkeypatch)
    restored = Restored(BY_ROOM, store)
    assert (restored.row_pages, restored.read()) == (PAGES, ["rows/9"])
    made = restored.feed("numbers", 3 * SECOND, [f"P,N,{ROWS},75"])
    assert made.column("id").to_pylist() == [300, ROWS]
    assert restored.read() == ["rows/4", "rows/keys0", "rows/outline0"]
    made = restored.feed("numbers", 3 * SECOND, ["P,N,66,130"])
    assert made.column("id").to_pylist() == [520, 66, 66]
    assert restored.read() == ["rows/1", "rows/8"]


def test_of_groups_that_a_partial_event_names_in_part_all_pages(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other fields of its group are those of the stored row."""
    only_at_use(monkeypatch)
    restored = Restored(BY_FLOOR_AND_ROOM, store)
    assert restored.feed("numbers", 3 * SECOND, ["P,P,66,,130"]).column("id").to_pylist() == [520, 66, 66]
    assert absent(restored.pipeline) == {}


def test_of_joins_the_pages_of_both_sides(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads for a fact its own page and that of the person; for a person also those of the facts."""
    restored = Restored(JOINED, store)
    assert (restored.row_pages, restored.read()) == (2 * PAGES, ["left/9", "right/9"])
    made = restored.feed("facts", SECOND + 100, ["P,N,80,200"])
    assert made.column("team").to_pylist() == [200, 80]
    assert restored.read() == ["left/1", "left/keys0", "left/outline0", "right/1", "right/3", "right/keys0", "right/outline0"]
    made = restored.feed("people", SECOND + 101, ["P,N,460,7"])
    assert (made.column("id").to_pylist(), made.column("team").to_pylist()) == ([460, 460], [7, 460])
    assert {"left/7", "right/7"} <= set(restored.read())
    for step in range(1, 20):
        restored.feed("facts", SECOND + 200 + 2 * step, ["P,N,80,200"])
    assert absent(restored.pipeline) == {}
    assert sorted(restored.pages.names) == sorted(restored.pages)


def test_of_a_queue_the_oldest_page(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads the page that is being filled, then that with the evicted row, and one after each step."""
    restored = Restored(QUEUED["count"], store)
    assert (restored.row_pages, restored.read()) == (PAGES, ["rows/9"])
    made = restored.feed("numbers", 3 * SECOND, [f"I,N,,{ROWS}"])
    assert made.column("value").to_pylist() == [ROWS, 0]
    assert restored.read() == ["rows/0", "rows/1"]
    for step in range(1, 20):
        restored.feed("numbers", 3 * SECOND + step, ["I,N,,0"])
    assert absent(restored.pipeline) == {}
    assert sorted(restored.pages.names) == sorted(restored.pages)


def test_of_a_queue_that_is_not_full_no_page(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    only_at_use(monkeypatch)
    restored = Restored(QUEUED["jumping count"], store)
    assert restored.feed("numbers", 3 * SECOND, ["I,N,,0"]).column("value").to_pylist() == [0]
    assert restored.read() == ["rows/9"]


def test_of_a_queue_by_age_pages_up_to_the_first_row_that_stays(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    only_at_use(monkeypatch)
    restored = Restored(QUEUED["time"], store)
    assert restored.read() == ["rows/9"]
    made = restored.feed("numbers", 3 * SECOND, ["I,N,,0"])
    assert made.column("value").to_pylist()[1:] == list(range(ROWS // 10))
    assert restored.read() == ["rows/0"]
    made = restored.feed("numbers", 4 * SECOND, ["I,N,,0"])
    assert made.column("value").to_pylist()[1:] == list(range(ROWS // 10, 6 * ROWS // 10))
    assert restored.read() == [f"rows/{number}" for number in range(1, 6)]


@pytest.mark.parametrize("by", RETAINED)
def test_of_rows_that_leave_the_page_of_the_key_and_that_of_the_next(
    by: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    only_at_use(monkeypatch)
    restored = Restored(RETAINED[by], store)
    assert (restored.row_pages, restored.read()) == (PAGES, ["rows/9"])
    made = restored.feed("numbers", 2 * SECOND, retained_rows(range(80, 81), 2 * SECOND))
    assert made.column("value").to_pylist() == [80, 80]
    assert set(restored.read()) <= {"rows/keys0", "rows/outline0", "rows/1", "rows/0"}
    time_us = 2 * SECOND + 1 if by == "count" else 3 * SECOND + 1
    made = restored.feed("numbers", time_us, retained_rows(range(ROWS, ROWS + 1), time_us))
    values = made.column("value").to_pylist()
    left = values[:-1] if values[-1] == ROWS else values[1:]  # retention by system time alone evicts after the row
    assert left == ([0] if by == "count" else [key for key in range(2 * ROWS // 10) if key != 80])
    assert set(restored.read()) <= ({"rows/1", "rows/0"} if by == "count" else {"rows/0", "rows/1", "rows/2"})


def test_of_values_the_pages_of_the_group(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads the pages that are being filled; key filters; and the pages with the values and rows of the group."""
    only_at_use(monkeypatch)
    restored = Restored(VALUED, store)
    assert restored.row_pages > 3 * PAGES
    restored.read()
    made = restored.feed("numbers", 3 * SECOND, values_of_groups(9, [8], 1))
    assert made.column("middle").to_pylist() == [17.0, 17.5]
    assert made.column("all").to_pylist()[0] == " ".join(str(8 + value) for value in (*range(VALUES_EACH), 0))
    asked = restored.read()
    assert sum("/outline" in name for name in asked) == 3
    assert {"values/2", "arrivals/2"} <= set(asked)
    assert len(asked) <= 12


def test_of_patterns_the_pages_of_the_partition_and_of_what_is_due(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    only_at_use(monkeypatch)
    restored = Restored(MATCHED, store)
    assert restored.row_pages == PAGES
    assert [name for name in restored.read() if name.startswith("matches")] == ["matches/9"]
    made = restored.feed("calls", 11 * SECOND, calls([80], 2))
    assert made.column("first").to_pylist() == [80]
    assert set(restored.read()) <= {"matches/keys0", "matches/outline0", "matches/2", "matches/0"}
    made = restored.feed("calls", 51 * SECOND, calls([ROWS], 2))
    assert made.column("first").to_pylist() == list(range(ROWS // 20))
    assert set(restored.read()) <= {"matches/0", "matches/1"}


@pytest.mark.parametrize("name", EVERY)
def test_the_first_snapshot_after_a_restore_writes_what_is_new(name: str, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Writes of each part of the window the page that is being filled or, if events changed more, the newest page of keys."""
    held = EVERY[name]
    found = held.stored(store).get("g", "s")
    restored = Pipeline.restore(held.plan(), found.header, found.pages)
    sent = held.later(np.random.default_rng(1), 0, ROWS)
    restored.feed(held.batch(AT, sent._replace(rows=sent.rows[:1])))
    encoded: list[str] = []
    for content in (RowPageContent, KeyFilterContent):
        encode = content.encode

        def recorded(each: Any, encode: Callable[[Any], bytes] = encode) -> bytes:
            if getattr(each.page, "piece", None) is not FilterPiece.OUTLINE:
                encoded.append(each.part)
            return encode(each)

        monkeypatch.setattr(content, "encode", recorded)
    frozen = restored.freeze()
    store.write_candidate("g", "t", "e", 2, frozen.header, frozen.contents())
    assert len(encoded) == len(set(encoded)) > 0
    again = store.get("g", "t")
    assert snapshot_bytes(Pipeline.restore(held.plan(), again.header, dict(again.pages))) == snapshot_bytes(restored)


LARGE_ROWS, BUDGET, ROOM = 24_000, 200_000, 1 << 28
"""Rows whose pages are evicted; less memory than all of them take, and more."""
LARGE_QUEUE = 40_000
"""Rows of a queue, which is evicted in blocks that are large compared with the budget."""


@pytest.mark.parametrize("name", EVERY)
def test_with_little_memory(name: str, tmp_path: Path) -> None:
    """Pages beyond the budget stay in the store, or are evicted after use; within the budget no page is evicted (SPEC G1)."""
    held, rows = EVERY[name], LARGE_QUEUE if name.startswith("queues") else LARGE_ROWS
    with tuning_override(Tuning(key_filter_pages_min=2)):
        store = held.stored(opened("folder" if name < "k" else "database", tmp_path), rows)
        found = store.get("g", "s")
        little, room = Budget(BUDGET, tmp_path), Budget(ROOM, tmp_path)
        restored = Pipeline.restore(held.plan(rows), found.header, found.pages, residence=little)
        whole = Pipeline.restore(held.plan(rows), found.header, dict(found.pages), residence=room)
        random = np.random.default_rng(3)
        for at in range(20):
            batch = held.batch(AT + at, held.later(random, at, rows), rows)
            assert joined([restored.feed(batch)]) == joined([whole.feed(batch)])
            if name.startswith("queues"):
                assert little.counts()["may_leave"] < BUDGET + 3 * BLOCK_ROWS * 26
        assert snapshot_bytes(restored) == snapshot_bytes(whole)
        assert little.counts()["away"] > 0
        assert room.counts()["away"] == 0
    store.close()


@pytest.fixture
def stored(tmp_path: Path) -> Iterator[Callable[[Held], Store]]:
    """Puts a snapshot of small pages into a folder."""
    store = opened("folder", tmp_path)
    with tuning_override(SMALL_PAGES):
        yield lambda held: held.stored(store)
    store.close()


@pytest.fixture
def group(tmp_path: Path) -> Path:
    """Returns the folder of the group in that store."""
    return tmp_path / "store" / "g"


def test_pages_stay_while_an_engine_may_read_them(stored: Callable[[Held], Store], group: Path) -> None:
    """Discarding the snapshot and collecting unreferenced pages spare those that an engine still reads (law Crash)."""
    store = stored(KEYED)
    found = store.get("g", "s")
    restored = Pipeline.restore(KEYED.plan(), found.header, found.pages)
    store.discard("g", "s")
    DirectoryStore(group.parent).prune_snapshots("g", 1)
    keys = range(0, ROWS, 5)
    made = restored.feed(KEYED.batch(AT, Sent("numbers", 3 * SECOND, [f"P,N,{key},-1" for key in keys])))["q/kept"]
    assert made.num_rows == 2 * len(keys)
    assert absent(restored) == {}
    del restored, found
    DirectoryStore(group.parent).prune_snapshots("g", 1)
    assert list((group / "pages").iterdir()) == list((group / "claims").iterdir()) == []


@pytest.mark.parametrize(
    ("held", "sent"),
    [
        (KEYED, Sent("numbers", 3 * SECOND, ["P,N,500,0"])),
        (QUEUED["count"], Sent("numbers", 3 * SECOND, ["I,N,,0"])),
    ],
    ids=["keys", "queue"],
)
def test_damage_that_is_found_late_ends_the_engine(held: Held, sent: Sent, stored: Callable[[Held], Store], group: Path) -> None:
    """Raises an error, never makes a wrong row; and the snapshot counts as damaged from then on."""
    store = stored(held)
    found = store.get("g", "s")
    restored = Pipeline.restore(held.plan(), found.header, found.pages)
    for file in (group / "pages").iterdir():
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
    with pytest.raises(SnapshotDamaged, match="is damaged"):
        restored.feed(held.batch(AT, sent))
    with pytest.raises(SnapshotDamaged):
        store.get("g", "s")


def test_a_page_that_is_lost_is_found_at_once(stored: Callable[[Held], Store], group: Path) -> None:
    store = stored(KEYED)
    max((group / "pages").iterdir(), key=lambda file: file.stat().st_size).unlink()
    with pytest.raises(SnapshotDamaged, match="is damaged"):
        store.get("g", "s")

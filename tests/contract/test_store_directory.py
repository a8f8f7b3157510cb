"""The snapshot folder as files: truncation and flipped bits anywhere, kill -9 during a write, collecting next to a writer."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.base.errors import SnapshotDamaged, SnapshotFormat, StoreError, UsageError
from hotspare.stores import directory_layout
from hotspare.stores.contract import SnapshotStatus
from hotspare.stores.directory import DirectoryStore
from hotspare.stores.directory_layout import GroupFolder, checksum_of
from hotspare.stores.settings import StoreSettings
from tests.contract.material import child
from tests.small_disk import mounted

PAGES = {"a": b"x" * 1000, "b": b"y" * 10}


def files(root: Path) -> list[Path]:
    """Returns all files of snapshots."""
    return sorted(path for path in root.rglob("*") if path.is_file() and path.name != "lock")


def put(store: DirectoryStore, name: str, order: int = 1, **pages: bytes) -> None:
    store.write_candidate("g", name, "e", order, b"header", (pages or PAGES).items())


@given(which=st.integers(0), where=st.integers(0), bit=st.integers(0, 7), is_cut=st.booleans())
def test_damage_of_any_file_is_noticed(which: int, where: int, bit: int, is_cut: bool) -> None:
    """And repaired: the next put of the same pages makes them whole again (SPEC H5, H14)."""
    with tempfile.TemporaryDirectory() as folder:
        store = DirectoryStore(Path(folder))
        put(store, "one")
        targets = files(Path(folder))
        target = targets[which % len(targets)]
        content = bytearray(target.read_bytes())
        place = where % len(content)
        if is_cut:
            del content[place:]
        else:
            content[place] ^= 1 << bit
        target.write_bytes(content)
        with pytest.raises(SnapshotDamaged, match="snapshot one of group g is damaged"):
            store.get("g", "one")
        assert [info.name for info in store.list("g")] == ["one"]
        put(store, "one")
        assert dict(store.get("g", "one").pages) == PAGES


def test_damage_of_a_marker_unconfirms(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    put(store, "one")
    store.confirm("g", "one")
    (marker,) = tmp_path.rglob("*.confirmed")
    for damaged in (marker.read_bytes()[:-1], b"", b"0" * 32):
        marker.write_bytes(damaged)
        assert store.list("g")[0].status is SnapshotStatus.CANDIDATE
    store.confirm("g", "one")
    assert store.list("g")[0].status is SnapshotStatus.CONFIRMED


def test_a_marker_left_behind_confirms_nothing_else(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    put(store, "one")
    store.confirm("g", "one")
    (manifest,) = tmp_path.rglob("*.snapshot")
    manifest.unlink()
    put(store, "one", a=b"other")
    assert store.list("g")[0].status is SnapshotStatus.CANDIDATE


def test_a_missing_page_is_damage(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    put(store, "one")
    (tmp_path / "g" / "pages" / checksum_of(PAGES["b"])).unlink()
    with pytest.raises(SnapshotDamaged, match="is missing"):
        store.get("g", "one")


def test_a_newer_format_is_refused_and_its_pages_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = DirectoryStore(tmp_path)
    monkeypatch.setattr(directory_layout, "FORMAT", 2)
    put(store, "newer", 1, a=b"newer")
    monkeypatch.undo()
    put(store, "ours", 2, a=b"ours")
    with pytest.raises(SnapshotFormat, match="has format 2"):
        store.get("g", "newer")
    store.discard("g", "ours")
    monkeypatch.setattr(directory_layout, "FORMAT", 2)
    assert store.get("g", "newer").pages["a"] == b"newer"


def test_keeping_never_counts_a_damaged_one(tmp_path: Path) -> None:
    """A damaged newest snapshot must not cost the whole one before it if one is kept."""
    store = DirectoryStore(tmp_path)
    for order, name in enumerate(["old", "whole", "damaged"]):
        put(store, name, order, page=name.encode())
        store.confirm("g", name)
    (manifest,) = tmp_path.rglob("*,damaged.snapshot")
    manifest.write_bytes(b"damaged")
    store.prune_snapshots("g", 1)
    assert [info.name for info in store.list("g")] == ["damaged", "whole"]
    assert store.get("g", "whole").pages["page"] == b"whole"
    put(store, "newest", 9, page=b"newest")
    store.confirm("g", "newest")
    store.prune_snapshots("g", 1)
    assert [info.name for info in store.list("g")] == ["newest"]


def test_an_unchanged_page_is_not_written_again(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    put(store, "one", 1, a=b"same", b=b"one")
    page = tmp_path / "g" / "pages" / checksum_of(b"same")
    before = page.stat()
    put(store, "two", 2, a=b"same", b=b"two")
    assert (page.stat().st_ino, page.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert len(list((tmp_path / "g" / "pages").iterdir())) == 4


def test_discarding_deletes_the_pages_that_nobody_uses(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    put(store, "one", 1, a=b"same", b=b"one")
    put(store, "two", 2, a=b"same", b=b"two")
    store.discard("g", "one")
    assert {path.name for path in (tmp_path / "g" / "pages").iterdir()} == set(map(checksum_of, (b"same", b"two", b"header")))
    store.discard_group("g")
    assert files(tmp_path) == []


def test_a_writer_in_flight_keeps_its_pages(tmp_path: Path) -> None:
    """A page on which only an unfinished write relies, because it existed already, survives collecting by another process."""
    store, other = DirectoryStore(tmp_path), DirectoryStore(tmp_path)
    put(store, "one", 1, a=b"shared")

    def pages() -> Iterator[tuple[str, bytes]]:
        yield "a", b"shared"
        other.discard("g", "one")
        other.prune_snapshots("g", 1)
        yield "b", b"own"

    store.write_candidate("g", "two", "e", 2, b"header", pages())
    assert dict(store.get("g", "two").pages) == {"a": b"shared", "b": b"own"}
    other.prune_snapshots("g", 1)
    assert dict(store.get("g", "two").pages) == {"a": b"shared", "b": b"own"}


def test_whoever_finds_somebody_else_collecting_leaves_it_to_that_one(tmp_path: Path) -> None:
    """Writers, confirming engines and readers do not wait for it either."""
    store = DirectoryStore(tmp_path)
    put(store, "one")
    with GroupFolder(tmp_path, "g")._collecting():
        put(store, "two", 2, c=b"two")
        store.confirm("g", "two")
        store.discard("g", "one")
        assert len(list((tmp_path / "g" / "pages").iterdir())) == 4
    store.prune_snapshots("g", 1)
    assert {path.name for path in (tmp_path / "g" / "pages").iterdir()} == set(map(checksum_of, (b"two", b"header")))
    assert dict(store.get("g", "two").pages) == {"c": b"two"}


_WRITER_THAT_STOPS = """
import os, signal, sys
from pathlib import Path
from hotspare.stores.directory import DirectoryStore

def pages():
    yield "shared", b"shared"
    yield "own", b"own"
    os.kill(os.getpid(), signal.SIGSTOP)
    yield "last", b"last"

DirectoryStore(Path(sys.argv[1])).write_candidate("g", "slow", "e", 2, b"header", pages())
print("written", flush=True)
"""


def _stopped(process: subprocess.Popen[str]) -> None:
    """Waits until the process is stopped."""
    assert os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT) is not None


@pytest.mark.parametrize("ends", [False, True])
def test_pages_are_collected_while_a_writer_stands_still(tmp_path: Path, ends: bool) -> None:
    """A collector keeps those on which it relies, also while a second engine writes; it goes on when it wakes up. A killed writer
    leaves nothing."""
    store = DirectoryStore(tmp_path)
    put(store, "one", 1, a=b"shared", b=b"only one")
    with child(_WRITER_THAT_STOPS, tmp_path) as process:
        _stopped(process)
        store.discard("g", "one")
        put(store, "two", 3, a=b"only two")
        store.prune_snapshots("g", 1)
        there = {path.name for path in (tmp_path / "g" / "pages").iterdir()}
        assert there == set(map(checksum_of, (b"shared", b"own", b"only two", b"header")))
        process.send_signal(signal.SIGKILL if ends else signal.SIGCONT)
        process.wait()
    store.prune_snapshots("g", 1)
    assert [info.name for info in store.list("g")] == (["two"] if ends else ["two", "slow"])
    if not ends:
        store.confirm("g", "slow")
        assert dict(store.get("g", "slow").pages) == {"shared": b"shared", "own": b"own", "last": b"last"}
    store.discard_group("g")
    assert files(tmp_path) == []


def test_a_page_is_never_deleted_between_being_looked_for_and_being_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer claims a page after a collector, which did not see the claim, has started: at any of the collector's steps."""
    named, is_had = GroupFolder._referenced_pages, []

    def put_meanwhile(folder: GroupFolder) -> set[str]:
        found = named(folder)
        if len(is_had) < 2:
            is_had.append(True)
            put(DirectoryStore(tmp_path), f"meanwhile {len(is_had)}", 2, a=b"shared")
        return found

    for _ in range(2):
        store = DirectoryStore(tmp_path)
        put(store, "one", 1, a=b"shared", b=b"own")
        with monkeypatch.context() as patch:
            patch.setattr(GroupFolder, "_referenced_pages", put_meanwhile)
            store.discard("g", "one")
        for number in range(1, 1 + len(is_had)):
            assert dict(store.get("g", f"meanwhile {number}").pages) == {"a": b"shared"}
        store.prune_snapshots("g", 1)
        assert not list((tmp_path / "g" / "pages").glob("hidden-*"))


def test_a_collector_that_was_killed_took_nothing(tmp_path: Path) -> None:
    """Pages that it hid are still readable, and the next collector restores them."""
    store = DirectoryStore(tmp_path)
    put(store, "one")
    page = tmp_path / "g" / "pages" / checksum_of(PAGES["a"])
    page.rename(page.with_name("hidden-" + page.name))
    assert dict(store.get("g", "one").pages) == PAGES
    store.prune_snapshots("g", 1)
    assert page.exists()


def test_a_writer_whose_lock_was_lost_says_so(tmp_path: Path) -> None:
    """Its claim was deleted as orphaned, and its pages may be gone: it writes none rather than half of one."""
    store = DirectoryStore(tmp_path)
    put(store, "one", 1, a=b"shared")

    def pages() -> Iterator[tuple[str, bytes]]:
        yield "a", b"shared"
        (claim,) = (tmp_path / "g" / "claims").iterdir()
        claim.unlink()
        store.discard("g", "one")
        yield "b", b"own"

    with pytest.raises(StoreError, match="pages may have been collected"):
        store.write_candidate("g", "two", "e", 2, b"header", pages())
    assert list(store.list("g")) == []


def test_a_snapshot_is_confirmed_while_a_collector_hides_its_pages(tmp_path: Path) -> None:
    """A collector that listed the manifests before this one was written restores them."""
    store = DirectoryStore(tmp_path)
    put(store, "one")
    for page in (tmp_path / "g" / "pages").iterdir():
        page.rename(page.with_name(f"hidden-{page.name}"))
    store.confirm("g", "one")
    assert store.list("g")[0].status is SnapshotStatus.CONFIRMED
    assert dict(store.get("g", "one").pages) == PAGES


def test_a_snapshot_that_lacks_a_page_is_not_confirmed(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    put(store, "one")
    (tmp_path / "g" / "pages" / checksum_of(PAGES["b"])).unlink()
    with pytest.raises(SnapshotDamaged, match="a page of it is missing"):
        store.confirm("g", "one")
    assert store.list("g")[0].status is SnapshotStatus.CANDIDATE


def test_files_of_others_are_left_alone(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    put(store, "one")
    for name in ("notes.snapshot", "x,y,z.snapshot", "README"):
        (tmp_path / "g" / name).write_text("mine")
    assert [info.name for info in store.list("g")] == ["one"]
    store.discard_group("g")
    assert {path.name for path in files(tmp_path)} == {"notes.snapshot", "x,y,z.snapshot", "README"}


def test_an_unusable_folder_or_name_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot create"):
        DirectoryStore(tmp_path / "file" / "folder")
    store = DirectoryStore(tmp_path / "folder")
    with pytest.raises(UsageError, match="too long for a file"):
        store.write_candidate("g", "ü" * 60, "e", 1, b"", [])
    with pytest.raises(UsageError, match="too long for a folder"):
        store.write_candidate("ü" * 60, "n", "e", 1, b"", [])
    (tmp_path / "folder" / "g").write_text("")
    with pytest.raises(StoreError, match="cannot write"):
        put(store, "one")


def test_a_disk_that_was_too_small_for_a_state_takes_a_smaller_one() -> None:
    """A failed write leaves nothing behind, however often it is tried: else the disk would stay full."""
    with mounted(4 << 20) as disk:
        store = DirectoryStore(disk.folder / "snapshots")
        put(store, "before", 1, p=b"b" * (1 << 20))
        for number in range(3):
            with pytest.raises(StoreError, match="cannot write"):
                put(store, f"large{number}", 2, **{f"p{i}": b"%d" % (10 * number + i) * (1 << 19) for i in range(8)})
        put(store, "small", 3, p=b"s" * (2 << 20))
        assert dict(store.get("g", "small").pages) == {"p": b"s" * (2 << 20)}


_SNAPSHOT_FOR_EVER = """
import sys
from pathlib import Path
from hotspare.stores.directory import DirectoryStore
store = DirectoryStore(Path(sys.argv[1]))
first = int(sys.argv[2])
print("ready", flush=True)
for n in range(first, first + 100000):
    pages = [("same", b"s" * 50000), ("own", b"%d" % n * 3000), ("old", b"%d" % (n // 3) * 3000)]
    store.write_candidate("g", f"s{n}", "e", n, b"%d" % n, pages)
    store.confirm("g", f"s{n}")
    store.prune_snapshots("g", 2)
    print(n, flush=True)
"""


def test_kill_while_writing_shows_only_whole_snapshots(tmp_path: Path) -> None:
    choice = random.Random(4)
    store = DirectoryStore(tmp_path)
    newest = 0
    for _ in range(10):
        with child(_SNAPSHOT_FOR_EVER, tmp_path, newest + 1) as process:
            assert process.stdout is not None
            for _ in range(choice.randint(2, 6)):
                said = process.stdout.readline().strip()
            process.send_signal(signal.SIGKILL)
            process.wait()
        if said != "ready":
            newest = max(newest, int(said))
        infos = store.list("g")
        assert newest <= infos[0].order
        assert newest in [info.order for info in infos if info.status is SnapshotStatus.CONFIRMED] or infos[0].order > newest
        for info in infos:
            n = info.order
            stored = store.get("g", info.name)
            assert stored.header == b"%d" % n
            assert dict(stored.pages) == {"same": b"s" * 50000, "own": b"%d" % n * 3000, "old": b"%d" % (n // 3) * 3000}
        newest = infos[0].order
    store.prune_snapshots("g", 1)
    store.discard_group("g")
    assert files(tmp_path) == []


def test_an_identity_that_a_crash_left_half_written_is_replaced(tmp_path: Path) -> None:
    DirectoryStore(tmp_path).write_candidate("g", "one", "e", 1, b"head", PAGES.items())
    identity = DirectoryStore(tmp_path).identity()
    (path,) = [path for path in tmp_path.iterdir() if path.is_file()]
    assert path.read_text() == identity
    for torn in (b"", identity[:7].encode(), b"\xff" * 32):
        path.write_bytes(torn)
        assert DirectoryStore(tmp_path).identity() == path.read_text() != identity
    assert [info.name for info in DirectoryStore(tmp_path).list("g")] == ["one"]


def test_all_who_ask_first_at_once_get_the_same_identity(tmp_path: Path) -> None:
    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.append(DirectoryStore(tmp_path).identity())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == 1


def test_a_folder_that_is_gone_or_is_none_is_told(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path / "there")
    (tmp_path / "there").rmdir()
    with pytest.raises(StoreError, match="cannot identify there"):
        store.identity()
    (tmp_path / "there").write_text("no folder")
    for call in (
        store.list,
        store.discard_group,
        lambda group: store.get(group, "one"),
        lambda group: store.prune_snapshots(group, 1),
    ):
        with pytest.raises(StoreError, match="cannot list snapshots in g"):
            call("g")


def test_a_large_snapshot_is_read_page_by_page(tmp_path: Path) -> None:
    """It may be larger than memory. Damage and discarding are detected on access, and damage is repaired (SPEC G1)."""
    store, pages = DirectoryStore(tmp_path, settings=StoreSettings(eager_bytes_max=0)), {"p": b"some", "q": b"other"}
    store.write_candidate("g", "one", "e", 1, b"h", pages.items())
    stored = store.get("g", "one")
    assert (dict(stored.pages), len(stored.pages), "r" in stored.pages) == (pages, 2, False)
    (blob,) = [path for path in (tmp_path / "g" / "pages").iterdir() if path.read_bytes() == b"other"]
    blob.write_bytes(b"othet")
    assert stored.pages["p"] == b"some"
    with pytest.raises(SnapshotDamaged, match="snapshot one of group g is damaged"):
        stored.pages["q"]
    assert not blob.exists()
    store.discard("g", "one")
    assert stored.pages["p"] == b"some", "it is claimed as long as somebody may read it"
    for claim in (tmp_path / "g" / "claims").iterdir():
        claim.unlink()
    store.prune_snapshots("g", 1)
    with pytest.raises(StoreError, match="not in the store"):
        stored.pages["p"]

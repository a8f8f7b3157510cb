"""The store contract: all or nothing, bytes returned as written, restorable only when confirmed. SPEC G4."""

from __future__ import annotations

import contextlib
import gc
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka.admin import AdminClient
from hypothesis import given
from hypothesis import strategies as st

from hotspare.base.errors import SnapshotDamaged, StoreError, UsageError
from hotspare.flow.snapshot import PagesInStore
from hotspare.stores.contract import Access, SnapshotInfo, SnapshotStatus, Store
from hotspare.stores.directory import DirectoryStore
from hotspare.stores.memory import MemoryStore, clock_us
from hotspare.stores.open import open_store
from hotspare.stores.sql.database import PIECE_BYTES, Database
from hotspare.stores.sql.store import SqlStore
from hotspare.stores.writing import CONTENTS_PER_CALL, copied_pages
from hotspare.testing.cluster import wait_until
from hotspare.testing.database_server import DatabaseServer
from hotspare.testing.kafka_server import KafkaServers
from tests.contract.material import Page
from tests.contract.store_contents import damage, held

PAGES = {"q/w#0": b"first", "q/w#1": b"", "q/ü v#0": bytes(range(256)) * 40}


def put(store: Store, name: str, order: int = 1, group: str = "g", **pages: bytes) -> SnapshotInfo:
    return store.write_candidate(group, name, "engine-1", order, b"header of " + name.encode(), (pages or PAGES).items())


class Counted(bytes):
    """Contents that count how many of them are in memory."""

    alive = 0

    def __init__(self, _: bytes) -> None:
        Counted.alive += 1

    def __del__(self) -> None:
        Counted.alive -= 1


def names(store: Store, group: str = "g") -> list[str]:
    return [info.name for info in store.list(group)]


def test_of_a_snapshot_that_is_copied_a_few_pages_are_in_memory(store: Store) -> None:
    """SPEC G7, H2: it may be larger than memory."""
    most = [0]

    class Elsewhere(dict[str, int]):
        def __getitem__(self, page: str) -> Counted:  # type: ignore[override]
            made = Counted(b"%d of many" % super().__getitem__(page))
            most[0] = max(most[0], Counted.alive)
            return made

    pages = Elsewhere({f"q/w#0/rows/{number}": number for number in range(80)})
    store.write_candidate("g", "copied", "e", 1, b"h", copied_pages(pages))  # type: ignore[arg-type]
    assert dict(store.get("g", "copied").pages) == {name: b"%d of many" % number for number, name in enumerate(pages)}
    assert most[0] <= 2 * CONTENTS_PER_CALL or isinstance(store, MemoryStore)


def test_bytes_come_back_as_they_were_put(store: Store) -> None:
    """SPEC G6."""
    info = store.write_candidate("g", "one", "e", 17, b"\0head", iter(PAGES.items()))
    stored = store.get("g", "one")
    assert (stored.header, dict(stored.pages)) == (b"\0head", PAGES)
    assert (info.name, info.engine, info.order, info.status) == ("one", "e", 17, SnapshotStatus.CANDIDATE)
    assert info.bytes_total == sum(map(len, PAGES.values()))
    assert list(store.list("g")) == [info]
    store.close()


def test_a_store_has_one_identity_for_everybody_and_for_good(open_store_door: Callable[[], Store]) -> None:
    store = open_store_door()
    identity = store.identity()
    put(store, "one")
    store.discard_group("g")
    assert len(bytes.fromhex(identity)) == 16
    assert store.identity() == open_store_door().identity() == identity


def test_two_stores_differ(tmp_path: Path) -> None:
    stores = [MemoryStore(), MemoryStore(), DirectoryStore(tmp_path / "a"), DirectoryStore(tmp_path / "b")]
    assert len({store.identity() for store in stores}) == len(stores)


def test_a_snapshot_may_have_no_pages(store: Store) -> None:
    store.write_candidate("g", "one", "e", 0, b"", [])
    stored = store.get("g", "one")
    assert (stored.header, dict(stored.pages)) == (b"", {})


def test_the_list_begins_with_the_greatest_order(store: Store) -> None:
    for name, order in (("a", 5), ("b", 2**62), ("c", 0), ("d", 5)):
        put(store, name, order)
    assert names(store) == ["b", "a", "d", "c"]


def test_a_candidate_is_confirmed_once_and_for_all(store: Store) -> None:
    candidate = put(store, "one")
    store.confirm("g", "one")
    store.confirm("g", "one")
    (info,) = store.list("g")
    assert info.status is SnapshotStatus.CONFIRMED
    assert (info.order, info.written_time_us, info.bytes_total) == (1, candidate.written_time_us, candidate.bytes_total)
    assert dict(store.get("g", "one").pages) == PAGES


def test_what_is_gone_is_said(store: Store) -> None:
    put(store, "one")
    for call in (store.confirm, store.get):
        with pytest.raises(StoreError, match="snapshot two of group g is not in the store"):
            call("g", "two")
        with pytest.raises(StoreError, match="of group h"):
            call("h", "one")
    store.discard("g", "two")
    store.discard("h", "one")
    store.discard_group("h")
    store.prune_snapshots("h", 1)
    assert list(store.list("h")) == []


def test_discarding_leaves_what_others_use(store: Store) -> None:
    put(store, "one", 1, a=b"shared", b=b"only one")
    put(store, "two", 2, a=b"shared", b=b"only two")
    store.discard("g", "one")
    assert names(store) == ["two"]
    assert dict(store.get("g", "two").pages) == {"a": b"shared", "b": b"only two"}
    put(store, "three", 3, a=b"only one", b=b"shared")
    assert dict(store.get("g", "three").pages) == {"a": b"only one", "b": b"shared"}


def test_the_same_again_changes_nothing(store: Store) -> None:
    first = put(store, "one")
    store.confirm("g", "one")
    again = put(store, "one")
    assert again.status is SnapshotStatus.CONFIRMED
    assert again.written_time_us == first.written_time_us


def test_a_candidate_can_be_replaced_and_a_confirmed_one_cannot(store: Store) -> None:
    put(store, "one", 1, a=b"old")
    assert put(store, "one", 2, a=b"new").status is SnapshotStatus.CANDIDATE
    assert (names(store), store.list("g")[0].order, store.get("g", "one").pages["a"]) == (["one"], 2, b"new")
    store.confirm("g", "one")
    with pytest.raises(StoreError, match="is confirmed and has another content"):
        put(store, "one", 2, a=b"newer")
    assert store.get("g", "one").pages["a"] == b"new"


def test_a_name_used_again_is_a_candidate_again(store: Store) -> None:
    put(store, "one")
    store.confirm("g", "one")
    store.discard("g", "one")
    assert put(store, "one").status is SnapshotStatus.CANDIDATE
    assert store.list("g")[0].status is SnapshotStatus.CANDIDATE


def test_keeping_spares_candidates_and_the_newest_confirmed(store: Store) -> None:
    for order in range(6):
        put(store, f"s{order}", order, page=b"%d" % order)
    for order in (0, 1, 3, 4):
        store.confirm("g", f"s{order}")
    store.prune_snapshots("g", 2)
    assert names(store) == ["s5", "s4", "s3", "s2"]
    store.prune_snapshots("g", 2)
    for order in (2, 3, 4, 5):
        assert store.get("g", f"s{order}").pages["page"] == b"%d" % order


def test_groups_are_separate(store: Store) -> None:
    groups = ["g", "G", " g", "g.", "G,1", "..", ".", "a/b", "a%2Fb", "ü", "u\u0308", "ß", "ss", "🙂", "*", "{g}", "'\"\\%_"]
    for group in groups:
        store.write_candidate(group, "one", "e", 1, group.encode(), [("p", b"same")])
    store.discard_group("g")
    store.discard("a/b", "one")
    assert names(store, "g") == names(store, "a/b") == []
    for group in set(groups) - {"g", "a/b"}:
        assert store.get(group, "one").header == group.encode()


def test_what_a_writer_counts_on_stays_while_others_collect(open_store_door: Callable[[], Store]) -> None:
    """A writer freezes between its pages and the end, while a second engine writes, discards and collects."""
    store, other = open_store_door(), open_store_door()
    put(store, "one", 1, a=b"shared", b=b"only one")

    def pages() -> Iterator[tuple[str, bytes]]:
        yield "a", b"shared"
        other.discard("g", "one")
        put(other, "two", 2, b=b"only two")
        other.confirm("g", "two")
        other.prune_snapshots("g", 1)
        yield "b", b"own"

    store.write_candidate("g", "slow", "e", 3, b"header", pages())
    other.prune_snapshots("g", 1)
    assert names(store) == ["slow", "two"]
    assert dict(store.get("g", "slow").pages) == {"a": b"shared", "b": b"own"}
    assert dict(store.get("g", "two").pages) == {"b": b"only two"}


def test_names_may_be_free_text(store: Store) -> None:
    free = ["engine 1@17:4+3", "../../etc", ".", "-", "a,b", "100%", "x.snapshot", "名"]
    for order, name in enumerate(free):
        store.write_candidate("g", name, name, order, name.encode(), [])
    assert [(i.name, i.engine) for i in store.list("g")] == [(name, name) for name in reversed(free)]
    assert [store.get("g", name).header for name in free] == [name.encode() for name in free]


def test_unusable_input_is_refused(store: Store) -> None:
    for arguments in (
        ("", "n", "e", 1, b"", []),
        ("g", "", "e", 1, b"", []),
        ("g", "n", "", 1, b"", []),
        ("g", "n\n", "e", 1, b"", []),
        ("g ", "n", "e", 1, b"", []),
        ("g", "n" * 301, "e", 1, b"", []),
        ("g", "n", "e", -1, b"", []),
        ("g", "n", "e", 2**63, b"", []),
        ("g", "n", "e", 1, b"", [("", b"")]),
    ):
        with pytest.raises(UsageError):
            store.write_candidate(*arguments)
    with pytest.raises(StoreError, match="page p twice"):
        store.write_candidate("g", "n", "e", 1, b"", [("p", b"1"), ("p", b"2")])
    with pytest.raises(UsageError):
        store.prune_snapshots("g", 0)
    assert names(store) == []


def test_a_put_that_fails_on_the_way_leaves_nothing(store: Store) -> None:
    def pages() -> object:
        yield "a", b"written"
        raise ArithmeticError("the engine could not encode it")

    with pytest.raises(ArithmeticError):
        store.write_candidate("g", "one", "e", 1, b"", pages())  # type: ignore[arg-type]
    assert names(store) == []


def test_large_content_comes_back(store: Store) -> None:
    """Larger than the databases' limit of one statement, and exactly that limit."""
    pages = {"large": bytes(range(256)) * (5 * PIECE_BYTES // 512), "exact": b"x" * PIECE_BYTES, "empty": b""}
    store.write_candidate("g", "one", "e", 1, b"", pages.items())
    assert dict(store.get("g", "one").pages) == pages


def test_what_is_there_is_not_encoded_again(store: Store) -> None:
    pages = {f"p{i}": Page(b"%d" % i) for i in range(50)}
    store.write_candidate("g", "one", "e", 1, b"", pages.items())
    store.write_candidate("g", "two", "e", 2, b"", pages.items())
    assert {page.encoded for page in pages.values()} == {1}
    store.discard("g", "one")
    assert len(store.get("g", "two").pages) == 50


def test_a_large_snapshot_stays_while_somebody_reads_it(open_store_door: Callable[..., Store]) -> None:
    """It is read page by page, also after it was discarded and other processes collect; a known page is not written again (SPEC
    G7)."""
    store, other = (open_store_door(eager_bytes_max=0, left_s=0) for _ in range(2))
    pages = {f"p{i}": b"%d" % i * 500 for i in range(40)}
    store.write_candidate("g", "one", "e", 1, b"head", pages.items())
    store.confirm("g", "one")
    stored = other.get("g", "one")
    assert (stored.header, len(stored.pages), list(stored.pages), "p40" in stored.pages) == (b"head", 40, list(pages), False)
    if isinstance(store, MemoryStore):  # reads everything at once
        return
    assert isinstance(stored.pages, PagesInStore)
    known = Page(b"not asked")
    known.set_store_key(stored.pages.store_key_of("p3"))
    other.write_candidate("g", "same", "e", 0, b"head", [("p", known)])
    assert (known.encoded, store.get("g", "same").pages["p"]) == (0, pages["p3"])
    for name in ("one", "same"):
        store.discard("g", name)
    put(store, "two", 2, p=b"two")
    store.confirm("g", "two")
    store.prune_snapshots("g", 1)
    assert names(store) == ["two"]
    stored.pages.prefetch_pages(["p7", "p8", "p39"])
    assert [stored.pages[name] for name in ("p39", "p0", "p8", "p8", "p7")] == [pages[n] for n in ("p39", "p0", "p8", "p8", "p7")]
    assert dict(stored.pages) == pages


@pytest.mark.parametrize("eager_bytes_max", [1 << 20, 0], ids=["read whole", "read page by page"])
def test_looking_changes_nothing(
    open_store_door: Callable[..., Store], monkeypatch: pytest.MonkeyPatch, eager_bytes_max: int
) -> None:
    """Also if the snapshot is damaged: it may be the only one left. The hold of a page-by-page reader ends with the reader."""
    store, looking, group = open_store_door(), open_store_door(Access.LOOK, eager_bytes_max=eager_bytes_max), uuid4().hex
    pages = {f"p{number}": uuid4().bytes for number in range(3)}
    store.write_candidate(group, "one", "e", 1, uuid4().bytes, pages.items())
    before = held(store, group)
    assert [info.name for info in looking.list(group)] == ["one"]
    assert dict(looking.get(group, "one").pages) == pages
    gc.collect()
    wait_until(lambda: held(store, group) == before, "nothing is changed by looking", 30)
    with monkeypatch.context() as patched:
        damage(store, group, "one", patched)
        before = held(store, group)
        with pytest.raises(SnapshotDamaged):
            dict(looking.get(group, "one").pages)
        gc.collect()
        wait_until(lambda: held(store, group) == before, "damage is left as it is", 30)
    store.discard_group(group)


def test_looking_makes_no_store(tmp_path: Path, kafka: KafkaServers) -> None:
    """A misspelled name is not a store, and has no snapshots."""
    others = tmp_path / "others.db"
    with contextlib.closing(sqlite3.connect(others)) as database:
        database.execute("CREATE TABLE t (c)")
    before, changelog = others.read_bytes(), f"{kafka.url}/never-{uuid4().hex}"
    for url in ((tmp_path / "none").as_uri(), f"sqlite:///{others}", changelog):
        with contextlib.closing(open_store(url, Access.LOOK)) as looking:
            assert list(looking.list("g")) == []
            with pytest.raises(StoreError, match="snapshot one of group g is not in the store"):
                looking.get("g", "one")
    assert not (tmp_path / "none").exists()
    assert others.read_bytes() == before
    topics = AdminClient({"bootstrap.servers": kafka.bootstrap}).list_topics(timeout=30).topics
    assert [name for name in topics if name.startswith("never-")] == []


def test_a_database_closed_while_it_is_used_leaves_no_connection_open(postgresql: DatabaseServer) -> None:
    """The user is the thread that holds pages for a reader. An open connection warns when it is collected, and a warning fails."""

    def use(database: Database) -> None:
        database.transaction(lambda _: database.close())
        database.transaction(lambda _: None)

    use(Database(postgresql.url))
    gc.collect()


def test_of_a_large_snapshot_what_is_missing_is_told_at_once(open_store_door: Callable[..., Store]) -> None:
    store = open_store_door(eager_bytes_max=0)
    with pytest.raises(StoreError, match="is not in the store"):
        store.get("g", "one")
    put(store, "one")
    assert dict(store.get("g", "one").pages) == PAGES


def test_many_writers_at_once(open_store_door: Callable[[], Store]) -> None:
    """They write the same pages under different names, and discard and collect in between."""
    failed: list[BaseException] = []

    def write(store: Store, number: int) -> None:
        try:
            for turn in range(4):
                pages = [(f"p{i}", b"page %d of turn %d" % (i, turn)) for i in range(20)]
                store.write_candidate("g", f"{number}-{turn}", "e", turn, b"%d" % number, pages)
                store.confirm("g", f"{number}-{turn}")
                store.prune_snapshots("g", 6)
        except BaseException as error:
            failed.append(error)

    writers = [threading.Thread(target=write, args=(open_store_door(), number)) for number in range(4)]
    for each in writers:
        each.start()
    for each in writers:
        each.join()
    # One writer's snapshot may be beyond the newest six before it is confirmed; nothing else may happen.
    assert [str(error) for error in failed if "is not in the store" not in str(error)] == []
    store = open_store_door()
    for info in store.list("g"):
        assert len(store.get("g", info.name).pages) == 20


@given(st.dictionaries(st.text("abc#/ü.", min_size=1, max_size=4), st.binary(max_size=50), max_size=6), st.binary(max_size=50))
def test_any_pages_come_back(pages: dict[str, bytes], header: bytes) -> None:
    store = MemoryStore()
    store.write_candidate("g", "n", "e", 1, header, pages.items())
    stored = store.get("g", "n")
    assert (stored.header, dict(stored.pages)) == (header, pages)


def test_a_memory_snapshot_can_be_damaged_on_purpose() -> None:
    store = MemoryStore()
    put(store, "one")
    store.damage("g", "one", "bit 3")
    with pytest.raises(StoreError, match="snapshot one of group g is damaged"):
        store.get("g", "one")
    assert put(store, "one").status is SnapshotStatus.CANDIDATE
    assert dict(store.get("g", "one").pages) == PAGES


def test_a_host_whose_clock_is_wrong_takes_nobody_for_dead(
    open_store_door: Callable[..., Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a reader nor a writer: the server's clock decides. (A file belongs to one machine, which has one clock.)"""
    ours, theirs = (open_store_door(eager_bytes_max=0, left_s=0) for _ in range(2))
    group = uuid4().hex
    if isinstance(ours, SqlStore) and isinstance(ours._database.now_us, int):
        pytest.skip("it has no server")
    read = {"p": uuid4().bytes}
    ours.write_candidate(group, "read", "e", 1, b"", read.items())
    stored = ours.get(group, "read")

    def clear_up() -> None:
        with monkeypatch.context() as patched:
            for module in ("sql.database", "objects.store", "changelog.store"):
                patched.setattr(f"hotspare.stores.{module}.clock_us", lambda: clock_us() + 3_600_000_000)
            theirs.write_candidate(group, "next", "e", 2, b"", [("p", uuid4().bytes)])
            theirs.confirm(group, "next")
            theirs.discard(group, "read")
            theirs.prune_snapshots(group, 1)

    first, filler = Page(uuid4().bytes), [(f"f{number}", uuid4().bytes) for number in range(2 * CONTENTS_PER_CALL)]
    ours.write_candidate(group, "slow", "e", 3, b"", [("first", first), *filler, ("last", Page(uuid4().bytes, clear_up))])
    assert first.encoded == 1, "what was written before is still there"
    assert dict(stored.pages) == read
    ours.discard_group(group)

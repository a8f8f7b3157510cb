"""`hotspare state`: the content of a group's snapshots, in any store."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from hotspare.base.errors import SnapshotDamaged, UsageError
from hotspare.bus.contract import Partition
from hotspare.bus.open import open_bus
from hotspare.flow.snapshot_content import header_facts
from hotspare.stores.contract import SnapshotInfo, SnapshotStatus
from hotspare.stores.open import default_store_url, open_store
from hotspare.stores.snapshot_choice import SnapshotScope, choose_snapshot, parse_choice, time_text
from tests.cli.kept import GROUP, PROJECT, kept_bus, put_snapshots
from tests.cli.running import hotspare_here


@pytest.fixture(params=["file", "sqlite", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Returns the URL of a store with the snapshots of a group."""
    urls = {"file": (tmp_path / "s").as_uri(), "sqlite": f"sqlite:///{tmp_path}/s.db", "memory": f"memory://{tmp_path.name}"}
    url = urls[request.param]
    opened = open_store(url)
    put_snapshots(opened)
    opened.close()
    return url


@pytest.fixture
def bus(tmp_path: Path) -> str:
    return kept_bus(tmp_path)


def project_file(folder: Path) -> Path:
    path = folder / "shop.yaml"
    path.write_text(PROJECT)
    return path


def said(*arguments: str | Path, status: int = 0) -> str:
    done = hotspare_here("state", *arguments)
    assert done.returncode == status, done.stderr
    return done.stdout


def refused(*arguments: str | Path) -> str:
    done = hotspare_here("state", *arguments)
    assert done.returncode == 2, done.stdout
    return done.stderr


def test_snapshots_of_a_group_are_listed_in_any_store(store: str) -> None:
    """SPEC H13: with their sizes."""
    found = json.loads(said("ls", GROUP, "--store", store, "--json"))["groups"][GROUP]
    assert [(each["name"], each["position"], each["status"]) for each in found] == [
        ("0003-e", 3, "candidate"),
        ("0002-e", 2, "confirmed"),
        ("0001-e", 1, "confirmed"),
    ]
    assert all(each["bytes"] > 1000 and each["written"].endswith("Z") for each in found)
    assert "0002-e" in said("ls", GROUP, "--store", store)


def test_of_a_snapshot_the_windows_with_their_rows_and_bytes_are_shown_without_a_project(store: str) -> None:
    """SPEC G12: statistics by window."""
    document = json.loads(said("show", GROUP, "newest", "--store", store, "--json"))
    assert (document["name"], document["system_time"]) == ("0002-e", "1970-01-01T00:00:06Z")
    assert [each["offset"] for each in document["positions"]] == [2, 4]
    parts = {(each["window"], each["part"]): each for each in document["parts"]}
    assert {key: parts[key]["rows"] for key in (("q/recent", "rows"), ("q/orders", "rows"), ("q/spent", "groups"))} == {
        ("q/recent", "rows"): 2,
        ("q/orders", "rows"): 3,
        ("q/spent", "groups"): 1,
    }
    written = sum(each["bytes"] for each in document["parts"])
    assert document["bytes"] * 0.5 < written <= document["bytes"]
    assert "q/recent" in said("show", GROUP, "0001", "--store", store)


def test_rows_of_a_window_are_found_by_key_and_by_a_filter(store: str, tmp_path: Path) -> None:
    file = project_file(tmp_path)
    show = ("show", GROUP, "--store", store, "--project", file, "--json", "--window")
    rows = json.loads(said(*show, "q/orders"))
    assert (rows["rows_total"], rows["rows"][0]) == (3, {"id": "1", "item": "pen", "price": "2.5"})
    assert json.loads(said(*show, "q/orders", "--key", "3"))["rows"] == [{"id": "3", "item": None, "price": "0.1"}]
    by_price = json.loads(said(*show, "q/orders", "--where", "price > 1 AND ESP_OPCODE = 'I'", "--limit", "1"))
    assert (by_price["rows_total"], [each["id"] for each in by_price["rows"]]) == (2, ["1"])
    assert json.loads(said(*show, "q/weighed", "--part", "right"))["rows"] == [{"item": "pen", "weight": "5"}]
    assert "q/spent keeps no rows of its own" in refused(*show, "q/spent")
    assert "the filter cannot be computed for 3 rows" in refused(*show, "q/orders", "--where", "id / (id - id) > 1")
    wrong = refused(*show, "q/orders", "--where", "prise = 1")
    assert "HS-0100 the filter is invalid: window q/orders, condition: unknown field prise\n  hint: did you mean 'price'?" in wrong
    assert "give --window QUERY/WINDOW, too" in refused("show", GROUP, "--store", store, "--key", "1")
    assert "project shop has no window shop/q/orders" in refused(*show, "shop/q/orders")
    assert "has 1 fields" in refused(*show, "q/orders", "--key", "1", "--key", "2")


def test_the_project_is_known_from_the_group_or_has_to_be_said(bus: str, tmp_path: Path) -> None:
    assert "pen" in said("show", GROUP, "--bus", bus, "--window", "q/orders")
    assert GROUP in said("ls", "--bus", bus)
    assert f"groups: {GROUP}" in refused("ls", "nobody", "--bus", bus)
    store = default_store_url(bus)
    assert "give --project FILE" in refused("show", GROUP, "--store", store, "--window", "q/orders")
    other = tmp_path / "other.yaml"
    other.write_text(PROJECT.replace("bycount_sliding: 3", "bycount_sliding: 4"))
    done = hotspare_here("state", "show", GROUP, "--store", store, "--window", "q/orders", "--project", other)
    assert (done.returncode, "belongs to another project" in done.stderr) == (1, True)


def test_rows_are_exported_with_their_types_and_as_events_that_can_be_published(store: str, tmp_path: Path) -> None:
    given = ("--store", store, "--project", project_file(tmp_path), "--window", "q/orders")
    said("export", GROUP, tmp_path / "rows.parquet", *given)
    table = pq.read_table(tmp_path / "rows.parquet")
    assert table.to_pylist()[1] == {"id": 3, "item": None, "price": 0.1}
    assert table.schema.metadata[b"hotspare.snapshot"] == b"0002-e"
    assert table.schema.metadata[b"hotspare.schema"] == b"id*:int64,item:string,price:double"
    said("export", GROUP, tmp_path / "rows.csv", "0001-e", *given)
    assert (tmp_path / "rows.csv").read_text() == 'I,N,1,pen,1.5\nI,N,2,"ink, blue",2.25\n'
    assert "use a name that ends in .parquet or .csv" in refused("export", GROUP, tmp_path / "rows.txt", *given)
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.endswith((".txt", ".csv", ".parquet"))) == [
        "rows.csv",
        "rows.parquet",
    ]


def test_rows_are_imported_as_events_of_a_source_window_once_and_into_no_other(store: str, bus: str, tmp_path: Path) -> None:
    """Imported rows are input: every engine computes the same from them. A file with other rows under the same name is another
    source."""
    file, project = tmp_path / "rows.parquet", project_file(tmp_path)
    said("export", GROUP, file, "--store", store, "--project", project, "--window", "q/orders")
    given = (file, "--bus", bus, "--project", project, "--window")
    assert "start an engine first" in refused("import", *given, "shop/q/orders")
    assert "add --create to this command" in refused("import", *given, "shop/q/orders")
    assert f"3 rows of {file} are published to shop/q/orders\n" in said("import", *given, "shop/q/orders", "--create")
    told = f"0 rows of {file} are published to shop/q/orders: all of {file} was published before\n"
    assert told in said("import", *given, "shop/q/orders")
    pq.write_table(pq.read_table(file).slice(0, 1), file)
    assert "1 rows" in said("import", *given, "shop/q/orders")
    opened = open_bus(bus)
    messages = opened.read(Partition("hotspare.shop.q.orders.I"), 0, messages_max=10, bytes_max=10_000)
    opened.close()
    values = [row for message in messages for row in message.value.decode().splitlines()]
    assert values == ["p,N,1,pen,2.5", "p,N,3,,0.1", "p,N,4,pen,4", "p,N,1,pen,2.5"]
    assert "rows can be imported only into source windows" in refused("import", *given, "shop/q/recent")
    assert "lacks the field weight" in refused("import", *given, "shop/q/items")
    assert "is not a Parquet file" in refused("import", tmp_path / "x.csv", *given[1:], "shop/q/orders")
    assert "the file does not exist" in refused("import", tmp_path / "x.parquet", *given[1:], "shop/q/orders")
    assert sorted(path.name for path in tmp_path.glob("*rows*")) == ["rows.parquet"]


def test_two_snapshots_are_compared_row_by_row(store: str, tmp_path: Path) -> None:
    given = ("--store", store, "--project", project_file(tmp_path))
    lines = said("diff", GROUP, "0001-e", "0002-e", *given, "--window", "q/orders", status=1).splitlines()
    assert "q/orders: 2 added, 1 gone, 1 changed, 0 the same" in lines
    assert {'  - 2,"ink, blue",2.25', "  - 1,pen,1.5", "  + 1,pen,2.5", "  + 4,pen,4"} <= set(lines)
    assert any(line.startswith("stream q/spent: 2 with digest") for line in lines)
    whole = said("diff", GROUP, "0001-e", *given, status=1)
    assert "q/weighed right: 0 added, 0 gone, 0 changed, 1 the same" in whole
    assert said("diff", GROUP, "0002-e", "0003-e", *given).endswith("the two are the same\n")


def test_what_is_not_there_is_told_with_what_is(store: str, tmp_path: Path) -> None:
    assert "0002-e (confirmed" in refused("show", GROUP, "0009", "--store", store)
    assert "no snapshot store at" in refused("ls", GROUP, "--store", (tmp_path / "none").as_uri())
    assert "no group given" in refused("ls", "--store", store)
    assert "no snapshot store given" in refused("ls", GROUP)
    if store.startswith("file:"):
        _damage_is_told_and_left(tmp_path, store)
    with pytest.raises(SnapshotDamaged) as encrypted:
        header_facts(b'{"\x8a')
    assert "name its key" in encrypted.value.hint


def _damage_is_told_and_left(folder: Path, store: str) -> None:
    """Commands that only read delete nothing, since it may be all that is left."""
    for path in (folder / "s" / GROUP / "pages").iterdir():
        path.write_bytes(b"?" * path.stat().st_size)
    before = {path: path.read_bytes() for path in (folder / "s").rglob("*") if path.is_file()}
    given, rows = ("--store", store), ("--project", project_file(folder), "--window", "q/orders")
    for command in (["show"], ["show", *rows], ["export", folder / "orders.csv", *rows], ["diff", "0001-e", "0002-e"]):
        done = hotspare_here("state", command[0], GROUP, *command[1:], *given)
        assert (done.returncode, "is damaged" in done.stderr) == (1, True)
    assert {path: path.read_bytes() for path in (folder / "s").rglob("*") if path.is_file()} == before


def info(order: int, status: SnapshotStatus = SnapshotStatus.CONFIRMED, written_us: int = 0) -> SnapshotInfo:
    return SnapshotInfo(f"{order:03d}-e", "e", order, status, written_us or order * 60_000_000, 1)


LISTED = [info(50, SnapshotStatus.CANDIDATE), info(40), info(30), info(20, written_us=0), info(10)]


@pytest.mark.parametrize(
    ("text", "order"),
    [
        ("newest", 40),
        ("time:1970-01-01T00:30", 30),
        ("time:1970-01-01T00:29:59.999999", 20),
        ("time:1970-01-01T01:30+01:00", 30),
        ("position:39", 30),
        ("position:40", 40),
        ("010", 10),
        ("03", 30),
    ],
)
def test_a_snapshot_is_chosen_by_name_time_or_position(text: str, order: int) -> None:
    """A restore names its snapshot (SPEC H6)."""
    assert choose_snapshot("g", LISTED, parse_choice(text), SnapshotScope.CONFIRMED).order == order


def test_a_time_is_said_as_it_is_shown() -> None:
    written = info(7, written_us=1_700_000_000_900_000)
    assert (
        choose_snapshot("g", [written], parse_choice(f"time:{time_text(written.written_time_us)}"), SnapshotScope.CONFIRMED)
        == written
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("time:yesterday", ": not a time"),
        ("time:0001-01-01T00:00+23:59", ": not a time"),
        ("position:-1", ": not a position"),
        ("0", "4 snapshots of group g begin with 0"),
        ("050", "is not confirmed"),
        ("time:1970-01-01T00:09", "was written by 1970-01-01T00:09:00Z"),
        ("position:9", "at or before position 9"),
        ("x", "has no snapshot x"),
    ],
)
def test_a_choice_that_names_none_says_why(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        choose_snapshot("g", LISTED, parse_choice(text), SnapshotScope.CONFIRMED)


def test_a_candidate_may_be_looked_at_but_is_not_the_newest() -> None:
    assert choose_snapshot("g", LISTED, parse_choice("050"), SnapshotScope.ALL).order == 50
    assert choose_snapshot("g", LISTED, parse_choice("newest"), SnapshotScope.ALL).order == 40

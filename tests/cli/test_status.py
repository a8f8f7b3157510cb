"""`hotspare status`, `topics` and `reset` against a group's real bus, coordination and store (SPEC M5, C9, B17)."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from hotspare.base.errors import UsageError
from hotspare.base.processes import process_space, process_start
from hotspare.bus.contract import Commit, Outgoing, OutputId, Partition, Progress
from hotspare.bus.open import open_bus
from hotspare.cli.looking.details import group_details, store_lines
from hotspare.cli.looking.screen import screen_lines
from hotspare.coordination.contract import Member
from hotspare.coordination.memory import MemoryCoordination
from hotspare.coordination.open import default_coordination_url, open_coordination
from hotspare.operate.groups import GroupSources, existing_snapshots, groups_named, open_sources
from hotspare.operate.report import report
from hotspare.stores.open import default_store_url, open_store
from hotspare.testing.cluster import wait_until
from tests.cli.running import hotspare, hotspare_here

GROUP = "p.shop"
INBOUND = Partition("p.shop.q.orders.I")
OUTBOUND = "p.shop.q.sums.O"
STREAM = "q/sums"
NOBODYS_PROCESS = 2**22 + 1
LEASE_MS = 3_600_000
NOW_US = 2_000_000_000_000_000
PROJECT = """
project: {name}
queries:
  q:
    windows:
      a: {{type: source, opcodes: any, schema: 'id*:int64'}}
      b: {{type: copy}}
    edges: [a -> b]
"""


def member(engine: str, role: str, process_id: int, space: str = "") -> Member:
    detail = {
        "step": "none",
        "epoch": "3",
        "positions": json.dumps({"0/0": 4}),
        "skew_ms": json.dumps({"0/0": -30}),
        "role_age_ms": "5000",
        "held": json.dumps({STREAM: 2}),
        "committed": json.dumps({STREAM: 7}),
        "digests": json.dumps({STREAM: "00000000000000ff"}),
        "held_bytes": "640",
        "spilled_bytes": "0",
        "coordination": "connected",
        "ended_because": "",
        "stalled_ms": "2500" if role == "active" else "0",
        "connectors": json.dumps({"q/orders/in": ["failed", 7, "file in.csv cannot be read", 1_500]}) if role == "active" else "{}",
        "bad_events": json.dumps([["q/sums", "expression", 3], ["", "utf8", 1]]) if role == "active" else "[]",
        "unknown_members": json.dumps([["q/a", "crad", "card", 3]]) if role == "active" else "[]",
        "snapshots_refused": json.dumps(["snapshot s0 cannot be used"]) if role == "active" else "[]",
        "trouble": "bus b.db cannot be used now: disk is full" if role == "active" else "",
        "trouble_age_ms": "20900",
    }
    return Member(
        engine=engine,
        address="127.0.0.1:1",
        process_id=process_id,
        process_start=process_start(process_id),
        host="host",
        project_hash="abc",
        versions="hotspare 0.1",
        cpu="x86_64",
        role=role,
        sequences={STREAM: 9},
        detail=detail,
        process_space=space or process_space(),
    )


@pytest.fixture
def _now(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fixes the time of this machine for the document."""
    monkeypatch.setattr("hotspare.operate.report.time", SimpleNamespace(time_ns=lambda: NOW_US * 1_000))


@pytest.fixture
def bus_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'demo.db'}"


@pytest.fixture
def sources(bus_url: str) -> Iterator[GroupSources]:
    """Yields a group as an active engine and a spare leave it."""
    with ExitStack() as stack:
        found = GroupSources(
            open_coordination(default_coordination_url(bus_url)), open_bus(bus_url), open_store(default_store_url(bus_url))
        )
        assert found.bus is not None
        assert found.store is not None
        for each in (found.coordination, found.bus, found.store):
            stack.callback(each.close)
        found.bus.create_topic(INBOUND.topic)
        found.bus.create_topic(OUTBOUND)
        found.bus.append(INBOUND, [Outgoing(b"i,n,%d" % number) for number in range(6)])
        producer = found.bus.producer(GROUP, [OUTBOUND])
        producer.fence(3)
        progress = Progress(7, OutputId(0, 0, 3, 0, 0), 255, 3)
        producer.publish(3, Commit({OUTBOUND: [Outgoing(b"x")]}, {STREAM: progress}))
        found.coordination.set_fact_once(GROUP, "origin", json.dumps([[INBOUND.topic, 0, 0]]).encode())
        for engine, role, process_id in (
            ("e1", "active", os.getpid()),
            ("e2", "standby", NOBODYS_PROCESS),
            ("e1", "active", os.getpid()),
        ):
            found.coordination.refresh_member(
                GROUP, member(engine, role, process_id)
            )  # so that the newest heartbeat is the active engine's
        assert found.coordination.campaign(GROUP, 0, member("e1", "active", os.getpid()), LEASE_MS) == 1
        found.store.write_candidate(GROUP, "s1", "e2", 4, b"header", [("page", b"1234")])
        found.store.confirm(GROUP, "s1")
        yield found


@pytest.mark.usefixtures("_now")
def test_the_document_has_every_fact_under_its_key(sources: GroupSources) -> None:
    """SPEC C9, G12, H13, J11, M5."""
    (group,) = report(sources)["groups"]
    lease_left_ms = group.pop("lease_left_ms")
    assert 0 < lease_left_ms <= LEASE_MS
    assert {key: group[key] for key in ("group", "epoch", "active", "successor")} == {
        "group": GROUP,
        "epoch": 1,
        "active": "e1",
        "successor": None,
    }
    first, second = group["engines"]
    place = {"topic": INBOUND.topic, "partition": 0, "next_offset": 4, "end_offset": 6, "lag": 2}
    assert first["positions"] == [{**place, "skew_ms": -30}]
    assert first["role_since_us"] == NOW_US - 1_000 * first["silent_ms"] - 5_000_000
    assert first["address"] == "127.0.0.1:1"
    assert first["streams"] == [{"stream": STREAM, "sequence": 9, "committed": 7, "held": 2, "digest": "00000000000000ff"}]
    assert (first["role"], first["is_running"], second["is_running"]) == ("active", True, False)
    assert (second["role"], second["last_role"]) == (None, "standby"), "its process has ended"
    assert (first["held_bytes"], first["ended_because"], first["epoch"]) == (640, None, 3)
    assert group["progress"] == [{"stream": STREAM, "sequence": 7, "digest": "00000000000000ff", "epoch": 3}]
    (snapshot,) = group["snapshots"]
    assert (snapshot["name"], snapshot["status"], snapshot["order"]) == ("s1", "confirmed", 4)
    newest = group["newest_snapshot"]
    assert (newest["engine"], newest["order"]) == ("e2", 4)
    assert newest["age_ms"] == (NOW_US - snapshot["written_time_us"]) // 1_000
    assert (first["stalled_ms"], second["stalled_ms"]) == (2_500, 0)
    failed = {"connector": "q/orders/in", "state": "failed", "rows": 7, "last_error": "file in.csv cannot be read"}
    assert (first["connectors"], second["connectors"]) == ([{**failed, "retry_in_ms": 1_500}], [])
    assert first["bad_events"] == [
        {"window": "q/sums", "reason": "expression", "count": 3},
        {"window": None, "reason": "utf8", "count": 1},
    ]
    assert first["unknown_members"] == [{"window": "q/a", "member": "crad", "near": "card", "events": 3}]
    assert second["unknown_members"] == []
    assert (first["snapshots_refused"], first["trouble"]) == (
        ["snapshot s0 cannot be used"],
        "bus b.db cannot be used now: disk is full",
    )
    assert (second["bad_events"], second["snapshots_refused"], second["trouble"]) == ([], [], None)
    json.dumps(group)


def test_a_store_that_does_not_answer_is_said_and_hides_nothing_else(sources: GroupSources) -> None:
    """SPEC H14: an engine whose writes there fail hides nothing either."""
    failing = member("e1", "active", os.getpid())
    failing.detail["snapshot_failure"] = "cannot write snapshot s2: a request to the Redis store failed"
    sources.coordination.refresh_member(GROUP, failing)
    with closing(open_store("redis://:secret@127.0.0.1:1/0")) as store:
        document = report(replace(sources, store=store))
    (group,) = document["groups"]
    assert (group["active"], group["snapshots"], group["newest_snapshot"]) == ("e1", [], None)
    first, second, refused = store_lines(group)
    assert first.startswith("the store of snapshots does not answer: a request to the Redis store failed: Error 111")
    assert "secret" not in first
    assert second == "e1 continues without a new snapshot: cannot write snapshot s2: a request to the Redis store failed"
    (group,) = report(sources)["groups"]
    assert store_lines(group) == [second, refused]


@pytest.mark.usefixtures("_now")
@pytest.mark.parametrize(
    ("role", "later_ms", "lease_ms", "successor", "has_sign_of_life"),
    [
        ("active", 500, 1_000, "", True),
        ("active", 1_000, 1_000, "", False),
        ("active", 500, 1_000, "e2", False),
        ("standby", 1_999, 1_000, "", True),
        ("standby", 2_000, 1_000, "", False),
        ("diverged", 60_000, 1_000, "", True),
    ],
)
def test_who_gives_no_sign_of_life_has_no_role(
    role: str, later_ms: int, lease_ms: int, successor: str, has_sign_of_life: bool
) -> None:
    """SPEC M5: the lease counts for an active engine, the heartbeat for any other. Its process is on another host and not
    visible."""
    now_ms = [0]
    service = MemoryCoordination(clock=lambda: now_ms[0]).client()
    own, other = member("e1", role, 7, space="far"), member("e2", "standby", os.getpid())
    service.refresh_member(GROUP, own)
    assert service.campaign(GROUP, 0, own, lease_ms) == 1
    if successor:
        service.release(GROUP, 1, "e1", successor)
    now_ms[0] = later_ms
    service.refresh_member(GROUP, other)
    (engine, _) = report(GroupSources(service))["groups"][0]["engines"]
    assert (engine["role"], engine["last_role"]) == (role if has_sign_of_life else None, role)
    assert engine["silent_ms"] == later_ms
    assert engine["heard_us"] == NOW_US - later_ms * 1_000


def test_an_engines_words_that_cannot_be_read_are_left_out(sources: GroupSources) -> None:
    odd = member("e3", "standby", os.getpid(), space="elsewhere")
    detail = {"positions": "[1", "held": "7", "epoch": "x", "committed": '{"q/sums": null}'}
    sources.coordination.refresh_member(GROUP, Member(**{**{f: getattr(odd, f) for f in odd.__slots__}, "detail": detail}))
    engine = report(sources)["groups"][0]["engines"][2]
    assert (engine["positions"], engine["epoch"], engine["is_running"]) == ([], None, None)
    assert engine["streams"] == [{"stream": STREAM, "sequence": 9, "committed": None, "held": None, "digest": None}]


@pytest.mark.usefixtures("sources")
def test_status_and_topics_as_commands(bus_url: str, tmp_path: Path) -> None:
    done = hotspare("status", "--bus", bus_url, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["groups"][0]["group"] == GROUP
    table = hotspare("status", "--bus", bus_url, "-v").stdout
    for text in (
        "group p.shop: epoch 1, active e1",
        INBOUND.topic,
        "00000000000000ff",
        "confirmed",
        "no heartbeat since",
        "was standby",
        "127.0.0.1:1",
        "30 ms behind",
        "q/orders/in",
        "in 2 s",
        "expression",
        "e1: snapshot s0 cannot be used",
        "disk is full",
    ):
        assert text in table
    (tmp_path / "elsewhere").mkdir()
    elsewhere = hotspare("status", "--bus", bus_url, "--store", (tmp_path / "elsewhere").as_uri()).stdout
    assert "no snapshot is here; if the group keeps them elsewhere" in elsewhere
    topics = json.loads(hotspare("topics", "--bus", bus_url, "--prefix", "p.", "--json").stdout)["topics"]
    assert [(t["topic"], t["kind"], t["begin_offset"], t["end_offset"]) for t in topics] == [
        (INBOUND.topic, "input", 0, 6),
        (OUTBOUND, "output", 0, 1),
    ]


SCREEN = """
p.shop, epoch 1
! there is no spare
! e1, 20 s ago: bus b.db cannot be used now: disk is full
! e1: no input for 2 s although input is pending
! e1: snapshot s0 cannot be used
! connector q/orders/in failed, next try in 1 s: file in.csv
  cannot be read
! bad events of q/sums: 3 expression
! bad events before any window: 1 utf8
e1  active  lag 2  for 5 s
e2  gone           for 5 min, was standby
newest snapshot 0 s old, by e2
"""


@pytest.mark.usefixtures("_now")
def test_a_screen_of_60_columns_tells_what_is_wrong_first(sources: GroupSources) -> None:
    document = report(sources)
    (group,) = document["groups"]
    group["newest_snapshot"]["age_ms"] = 9
    group["engines"][0]["role_since_us"], group["engines"][1]["heard_us"] = NOW_US - 5_000_000, NOW_US - 300_000_000
    lines = list(screen_lines(document, NOW_US, 60))
    assert lines == SCREEN.strip().splitlines()
    assert max(map(len, lines)) <= 60


@pytest.mark.usefixtures("_now")
def test_calls_that_did_not_end_are_named_with_their_window(sources: GroupSources) -> None:
    document = report(sources)
    (group,) = document["groups"]
    call = {"topic": INBOUND.topic, "partition": 0, "offset": 5, "index": 1, "window": "q/code", "cause": "deadline", "starts": 2}
    group["hung_calls"] = [call | {"decision": None}, call | {"offset": 4, "decision": 3}]
    group["quarantined"] = ["q/code"]
    lines = list(screen_lines(document, NOW_US, 200))
    code = "user code of window q/code, event 1 of the message at offset"
    assert f"! {code} 5 of {INBOUND.topic}, partition 0: exceeds its deadline, 2 starts failed" in lines
    assert f"{code} 4 of {INBOUND.topic}, partition 0: the window refuses it (decision 3)" in lines
    assert "! the code of window q/code gets no events: it is in quarantine" in lines


@pytest.mark.usefixtures("_now")
@pytest.mark.parametrize("columns", [60, 80, 120])
def test_details_fit_any_width_and_stand_in_a_block_for_each_engine(sources: GroupSources, columns: int) -> None:
    (group,) = report(sources)["groups"]
    group["engines"][0]["connectors"][0]["last_error"] = "file in.csv cannot be read, " * 9
    lines = list(group_details(group, columns))
    assert max(map(len, lines)) <= columns
    assert [line for line in lines if line.startswith("engine ")] == ["engine e1", "engine e2"]
    blocks = " ".join(" ".join(lines).split()).split("engine e")
    assert "lag 2 messages held 2 outputs, 640 bytes note no input for 2 s although" in blocks[1]
    assert "20 s ago: bus b.db cannot be used now: disk is full" in blocks[1]
    assert f"{INBOUND.topic}/0: next 4, end 6, lag 2, clock 30 ms behind the bus's" in blocks[1]
    assert "stream q/sums: sequence 9, committed 7, held 2, digest 00000000000000ff" in blocks[2]


def test_a_spare_that_starts_is_no_spare_yet(sources: GroupSources) -> None:
    document = report(sources)
    document["groups"][0]["engines"][1] |= {"role": "joining", "starting": "compiling kernels"}
    lines = list(screen_lines(document, NOW_US, 60))
    assert "! there is no spare: one is starting" in lines
    assert [line for line in lines if line.startswith("e")][1] == "e2  starting: compiling kernels"


def test_spans_have_one_unit(sources: GroupSources) -> None:
    document = report(sources)
    heard_us = document["groups"][0]["engines"][1]["heard_us"]
    said = [list(screen_lines(document, heard_us + seconds * 1_000_000, 80))[-2] for seconds in (59, 61, 7_199, 90_000)]
    assert [line.partition("for ")[2] for line in said] == [f"{span}, was standby" for span in ("59 s", "1 min", "1 h", "1 d")]


def test_without_an_active_engine_the_exit_status_is_1(sources: GroupSources, bus_url: str) -> None:
    assert hotspare_here("status", "--bus", bus_url).returncode == 0
    sources.coordination.release(GROUP, 1, "e1", "")
    for options in ((), ("-v",), ("--json",)):
        assert hotspare_here("status", "--bus", bus_url, *options).returncode == 1
    assert "! no engine is active" in hotspare_here("status", "--bus", bus_url).stdout


def test_a_bus_without_a_place_for_snapshots_keeps_nobody_from_looking(sources: GroupSources) -> None:
    with ExitStack() as stack:
        assert existing_snapshots(stack, "", "kafka://nowhere:9092", sources.coordination) is None


def test_the_name_of_the_project_will_do(sources: GroupSources, bus_url: str) -> None:
    assert groups_named(sources.coordination, "shop") == [GROUP]
    assert hotspare_here("status", "--bus", bus_url, "--group", "shop").returncode == 0
    sources.coordination.refresh_member("other.shop", member("e3", "standby", NOBODYS_PROCESS))
    with pytest.raises(UsageError, match="2 groups belong to project shop"):
        groups_named(sources.coordination, "shop")
    assert groups_named(sources.coordination, GROUP) == [GROUP]


def test_a_whole_group_is_asked_to_stop_the_active_engine_last(sources: GroupSources, bus_url: str) -> None:
    sources.coordination.refresh_member(GROUP, member("e0", "standby", NOBODYS_PROCESS))
    sources.coordination.refresh_member(GROUP, member("e1", "active", os.getpid()))
    done = hotspare_here("stop", "shop", "--bus", bus_url)
    assert done.returncode == 0, done.stderr
    asked = [line.partition(",")[0] for line in done.stdout.splitlines()]
    assert asked[-1] == "engine e1"
    assert "engine e0" in asked


def test_status_needs_to_know_where() -> None:
    with ExitStack() as stack, pytest.raises(UsageError, match="neither --bus nor --coordination"):
        open_sources(stack, "", "", "")


def test_reset_refuses_while_an_engine_is_alive(sources: GroupSources, bus_url: str) -> None:
    done = hotspare("reset", "--group", GROUP, "--bus", bus_url, "--yes")
    assert done.returncode == 2
    assert "engines that are alive: e1" in done.stderr
    assert report(sources)["groups"][0]["snapshots"]


def test_reset_forgets_but_for_the_epoch(sources: GroupSources, bus_url: str) -> None:
    sources.coordination.release(GROUP, 1, "e1", "")
    sources.coordination.remove_member(GROUP, "e1")
    assert hotspare("reset", "--group", GROUP, "--bus", bus_url).returncode == 1, "nobody was there to say yes"
    assert sources.coordination.fact(GROUP, "origin") is not None
    done = hotspare("reset", "--group", GROUP, "--bus", bus_url, "--yes")
    assert done.returncode == 0, done.stderr
    assert sources.coordination.fact(GROUP, "origin") is None
    assert sources.coordination.leader(GROUP).epoch == 1
    document = report(sources, [GROUP])["groups"][0]
    assert document["snapshots"] == []
    assert [(each["stream"], each["sequence"]) for each in document["progress"]] == [(STREAM, 0)]
    topics = {t["topic"]: t for t in json.loads(hotspare("topics", "--bus", bus_url, "--json").stdout)["topics"]}
    assert topics[OUTBOUND]["begin_offset"] == topics[OUTBOUND]["end_offset"] == 1
    assert topics[INBOUND.topic]["begin_offset"] == 0, "the input stays"


def test_reset_asks_about_engines_that_it_cannot_see(sources: GroupSources, bus_url: str) -> None:
    sources.coordination.release(GROUP, 1, "e1", "")
    sources.coordination.remove_member(GROUP, "e1")
    sources.coordination.refresh_member(GROUP, member("far", "standby", 1, space="elsewhere"))
    done = hotspare("reset", "--group", GROUP, "--bus", bus_url, "--yes")
    assert done.returncode == 2
    assert "far" in done.stderr
    assert "--force" in done.stderr
    assert hotspare("reset", "--group", GROUP, "--bus", bus_url, "--yes", "--force").returncode == 0


def test_reset_of_a_group_that_never_was(sources: GroupSources, bus_url: str) -> None:
    done = hotspare("reset", "--group", "p.none", "--bus", bus_url, "--yes")
    assert done.returncode == 2
    assert GROUP in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("status",),
        ("topics",),
        ("switchover", GROUP),
        ("reset", "--group", GROUP, "--yes"),
        ("validate", "{project}"),
        ("subscribe", "{folder}/out.csv", "--window", "shop/q/sums", "--to-end"),
    ],
)
def test_a_bus_that_does_not_exist_is_refused_and_not_made(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    project = tmp_path / "p.yaml"
    project.write_text(
        "project: p\nqueries: {q: {windows: {a: {type: source, schema: 'id*:int64'}, b: {type: copy}}, edges: [a -> b]}}\n"
    )
    given = [text.format(project=project, folder=tmp_path) for text in arguments]
    done = hotspare_here(*given, "--bus", f"sqlite:///{folder / 'mistyped.db'}")
    assert done.returncode == 2, done.stdout
    assert "no bus is at sqlite:///" in done.stderr
    assert list(folder.iterdir()) == []


def test_a_look_at_a_bus_without_engines_makes_no_file(bus_url: str, tmp_path: Path) -> None:
    open_bus(bus_url).close()
    before = {path.name for path in tmp_path.iterdir()}
    done = hotspare_here("status", "--bus", bus_url)
    assert (done.returncode, done.stdout) == (1, "no group was ever started here\n")
    assert {path.name.split("-")[0] for path in tmp_path.iterdir()} == {path.split("-")[0] for path in before}
    assert not list(tmp_path.glob("*-coord*")) + list(tmp_path.glob("*-snapshots*"))
    for option in ("coordination", "store"):
        url = f"{'sqlite' if option == 'coordination' else 'file'}://{'/' if option == 'coordination' else ''}{tmp_path / 'none'}"
        assert hotspare_here("status", "--bus", bus_url, f"--{option}", url).returncode == 2
        assert not (tmp_path / "none").exists()


@pytest.mark.usefixtures("sources")
def test_an_unknown_group_is_told_which_there_are(bus_url: str) -> None:
    for arguments in (("status", "--group", "nope"), ("switchover", "nope")):
        done = hotspare_here(*arguments, "--bus", bus_url)
        assert done.returncode == 2
        assert "no group is called nope" in done.stderr
        assert f"groups: {GROUP}" in done.stderr


def test_a_lease_that_ran_out_and_a_damaged_snapshot_are_called_so(sources: GroupSources, bus_url: str, tmp_path: Path) -> None:
    assert sources.coordination.campaign(GROUP, 1, member("e2", "active", NOBODYS_PROCESS), 1) == 2
    (manifest,) = tmp_path.glob("demo.db-snapshots/*/*.snapshot")
    manifest.write_bytes(manifest.read_bytes()[:-9])
    wait_until(lambda: sources.coordination.leader(GROUP).lease_left_ms < 0, "the lease is over")
    done = hotspare_here("status", "--bus", bus_url, "-v")
    table = done.stdout
    assert done.returncode == 1, "for health checks"
    assert "active e2, its lease has expired" in table
    assert "damaged" in table
    assert "confirmed" not in table
    assert "1970" not in table
    (snapshot,) = report(sources)["groups"][0]["snapshots"]
    assert (snapshot["status"], snapshot["bytes_total"], snapshot["written_time_us"]) == ("damaged", None, None)


def test_reset_by_a_project_that_needs_a_property(sources: GroupSources, bus_url: str, tmp_path: Path) -> None:
    project = tmp_path / "shop.yaml"
    project.write_text(PROJECT.format(name="'@NAME@'"))
    sources.coordination.release(GROUP, 1, "e1", "")
    sources.coordination.remove_member(GROUP, "e1")
    arguments = ("reset", project, "--prefix", "p", "--bus", bus_url, "--yes")
    assert hotspare_here(*arguments).returncode == 2
    done = hotspare_here(*arguments, "--set", "NAME=shop")
    assert done.returncode == 0, done.stderr
    assert "FILE.position" in done.stdout

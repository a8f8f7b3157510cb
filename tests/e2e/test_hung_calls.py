"""An event on which user code works for ever stops one window for this event, and not the group: real engines and parents."""

from __future__ import annotations

import json
import os
import signal
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hotspare.base.shard import Shard
from hotspare.bus.naming import group_name
from hotspare.testing.cluster import SpawnedEngine, launch, wait_until
from hotspare.testing.kafka_server import KafkaServers
from tests.cli.running import hotspare
from tests.e2e.site import SOURCE, Site

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

PROJECT = """\
project: shop
queries:
  sales:
    windows:
      orders: {{type: source, index: empty, opcodes: insert-only, schema: "id*:int64,s:string"}}
      kept: {{type: copy, index: empty, publish: true}}
      code:
        type: {language}
        index: empty
        schema: "id*:int64,n:int64"
        events: create
        publish: true
        code: |
{text}
    edges: [orders -> kept, orders -> code]
"""
PYTHON = """\
import re
seen = {"n": 0}
def create(data):
    seen["n"] += 1
    return {"n": seen["n"] if re.match("(a|aa)+$", data["s"]) else -seen["n"]}
"""
LUA = """\
n = 0
function create(d)
  n = n + 1
  while #d.s > 5 do end
  return {n = -n}
end
"""
GROWING = """\
seen = {"n": 0}
def create(data):
    seen["n"] += 1
    return {"n": seen["n"] + (len(sorted(range(10 ** 9))) if len(data["s"]) > 5 else 0)}
"""
COLUMNS = """\
import re
def create(data):
    return {"n": [1 if re.match("(a|aa)+$", s.as_py()) else 0 for s in data["s"]]}
"""
HANGS = "a" * 60 + "b"
WATCHED = ("--restart", "always", "--code-deadline-ms", "700")


def project(language: str = "python", text: str = PYTHON) -> str:
    return PROJECT.format(language=language, text="".join(f"          {line}\n" for line in text.splitlines()))


def events(numbers: range, hanging: tuple[int, ...] = ()) -> str:
    return "".join(f"i,n,{n},{HANGS if n in hanging else 'x' * (1 + n % 3)}\n" for n in numbers)


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Any]:
    sites: list[Site] = []

    def make(text: str, **options: Any) -> Site:
        sites.append(Site(tmp_path, text, **options))
        sites[0].cluster.launcher = launch  # a prepared process has no parent
        return sites[0]

    yield make
    sites[0].stop()


def start(site: Site, *names: str, options: tuple[str, ...] = WATCHED) -> list[SpawnedEngine]:
    engines = [site.cluster.start_engine(name, *options) for name in names]
    wait_until(lambda: sum(site.cluster.role(name) in ("active", "standby") for name in names) == len(names), "all engines", 120)
    return engines


def code_rows(site: Site) -> list[str]:
    return site._subscribed("--window", "shop/sales/code")


def ids(rows: list[str]) -> list[int]:
    return [int(row.split(",")[2]) for row in rows]


def check(site: Site, numbers: range, refused: tuple[int, ...], reason: str = "code-deadline") -> None:
    wait_until(lambda: len(site.outputs()) >= len(numbers), "all rows of the window beside", 120)
    wait_until(lambda: len(code_rows(site)) >= len(numbers) - len(refused), "all other rows of the window with the code", 120)
    assert ids(site.outputs()) == list(numbers)
    got = [n for n in numbers if n not in refused]
    assert code_rows(site) == [f"I,N, {n},{-place}" for place, n in enumerate(got, 1)]
    bad = site.bad_events()[1:]
    assert len(bad) == len(refused)
    assert all(reason in line and "sales/code" in line for line in bad)


def test_the_group_refuses_the_event_in_this_window_alone(made: Any) -> None:
    site = made(project())
    start(site, "one", "two")
    site.publish(events(range(6), hanging=(3,)))
    check(site, range(6), (3,))
    wait_until(lambda: {site.cluster.role(name) for name in ("one", "two")} == {"active", "standby"}, "both engines run again", 60)
    status = site.run("status", *site.places, "--group", site.cluster.group)
    assert "user code of window sales/code, event 3" in " ".join(status.stdout.split())
    site.publish(events(range(6, 12), hanging=(8,)), "more.csv")
    check(site, range(12), (3, 8))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_the_active_engine_fails_meanwhile(made: Any, number: signal.Signals) -> None:
    site = made(project())
    start(site, "one", "two")
    site.publish(events(range(3)))
    site.wait_for_outputs(3)
    active = site.cluster.members()[site.cluster.leader().holder].process_id
    site.publish(events(range(3, 9), hanging=(4,)), "more.csv")
    os.kill(active, number)
    try:
        check(site, range(9), (4,))
    finally:
        if number is signal.SIGSTOP:
            os.kill(active, signal.SIGCONT)
    site.publish(events(range(9, 12)), "last.csv")
    check(site, range(12), (4,))


def test_a_stopped_engine_uses_no_processor_time_and_refuses_nothing(made: Any) -> None:
    """Its call is interrupted for several times the deadline of a call."""
    slow = PYTHON.replace('    seen["n"] += 1\n', '    seen["n"] += 1\n    sum(range(4_000_000))\n')
    site = made(project(text=slow))
    start(site, "one")
    process = site.cluster.members()["one"].process_id
    site.publish(events(range(12)))
    for _ in range(3):
        os.kill(process, signal.SIGSTOP)
        signal.sigtimedwait((), 1.0)
        os.kill(process, signal.SIGCONT)
        signal.sigtimedwait((), 0.05)
    check(site, range(12), ())


def test_a_host_that_is_frozen_within_a_call_refuses_nothing(made: Any, free_port: Callable[[], int]) -> None:
    """The call takes a second of processor time at the default deadline, and is frozen for three times the deadline."""
    slow = PYTHON.replace('    seen["n"] += 1\n', '    seen["n"] += 1\n    if data["id"] == 1:\n        sum(range(40_000_000))\n')
    site = made(project(text=slow))
    start(site, "one", options=("--restart", "always", "--http", f"127.0.0.1:{(port := free_port())}"))
    process = site.cluster.members()["one"].process_id
    site.publish(events(range(4)))
    wait_until(lambda: called(port) is not None, "the call", 60, poll_s=0.01)
    os.kill(process, signal.SIGSTOP)
    signal.sigtimedwait((), 30.0)
    assert called(port) is not None
    os.kill(process, signal.SIGCONT)
    check(site, range(4), ())
    assert site.cluster.members()["one"].process_id == process


def called(port: int) -> object:
    """Returns the call of user code that the engine's parent shows; None without one."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/livez", timeout=10) as answer:
        return json.loads(answer.read())["call"]


def test_with_stop_every_engine_ends_at_the_event_and_names_it(made: Any) -> None:
    site = made(project())
    (site.folder / "settings.yaml").write_text("on-hang: stop\n")
    names, settings = ("one", "two"), ("--settings", str(site.folder / "settings.yaml"))
    engines = start(site, *names, options=(*WATCHED, *settings))
    site.publish(events(range(6), hanging=(3,)))
    assert [engine.wait_stopped(120) for engine in engines] == [1, 1]
    assert (ids(site.outputs()), ids(code_rows(site))) == ([0, 1, 2], [0, 1, 2])
    assert site.bad_events()[1:] == []
    assert all("on-hang is stop" in engine.log_tail() for engine in engines)


def test_an_upgrade_of_the_code_lifts_a_quarantine(made: Any) -> None:
    """The new code gets the events that follow, and decisions about the old code stay where they were."""
    site = made(project())
    (before,) = start(site, "one")
    site.publish(events(range(8), hanging=(1, 3, 5)))
    wait_until(lambda: len(site.bad_events()) >= 6, "the quarantine", 120)
    site.publish(events(range(8, 10)), "more.csv")
    site.wait_for_outputs(10)
    bad = site.bad_events()[1:]
    assert (sum("code-deadline" in line for line in bad), sum("code-quarantined" in line for line in bad)) == (3, 4)
    before.request_stop()
    before.wait_stopped()
    site.project.write_text(project(text=PYTHON.replace("(a|aa)+$", "a+$")))
    done = site.run("upgrade", str(site.project), *site.places[:2], "--prefix", site.prefix, "--empty")
    assert done.returncode == 0, done.stderr
    start(site, "one")
    site.publish(events(range(10, 13), hanging=(11,)), "last.csv")
    wait_until(lambda: len(code_rows(site)) >= 6, "the rows of the new code", 120)
    assert ids(code_rows(site)) == [0, 2, 4, 10, 11, 12]
    assert len(site.bad_events()[1:]) == 7


def test_a_quarantine_is_lifted_on_request(made: Any) -> None:
    """Both engines go on, and the code gets later events."""
    site = made(project())
    start(site, "one", "two")
    site.publish(events(range(8), hanging=(1, 3, 5)))
    wait_until(lambda: len(site.bad_events()) >= 6, "the quarantine", 200)
    wait_until(lambda: {site.cluster.role(name) for name in ("one", "two")} == {"active", "standby"}, "both engines run again", 60)
    group, processes = site.cluster.group, {name: each.process_id for name, each in site.cluster.members().items()}
    assert "sales/code, since decision 3" in site.run("quarantine", group, *site.places[:2]).stdout
    status = site.run("status", *site.places, "--group", group)
    assert "the code of window sales/code gets no events" in " ".join(status.stdout.split())
    assert site.run("quarantine", group, *site.places[:2], "--lift", "sales/kept").returncode == 2
    done = site.run("quarantine", group, *site.places[:2], "--lift", "sales/code")
    assert (done.returncode, done.stdout) == (0, f"{group}: the quarantine of sales/code is lifted\n"), done.stderr
    site.publish(events(range(8, 12)), "more.csv")
    wait_until(lambda: len(code_rows(site)) >= 7, "rows of the code", 60)
    assert ids(code_rows(site)) == [0, 2, 4, 8, 9, 10, 11]
    assert len(site.bad_events()[1:]) == 5
    assert {name: each.process_id for name, each in site.cluster.members().items()} == processes
    assert site.run("quarantine", group, *site.places[:2]).stdout == ""


def test_a_replay_refuses_the_event_as_a_group_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop.yaml").write_text(project())
    (tmp_path / "in.csv").write_text(events(range(6), hanging=(3,)))
    words = ("--in", "sales/orders=in.csv", "--out", "sales/code=code.csv", "--out", "sales/kept=kept.csv", "--bad", "bad.csv")
    done = hotspare("replay", "shop.yaml", *words, "--code-deadline-ms", "700")
    assert done.returncode == 0, done.stderr
    assert ids((tmp_path / "kept.csv").read_text().splitlines()) == list(range(6))
    assert ids((tmp_path / "code.csv").read_text().splitlines()) == [0, 1, 2, 4, 5]
    (bad,) = (tmp_path / "bad.csv").read_text().splitlines()[1:]
    assert "code-deadline" in bad and "in.csv" in bad
    assert "the replay begins again" in done.stderr
    assert "(line 5 of sales/code, in create) exceeds the deadline of a call" in done.stderr
    piped = hotspare("replay", "shop.yaml", *words[:2], "--out", "sales/kept=/dev/stdout", "--code-deadline-ms", "700")
    assert piped.returncode == 2 and "cannot be emptied" in piped.stderr


def test_lua_code_that_never_ends(made: Any) -> None:
    site = made(project("lua", LUA).replace("        events: create", "        steps-max: 1000000000000\n        events: create"))
    start(site, "one", "two")
    site.publish(events(range(5), hanging=(2,)))
    check(site, range(5), (2,))


def test_code_that_takes_all_memory(made: Any) -> None:
    site = made(project(text=GROWING))
    (site.folder / "settings.yaml").write_text("code-memory: 150MiB\n")
    start(
        site, "one", "two", options=(*WATCHED[:2], "--code-deadline-ms", "60000", "--settings", str(site.folder / "settings.yaml"))
    )
    site.publish(events(range(5), hanging=(2,)))
    wait_until(lambda: len(site.outputs()) >= 5, "all rows of the window beside", 120)
    _, bad = site.bad_events()
    assert "code-memory" in bad
    assert ids(code_rows(site)) == [0, 1, 3, 4]


def check_in_shards(site: Site, timeout_s: float) -> None:
    """Publishes 20 events of which one hangs. Rows of different shards have no order."""
    site.publish(events(range(20), hanging=(7,)), window=SOURCE)
    wait_until(lambda: len(site.outputs()) >= 20, "all rows of the window beside", timeout_s)
    wait_until(lambda: len(code_rows(site)) >= 19, "all other rows of the window with the code", timeout_s)
    assert sorted(ids(site.outputs())) == list(range(20))
    assert sorted(ids(code_rows(site))) == [n for n in range(20) if n != 7]
    _, bad = site.bad_events()
    assert "code-deadline" in bad


@pytest.mark.spark
def test_in_tasks_of_spark(made: Any) -> None:
    """Each task has a watcher of its own, and Spark's driver starts the task again."""
    options = ("--runner", "partitioned", "--master", "local[2]", "--snapshots", "500 milliseconds", "--shards", "2")
    site = made(project("python-columns", COLUMNS), options=options)
    site.cluster.group = group_name(site.prefix, "shop", Shard(0, 2))
    site.cluster.start_engine("one", *WATCHED)
    groups = [group_name(site.prefix, "shop", Shard(number, 2)) for number in range(2)]
    wait_until(lambda: all(site.cluster.coordination.leader(group).holder for group in groups), "engines of both shards", 120)
    check_in_shards(site, 200)


@pytest.mark.servers
def test_on_kafka_in_shards(made: Any, kafka: KafkaServers, zookeeper: Any, tmp_path: Path) -> None:
    """A process hosts two shards: an event of one of them ends both, and both continue. A call is for many rows at first."""
    options = ("--runner", "local", "--snapshots", "200 milliseconds", "--shards", "2")
    urls = {"bus_url": kafka.url, "coordination_url": f"{zookeeper.url}/{tmp_path.name}", "prefix": f"hang-{tmp_path.name}"}
    site = made(project("python-columns", COLUMNS), options=options, **urls)
    site.cluster.group = group_name(site.prefix, "shop", Shard(0, 2))
    start(site, "one", "two")
    check_in_shards(site, 120)

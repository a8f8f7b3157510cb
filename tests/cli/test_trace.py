"""`hotspare trace`: shows outputs of a group's windows, published or not, and changes nothing of the group (SPEC A40)."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from hotspare.bus.contract import FORMAT_HEADER, TICK, Outgoing, Partition
from hotspare.bus.sqlite import SqliteBus
from hotspare.coordination.open import default_coordination_url, open_coordination
from hotspare.formats.csv.rows import CsvStyle, row_texts
from hotspare.ha.effects.joining import agree_on_origin, agree_on_semantics, agree_on_skew, agreed_project
from hotspare.host.definition import project_identity
from hotspare.host.topics import group_topics
from hotspare.projects.load import load_text
from hotspare.stores.open import default_store_url, open_store
from tests.cases.case import ROW_SEPARATOR, Case, parse_case, raw_batches, run
from tests.cli.kept import FIRST, GROUP, PROJECT, SCRIPT, case, put_snapshots
from tests.cli.running import hotspare_here

MORE = "at 8 s orders: I,N,5,pen,7\nat 9 s tick\nat 10 s items: U,N,pen,6\nat 11 s tick\n"
WINDOWS = ("q/weighed", "q/recent")
"""A published window, and one that is not."""


def case_with_more() -> Case:
    return parse_case(f"{PROJECT}---\n{SCRIPT}{MORE}", "shop")


def url_of(folder: Path) -> str:
    return f"sqlite:///{folder / 'demo.db'}"


def recorded(folder: Path) -> Case:
    """Fills a bus with all messages of the case, and the facts that the first engine of a group agrees on."""
    known, now = case_with_more(), [0]
    resolved = load_text(PROJECT).resolved
    topics = group_topics(resolved.project, case().plan, "hotspare")
    names = {source.window: topic.name for source, topic in zip(resolved.sources, topics.inbound, strict=True)}
    with contextlib.ExitStack() as stack:
        bus = stack.enter_context(contextlib.closing(SqliteBus(folder / "demo.db", clock=lambda: now[0])))
        for name in names.values():
            bus.create_topic(name, 1)
        coordination = stack.enter_context(contextlib.closing(open_coordination(default_coordination_url(url_of(folder)))))
        agree_on_semantics(coordination, GROUP)
        agreed_project(coordination, GROUP, project_identity(resolved.project, case().plan))
        agree_on_skew(coordination, GROUP, 60_000)
        agree_on_origin(bus, coordination, GROUP, topics)
        for message in known.messages:
            now[0] = message.time_us
            value = message.value.replace(ROW_SEPARATOR, "\n").encode()
            for name in [names[message.source]] if message.source else names.values():
                bus.append(Partition(name, 0), [Outgoing(value, ((FORMAT_HEADER, b"csv"),)) if message.source else TICK])
    return known


def expected(known: Case, first: int) -> dict[str, list[str]]:
    """Returns the outputs of each window for the messages from number `first` on, by a run in which all are published."""
    batches = raw_batches(known)
    begin = {int(batch.column("topic")[0].as_py()): int(batch.column("offset")[0].as_py()) for batch in reversed(batches[first:])}
    other = parse_case(PROJECT.replace("sliding: 3}}", "sliding: 3}, publish: true}") + f"---\n{SCRIPT}{MORE}", "shop")
    found: dict[str, list[str]] = {}
    for stream, rows in run(other, [batches], restarts=False)[0]:
        where = zip(rows.column("hs:topic").to_pylist(), rows.column("hs:offset").to_pylist(), strict=True)
        for (topic, offset), row in zip(where, row_texts(rows, CsvStyle.EXACT), strict=True):
            if offset >= begin.get(topic, 1 << 40):
                found.setdefault(stream, []).append(row)
    assert "q/recent" not in known.plan.stream_schemas, "it is not published in the group"
    return {name: found[name] for name in WINDOWS}


def traced(folder: Path, *arguments: str, status: int = 0) -> str:
    done = hotspare_here("trace", GROUP, *WINDOWS, "--bus", url_of(folder), *arguments)
    assert done.returncode == status, done.stderr
    if not status:
        assert done.stderr.startswith("watches q/weighed, q/recent, with a state from ")
    return done.stdout if not status else done.stderr


def by_window(text: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        window, _, row = line.partition(": ")
        found.setdefault(window, []).append(row)
    return found


def test_from_the_origin_where_there_is_no_snapshot(tmp_path: Path) -> None:
    known = recorded(tmp_path)
    assert by_window(traced(tmp_path, "--since", "snapshot", "--to-end")) == expected(known, 0)


def test_from_the_newest_snapshot_that_can_be_used(tmp_path: Path) -> None:
    """The snapshot is of engines that do not publish all traced windows."""
    known = recorded(tmp_path)
    put_snapshots(open_store(default_store_url(url_of(tmp_path))))
    found = by_window(traced(tmp_path, "--since", "snapshot", "--to-end"))
    assert found == expected(known, len(case().messages))
    assert found["q/recent"]
    assert len(case().messages) > FIRST


def test_from_now_on_nothing_that_was_there_is_shown(tmp_path: Path) -> None:
    recorded(tmp_path)
    assert traced(tmp_path, "--to-end") == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((GROUP, "q/spend"), "did you mean 'q/spent'?"),
        (("hotspare.shopping", "q/spent"), "no group is called hotspare.shopping"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    recorded(tmp_path)
    done = hotspare_here("trace", *arguments, "--bus", url_of(tmp_path))
    assert done.returncode == 2
    assert message in done.stderr


def test_messages_that_are_gone_are_named(tmp_path: Path) -> None:
    """A state cannot be rebuilt from an incomplete history."""
    recorded(tmp_path)
    with contextlib.closing(SqliteBus(tmp_path / "demo.db")) as bus:
        bus.trim(Partition("hotspare.shop.q.orders.I", 0), 2)
    assert "no longer holds" in traced(tmp_path, status=1)

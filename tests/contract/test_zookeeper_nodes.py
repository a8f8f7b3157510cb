"""The nodes of ZooKeeper coordination: their content, who may read it, and how nodes of other programs are treated."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from kazoo.client import KazooClient

from hotspare.base.errors import CoordinationError, CoordinationSuspended, ProjectChanged, UsageError
from hotspare.coordination.zookeeper.coordination import NODE_BYTES_MAX, GroupPaths, ZooKeeperCoordination
from hotspare.coordination.zookeeper.url import parse_zookeeper_url
from hotspare.ha.effects import upgrading
from hotspare.ha.effects.joining import agree_on_semantics
from hotspare.ha.effects.upgrading import PROJECT, SEMANTICS
from hotspare.testing.zookeeper_server import ZooKeeperServer
from tests.contract.material import member
from tests.contract.zookeeper_doors import LONG_MS, PATIENT, WAIT_S, Doors


@pytest.fixture
def plain(zookeeper: ZooKeeperServer) -> Iterator[KazooClient]:
    """A plain ZooKeeper client without hotspare."""
    client = KazooClient(zookeeper.address)
    client.start(WAIT_S)
    yield client
    client.stop()
    client.close()


def test_the_nodes_can_be_looked_at(doors: Doors, plain: KazooClient) -> None:
    """SPEC C5: members are ephemeral sequential nodes, by name and in order, below a path of their own group (SPEC C7)."""
    one = doors.open()
    one.refresh_member("trading.trades", member("e1"))
    one.refresh_member("trading.trades", member("e.2/ü"))
    one.campaign("trading.trades", 0, member("e1"), LONG_MS)
    base = f"{doors.url.removeprefix(doors.server.url)}/groups/trading%2Etrades"
    names = sorted(plain.get_children(f"{base}/members"), key=lambda name: name[-10:])
    assert names == ["e1-0000000000", "e%2E2%2F%C3%BC-0000000001"]
    assert all(plain.exists(f"{base}/members/{name}").ephemeralOwner for name in names)
    assert b'"epoch":1,"holder":"e1"' in plain.get(f"{base}/role")[0]


def test_two_paths_never_meet(doors: Doors) -> None:
    one, other = doors.open(url=f"{doors.url}/one"), doors.open(url=f"{doors.url}/other")
    inside = doors.open(url=f"{doors.url}/one/groups/g")
    one.refresh_member("g", member("a"))
    assert one.campaign("g", 0, member("a"), LONG_MS) == 1
    assert (list(other.groups()), list(other.members("g")), other.leader("g").epoch) == ([], [], 0)
    assert other.campaign("g", 0, member("b"), LONG_MS) == 1
    assert inside.campaign("g", 0, member("c"), LONG_MS) == 1
    assert [c.leader("g").holder for c in (one, other, inside)] == ["a", "b", "c"]


def test_only_the_user_reads_and_writes_and_no_log_tells_the_password(
    doors: Doors, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("hunter2\n")
    caplog.set_level(logging.NOTSET)
    ours = doors.open(f"{PATIENT}&user=ops&password_file={secret}")
    assert ours.campaign("g", 0, member("a"), LONG_MS) == 1
    again = doors.open(f"{PATIENT}&user=ops&password=hunter2")
    assert again.leader("g").holder == "a"
    for options in (PATIENT, f"{PATIENT}&user=ops&password=wrong"):
        stranger = doors.open(options)
        for call in (
            lambda: stranger.leader("g"),  # noqa: B023
            lambda: stranger.campaign("g", 1, member("b"), LONG_MS),  # noqa: B023
        ):
            with pytest.raises(CoordinationError, match="zookeeper refuses access") as refused:
                call()
            assert not isinstance(refused.value, CoordinationSuspended)
    neighbour = doors.open(f"{PATIENT}&user=dev&password=other", url=f"{doors.server.url}/test/{uuid4().hex}")
    assert neighbour.campaign("g", 0, member("n"), LONG_MS) == 1
    assert "hunter2" not in caplog.text
    assert "hunter2" not in repr(parse_zookeeper_url("zookeeper://a?user=ops&password=hunter2"))


def test_what_does_not_fit_into_a_node(doors: Doors) -> None:
    one = doors.open()
    text, noise = b"x" * (20 * NODE_BYTES_MAX), random.Random(1).randbytes(NODE_BYTES_MAX + 1)
    assert one.set_fact_once("g", "long", text) == text
    assert one.fact("g", "long") == text
    with pytest.raises(UsageError, match="is too long for zookeeper"):
        one.set_fact_once("g", "noise", noise)
    many = member("a", detail={str(n): "x" * 100 for n in range(10_000)})
    one.refresh_member("g", many)
    assert replace(one.members("g")[0], seen_ms=0) == replace(many, detail={})
    with pytest.raises(UsageError, match="too long for zookeeper"):
        one.request_switchover("g", "x" * NODE_BYTES_MAX)


class Cut(Exception):
    """Raised where the command is interrupted."""


def test_a_group_with_more_facts_than_a_transaction_takes_is_forgotten_in_portions(
    doors: Doors, plain: KazooClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interrupted after any portion, the first facts are gone and the last ones exist, so that no engine takes it for a whole
    group."""
    one = doors.open(removed_at_once=600)
    one.campaign("g", 0, member("a"), LONG_MS)
    for name in (SEMANTICS, "upgrade-1", "upgrade-2", PROJECT):
        one.set_fact_once("g", name, b"x")
    facts = f"{doors.url.removeprefix(doors.server.url)}/groups/g/facts"
    for made in [plain.create_async(f"{facts}/{number}-{'x' * 900}", b"p") for number in range(1_300)]:
        made.get(WAIT_S)
    with pytest.raises(CoordinationSuspended):
        one._reset_group_once(GroupPaths(one._root, "g"), ())  # the old way: all in one transaction
    again = doors.open()
    for done, portions in enumerate((1, 1)):
        with monkeypatch.context() as patch:
            cut_after(patch, one, portions)
            with pytest.raises(Cut):
                upgrading.delete_group_facts(one, "g")
        left = set(plain.get_children(facts))
        assert len(left) == 1_302 - 600 * done
        assert (SEMANTICS in left, "upgrade-1" in left, PROJECT in left) == (False, False, True)
        with pytest.raises(ProjectChanged, match="is only partly deleted"):
            agree_on_semantics(again, "g")
    upgrading.delete_group_facts(one, "g")
    assert (plain.get_children(facts), one.leader("g").epoch, one.leader("g").holder) == ([], 1, "")


def cut_after(patch: pytest.MonkeyPatch, one: ZooKeeperCoordination, transactions: int) -> None:
    right, left = one._session.commit, [transactions]

    def commit(transaction: Any) -> list[Any]:
        if not left[0]:
            raise Cut
        left[0] -= 1
        return right(transaction)

    patch.setattr(one._session, "commit", commit)


@pytest.mark.parametrize("garbage", [b"", b"\xff", b"[]", b'{"format":2}', b'{"format":1}', b'{"format":1,"epoch":"x","y":1}'])
def test_nodes_that_others_wrote_are_not_believed(doors: Doors, plain: KazooClient, garbage: bytes) -> None:
    one = doors.open()
    one.refresh_member("g", member("a"))
    base = f"{doors.url.removeprefix(doors.server.url)}/groups/g"
    plain.create(f"{base}/role", garbage)
    plain.create(f"{base}/facts/origin", garbage)
    plain.create(f"{base}/members/strange", garbage)
    with pytest.raises(CoordinationError, match="holds data that this version of hotspare did not write"):
        one.leader("g")
    with pytest.raises(CoordinationError, match="did not write"):
        one.campaign("g", 0, member("a"), LONG_MS)
    with pytest.raises(CoordinationError, match="did not write"):
        one.fact("g", "origin")
    assert [m.engine for m in one.members("g")] == ["a"]

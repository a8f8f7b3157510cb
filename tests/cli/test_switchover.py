"""`hotspare switchover` against a real coordination file: a request ends with the command that made it (SPEC C3)."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from hotspare.base.shard import shards_of
from hotspare.bus.naming import group_name
from hotspare.bus.open import open_bus
from hotspare.coordination.contract import Coordination, Member
from hotspare.coordination.open import default_coordination_url, open_coordination
from hotspare.host.starting import STARTING
from hotspare.testing.cluster import hotspare_command, wait_until
from tests.cli.running import TIMEOUT_S, hotspare_here
from tests.cli.test_status import GROUP, member


@pytest.fixture
def bus_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'demo.db'}"


@pytest.fixture
def coordination(bus_url: str) -> Iterator[Coordination]:
    """Yields the coordination of an active engine e1 and two spares, none of which ever answers."""
    open_bus(bus_url).close()
    service = open_coordination(default_coordination_url(bus_url))
    for engine in ("e1", "e2", "e3"):
        service.refresh_member(GROUP, member(engine, "active" if engine == "e1" else "standby", os.getpid()))
    assert service.campaign(GROUP, 0, member("e1", "active", os.getpid()), 3_600_000) == 1
    yield service
    service.close()


def test_a_switch_over_that_failed_is_not_asked_for_any_more(coordination: Coordination, bus_url: str) -> None:
    done = hotspare_here("switchover", GROUP, "--bus", bus_url, "--timeout-s", "0.2")
    assert done.returncode == 2
    assert "HS-0100 no other engine became active within 0.2 s" in done.stderr
    assert coordination.requested_successor(GROUP) is None


def test_without_a_spare_it_is_refused_at_once(coordination: Coordination, bus_url: str) -> None:
    for engine in ("e2", "e3"):
        coordination.remove_member(GROUP, engine)
    done = hotspare_here("switchover", "shop", "--bus", bus_url, "--timeout-s", "3600")
    assert done.returncode == 2
    assert "group p.shop has no spare" in done.stderr
    coordination.refresh_member(GROUP, Member("e2", "", 1, 1, "", "", "", "", "joining", {}, {STARTING: "Spark"}))
    done = hotspare_here("switchover", "shop", "--bus", bus_url, "--timeout-s", "3600")
    assert "group p.shop has no spare" in done.stderr and "one is starting" in done.stderr
    assert coordination.requested_successor(GROUP) is None


def test_only_the_engine_that_was_named_counts(coordination: Coordination, bus_url: str) -> None:
    for winner, status in (("e3", 2), ("e2", 0)):
        epoch = coordination.leader(GROUP).epoch
        arguments = hotspare_command("switchover", GROUP, "--bus", bus_url, "--to", "e2", "--timeout-s", str(TIMEOUT_S))
        with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            wait_until(lambda: coordination.requested_successor(GROUP) == "e2", "the request", TIMEOUT_S)
            assert coordination.campaign(GROUP, epoch, member(winner, "active", os.getpid()), 3_600_000) == epoch + 1
            out, err = process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == status, (out, err)
        assert winner in (out if status == 0 else err)


@pytest.mark.parametrize(("asked", "text"), [("e2", "a switch-over to e2 is requested"), ("", "to any spare is requested")])
def test_status_shows_a_standing_request(coordination: Coordination, bus_url: str, asked: str, text: str) -> None:
    assert "switch-over" not in hotspare_here("status", "--bus", bus_url).stdout
    coordination.request_switchover(GROUP, asked)
    assert text in hotspare_here("status", "--bus", bus_url).stdout
    (group,) = json.loads(hotspare_here("status", "--bus", bus_url, "--json").stdout)["groups"]
    assert group["switchover_asked"] == asked


def test_where_coordination_is_named_the_bus_is_not_asked(coordination: Coordination, bus_url: str) -> None:
    where = ("--bus", "kafka://127.0.0.1:9", "--coordination", default_coordination_url(bus_url))
    assert "no other engine became active" in hotspare_here("switchover", GROUP, *where, "--timeout-s", "0.2").stderr
    assert coordination.requested_successor(GROUP) is None


def test_a_project_in_shards_is_moved_as_a_whole_or_spread(coordination: Coordination, bus_url: str) -> None:
    groups = [f"p.divided/{number}" for number in range(2)]
    for group in groups:
        for engine in ("e1", "e2"):
            coordination.refresh_member(group, member(engine, "active" if engine == "e1" else "standby", os.getpid()))
        assert coordination.campaign(group, 0, member("e1", "active", os.getpid()), 3_600_000) == 1
    done = hotspare_here("switchover", "p.divided", "--bus", bus_url, "--to", "e1")
    assert done.stdout.splitlines() == [f"{group}: e1 is active already" for group in groups]
    arguments = hotspare_command("switchover", "p.divided", "--bus", bus_url, "--spread", "--timeout-s", str(TIMEOUT_S))
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        wait_until(lambda: coordination.requested_successor(groups[0]) == "e2", "the request", TIMEOUT_S)
        assert coordination.campaign(groups[0], 1, member("e2", "active", os.getpid()), 3_600_000) == 2
        out, err = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, err) == (0, "")
    assert out == f"{groups[0]}: e2 is active under epoch 2, after e1\n"
    assert coordination.requested_successor(groups[1]) is None
    assert hotspare_here("switchover", "p.divided", "--bus", bus_url, "--spread").stdout == "every engine has its share already\n"
    refused = hotspare_here("switchover", "p.divided", "--bus", bus_url, "--spread", "--to", "e2")
    assert (refused.returncode, "--spread and --to contradict each other" in refused.stderr) == (2, True)


@pytest.fixture
def divided(coordination: Coordination) -> list[str]:
    """Returns three shards: application `east` is active for all, and `west` lacks the last one."""
    groups = [group_name("hotspare", "shop", shard) for shard in shards_of(3)]
    for number, group in enumerate(groups):
        for application in ("east", "west")[: 2 if number < 2 else 1]:
            name = f"{application}-{number}"
            own = Member(name, "", 1, 1, "", "", "", "", "standby", {}, {"application": application})
            coordination.refresh_member(group, own)
            if application == "east":
                assert coordination.campaign(group, 0, own, 3_600_000) == 1
    return groups


def test_an_application_or_single_shards_are_asked_for(divided: list[str], bus_url: str) -> None:
    """SPEC K9: no engine follows the request here, so the command names the group for which it is in vain."""
    whole, *rest = divided[0].rpartition("/")[0], "--bus", bus_url, "--timeout-s", "0.2"
    done = hotspare_here("switchover", whole, *rest, "--application", "east")
    assert (done.returncode, done.stdout) == (0, "east is active already\n")
    done = hotspare_here("switchover", whole, *rest, "--application", "west")
    assert "application west has no spare of group hotspare.shop/2" in done.stderr
    done = hotspare_here("switchover", whole, *rest, "--application", "west", "--shard", "1")
    assert "no other engine became active" in done.stderr
    done = hotspare_here("switchover", whole, *rest, "--shard", "4")
    assert "there is no shard 4" in done.stderr and "shards: 0, 1, 2" in done.stderr
    done = hotspare_here("switchover", whole, *rest, "--application", "west", "--to", "x")
    assert "--to and --application contradict each other" in done.stderr


def test_the_engine_of_an_application_is_named_in_the_request(divided: list[str], bus_url: str, coordination: Coordination) -> None:
    whole = divided[0].rpartition("/")[0]
    arguments = hotspare_command(
        "switchover", whole, "--bus", bus_url, "--application", "west", "--shard", "1", "--timeout-s", str(TIMEOUT_S)
    )
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        wait_until(lambda: coordination.requested_successor(divided[1]) == "west-1", "the request", TIMEOUT_S)
        assert coordination.release(divided[1], 1, "east-1", "west-1")
        west = next(each for each in coordination.members(divided[1]) if each.engine == "west-1")
        assert coordination.campaign(divided[1], 1, west, 3_600_000) == 2
        said, _ = running.communicate(timeout=TIMEOUT_S)
    assert said == "west-1 is active under epoch 2, after east-1\n"

"""The failures between the hosts of a Spark cluster: a worker, with the executor on it, does not reach the driver of its
application, or ZooKeeper, or the broker, while all other links work (SPEC K9).

Packets on the cut link are lost silently. Only the worker is cut off, so each other process has to find out by itself.
"""

from __future__ import annotations

from random import Random

from hotspare.base.processes import has_process_ended
from hotspare.coordination.contract import Member
from hotspare.demo.applications import ApplicationsDemo
from hotspare.demo.servers import BUS_HOST, COORDINATION_HOST
from hotspare.testing.applications import StrikeRecord, application_of, executor_of
from hotspare.testing.cluster import wait_until
from hotspare.testing.hosts import Host, Network
from tests.e2e.chaos.application_scenarios import TIMEOUT_S, ApplicationScenario
from tests.e2e.chaos.scenarios import Needs, pass_time

_LOOK_S = 0.1
_AWAY_S = (2.0, 8.0)


def network_of(demo: ApplicationsDemo) -> Network:
    network = demo.options.site.network
    assert network is not None
    return network


def a_worker_is_cut_off_from_the_driver_only(demo: ApplicationsDemo, random: Random) -> None:
    """Its task goes on publishing until its lease expires, and ends itself; its driver starts it elsewhere."""
    member, struck = _cut_off(demo, random, "")
    wait_until(lambda: has_process_ended(member.process_id, member.process_start), "its task ends itself", TIMEOUT_S, _LOOK_S)
    demo.wait_for_newer_epochs({shard: leader.epoch for shard, leader in struck.leaders.items()}, "output of the other application")
    _come_back(demo, member, random)


def a_worker_is_cut_off_from_zookeeper_only(demo: ApplicationsDemo, random: Random) -> None:
    """Its leases expire for the others, so they take over; it gives way when the bus refuses it."""
    member, struck = _cut_off(demo, random, COORDINATION_HOST)
    demo.record_takeovers("a worker without ZooKeeper, of", struck)
    _come_back(demo, member, random)


def a_worker_is_cut_off_from_the_broker_only(demo: ApplicationsDemo, random: Random) -> None:
    member, struck = _cut_off(demo, random, BUS_HOST)
    demo.record_takeovers("a worker without the broker, of", struck)
    _come_back(demo, member, random)


def _cut_off(demo: ApplicationsDemo, random: Random, server: str) -> tuple[Member, StrikeRecord]:
    """Cuts the worker with most active shards off from that host, or from its driver if `server` is ""; returns one of its engines,
    and its active shards."""
    pass_time(random.uniform(0, 2))
    network, target = network_of(demo), demo.applications.busiest_place(executor_of)
    struck = target.record_strike()
    network.cut_links(_worker_of(demo, target.member), network.host(server or application_of(target.member)))
    return target.member, struck


def _worker_of(demo: ApplicationsDemo, member: Member) -> Host:
    return network_of(demo).host(member.host)


def _come_back(demo: ApplicationsDemo, member: Member, random: Random) -> None:
    demo.wait_for_output()
    pass_time(random.uniform(*_AWAY_S))
    network_of(demo).remove_faults(_worker_of(demo, member))
    demo.wait_both_hosted()
    demo.wait_for_output()


WORKER_SCENARIOS = (
    ApplicationScenario("A10", a_worker_is_cut_off_from_the_driver_only, needs=Needs.HOSTS),
    ApplicationScenario("A11", a_worker_is_cut_off_from_zookeeper_only, needs=Needs.HOSTS),
    ApplicationScenario("A12", a_worker_is_cut_off_from_the_broker_only, needs=Needs.HOSTS),
)

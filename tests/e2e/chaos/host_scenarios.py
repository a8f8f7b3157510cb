"""The failures between hosts, each as a scenario: engines, broker and ZooKeeper on hosts of their own, and failing links.

The name of a scenario tells whose link fails. To an engine, silent loss looks like a dead machine, and a refusal like a dead
process. Neither is proof, so neither may cost more than a takeover.
"""

from __future__ import annotations

from random import Random

from hotspare.demo.faults import Fault
from hotspare.demo.scenario import Demo
from hotspare.demo.servers import BUS_HOST, COORDINATION_HOST
from hotspare.testing.cluster import SpawnedEngine, wait_until
from hotspare.testing.hosts import Host, Network
from tests.e2e.chaos.scenarios import TIMEOUT_S, Needs, Scenario, active_of, pass_time, restart, spare_of, wait_for_output

IDLE_S = 60.0


def network_of(demo: Demo) -> Network:
    network = demo.options.site.network
    assert network is not None
    return network


def host_of(demo: Demo, engine: SpawnedEngine) -> Host:
    return demo.options.site.places[engine.name]


def epoch_of(demo: Demo) -> int:
    return demo.cluster.leader().epoch


def _is_spare(demo: Demo, engine: SpawnedEngine) -> bool:
    member = demo.cluster.members().get(engine.name)
    return member is not None and member.role == "standby" and member.process_id == engine.process.pid


def _taken_over(demo: Demo, engine: SpawnedEngine, epoch: int) -> None:
    """Waits for output of another engine."""
    wait_until(lambda: demo.first_output_after(epoch) is not None, f"output of another engine than {engine.name}", TIMEOUT_S)
    assert active_of(demo).name != engine.name


def _is_spare_again(demo: Demo, engine: SpawnedEngine) -> None:
    wait_until(lambda: _is_spare(demo, engine), f"{engine.name} is a spare", TIMEOUT_S)
    assert engine.is_running


def hosts_that_idle_keep_their_epoch(demo: Demo, _: Random) -> None:
    epoch = epoch_of(demo)
    demo.sampler.pause_writing()
    pass_time(IDLE_S)
    demo.sampler.resume_writing()
    wait_for_output(demo)
    assert epoch_of(demo) == epoch


def the_host_of_the_active_is_cut_off_and_comes_back(demo: Demo, random: Random) -> None:
    pass_time(random.uniform(0, 1))
    network, engine, epoch = network_of(demo), active_of(demo), epoch_of(demo)
    network.cut_links(host_of(demo, engine))
    _taken_over(demo, engine, epoch)
    network.remove_faults(host_of(demo, engine))
    _is_spare_again(demo, engine)
    wait_for_output(demo)
    assert epoch_of(demo) == epoch + 1, "whoever comes back is a spare"


def the_host_of_a_spare_is_cut_off_and_comes_back(demo: Demo, random: Random) -> None:
    network, engine, epoch = network_of(demo), spare_of(demo), epoch_of(demo)
    network.cut_links(host_of(demo, engine))
    pass_time(random.uniform(2, 5))
    wait_for_output(demo)
    network.remove_faults(host_of(demo, engine))
    _is_spare_again(demo, engine)
    wait_for_output(demo)
    assert epoch_of(demo) == epoch, "the active went on"


def the_active_loses_zookeeper_only(demo: Demo, random: Random) -> None:
    """Its lease expires for the others, so one of them takes over; it gives way when the bus refuses it."""
    _loses_a_server(demo, random, COORDINATION_HOST)


def the_active_loses_kafka_only(demo: Demo, random: Random) -> None:
    _loses_a_server(demo, random, BUS_HOST)


def _loses_a_server(demo: Demo, random: Random, server: str) -> None:
    pass_time(random.uniform(0, 1))
    network, engine, epoch = network_of(demo), active_of(demo), epoch_of(demo)
    network.cut_links(host_of(demo, engine), network.host(server))
    _taken_over(demo, engine, epoch)
    wait_for_output(demo)
    assert epoch_of(demo) == epoch + 1, "one takeover"
    network.remove_faults(host_of(demo, engine))
    _is_spare_again(demo, engine)


def a_spare_loses_zookeeper_only(demo: Demo, random: Random) -> None:
    network, engine, epoch = network_of(demo), spare_of(demo), epoch_of(demo)
    network.cut_links(host_of(demo, engine), network.host(COORDINATION_HOST))
    pass_time(random.uniform(1, 4))
    wait_for_output(demo)
    network.remove_faults(host_of(demo, engine))
    _is_spare_again(demo, engine)
    assert epoch_of(demo) == epoch


def peers_do_not_hear_each_other(demo: Demo, random: Random) -> None:
    network, epoch = network_of(demo), epoch_of(demo)
    network.cut_links(host_of(demo, active_of(demo)), host_of(demo, spare_of(demo)))
    pass_time(random.uniform(3, 6))
    wait_for_output(demo)
    network.remove_faults(host_of(demo, active_of(demo)))
    network.remove_faults(host_of(demo, spare_of(demo)))
    wait_for_output(demo)
    assert epoch_of(demo) == epoch, "the lease decides, and it is kept"


def peers_refuse_each_other(demo: Demo, random: Random) -> None:
    network, epoch = network_of(demo), epoch_of(demo)
    first, second = host_of(demo, active_of(demo)), host_of(demo, spare_of(demo))
    network.refuse_connections(first, second)
    pass_time(random.uniform(6, 10))
    wait_for_output(demo)
    network.remove_faults(first)
    wait_for_output(demo)
    assert epoch_of(demo) <= epoch + 1, "one takeover at most: what repeats is damped"
    demo.cluster.wait_ready()


def links_lose_packets(demo: Demo, random: Random) -> None:
    network = network_of(demo)
    hosts = list(demo.options.site.places.values())
    for host in hosts:
        network.lose_packets(host, percent=random.randint(2, 8))
    pass_time(random.uniform(3, 6))
    wait_for_output(demo)
    for host in hosts:
        network.remove_faults(host)
    wait_for_output(demo)
    demo.cluster.wait_ready()


def a_host_is_gone_without_a_sign(demo: Demo, random: Random) -> None:
    """Its host sends no packet any more, and its process dies unnoticed."""
    network = network_of(demo)

    def vanish(engine: SpawnedEngine) -> None:
        network.cut_links(host_of(demo, engine))
        engine.kill()

    pass_time(random.uniform(0, 2))
    gap = demo.strike_by(Fault.HOST_GONE, vanish)
    victim = demo.cluster.engines[gap.victim]
    network.remove_faults(host_of(demo, victim))
    restart(demo, victim)


def a_second_engine_of_one_name_on_another_host_is_refused(demo: Demo, _: Random) -> None:
    epoch, active = epoch_of(demo), active_of(demo)
    other = network_of(demo).host("stranger")
    twin = demo.cluster.start_twin(active.name, other)
    assert twin.wait_stopped(TIMEOUT_S) != 0, twin.log_tail()
    assert active.name in twin.log_tail()
    assert "HS-" in twin.log_tail(), "a refusal with its code"
    wait_for_output(demo)
    assert epoch_of(demo) == epoch
    demo.cluster.wait_ready()


def a_store_that_hosts_do_not_share_is_refused(demo: Demo, _: Random) -> None:
    spare = spare_of(demo)
    spare.kill()
    own = (demo.options.folder / "not-shared").as_uri()
    refused = demo.cluster.start_engine(spare.name, "--store", own)
    assert refused.wait_stopped(TIMEOUT_S) != 0, refused.log_tail()
    assert "store" in refused.log_tail()
    restart(demo, refused)


HOST_SCENARIOS = (
    Scenario("H1", hosts_that_idle_keep_their_epoch, needs=Needs.HOSTS),
    Scenario("H2", the_host_of_the_active_is_cut_off_and_comes_back, needs=Needs.HOSTS, is_short=True),
    Scenario("H3", the_host_of_a_spare_is_cut_off_and_comes_back, needs=Needs.HOSTS),
    Scenario("H4", the_active_loses_zookeeper_only, needs=Needs.HOSTS, is_short=True),
    Scenario("H5", the_active_loses_kafka_only, needs=Needs.HOSTS, is_short=True),
    Scenario("H6", a_spare_loses_zookeeper_only, needs=Needs.HOSTS),
    Scenario("H7", peers_do_not_hear_each_other, needs=Needs.HOSTS, is_short=True),
    Scenario("H8", peers_refuse_each_other, needs=Needs.HOSTS, is_short=True),
    Scenario("H9", links_lose_packets, needs=Needs.HOSTS),
    Scenario("H10", a_host_is_gone_without_a_sign, needs=Needs.HOSTS, is_short=True),
    Scenario("H11", a_second_engine_of_one_name_on_another_host_is_refused, needs=Needs.HOSTS, is_short=True),
    Scenario("H12", a_store_that_hosts_do_not_share_is_refused, needs=Needs.HOSTS, is_short=True),
)

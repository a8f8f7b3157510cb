"""Real Kafka brokers (KRaft, one or three nodes), which can be killed, frozen, stopped and started one by one.

They run on this machine or on hosts of a test network. Each is a JVM that ends when this process ends, also after `kill -9`.
`Secured` creates the files for brokers with TLS and a password.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from hotspare.base.errors import ClusterError
from hotspare.runners.spark.jre import find_java
from hotspare.testing.kafka_jars import class_path
from hotspare.testing.server_process import LOOPBACK, Machine, ServerProcess, free_ports

if TYPE_CHECKING:
    from confluent_kafka.admin import ClusterMetadata  # type: ignore[attr-defined]


class Compilers(Enum):
    """The compilers of a broker's JVM. With FIRST the broker starts quickly and needs little CPU for compiling; with BOTH it is
    faster after a minute."""

    FIRST = "first"
    BOTH = "both"


@dataclass(frozen=True, slots=True)
class BrokerTuning:
    """The options of all brokers of a cluster. `settings` override the defaults in `server.properties`."""

    settings: Mapping[str, str | int] = field(default_factory=dict)
    compilers: Compilers = Compilers.FIRST


TEST_TUNING = BrokerTuning()
_LISTENER = "SASL_SSL"
_PLAIN_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule"

START_TIMEOUT_S = 120.0
_START_ATTEMPTS = 3
_POLL_S = 0.02
_LOG_TAIL_LENGTH = 2_000
_JVM_OPTIONS = ("-Xmx256m", "-Xms64m", "-XX:+UseSerialGC", "-XX:-UsePerfData")
_FIRST_COMPILER = "-XX:TieredStopAtLevel=1"
_CLUSTER_ID = "aG90c3BhcmUtdGVzdC1rYQ"

_LOG_SETTINGS = """<Configuration status="error"><Appenders><Console name="out"><PatternLayout pattern="%d %p %c: %m%n"/></Console>
</Appenders><Loggers><Root level="warn"><AppenderRef ref="out"/></Root></Loggers></Configuration>
"""

_SILENT = logging.getLogger("hotspare.testing.kafka")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False


class KafkaBroker(ServerProcess):
    """A Kafka node that is both broker and controller. `number` counts from 1; `place` is its machine."""

    def __init__(self, number: int, place: Machine, ports: tuple[int, int], folder: Path, secured: Secured | None = None) -> None:
        super().__init__("broker", (), folder)
        self.place = place
        self.number = number
        self.port, self.controller_port = ports
        self.folder = folder
        self.secured = secured

    @property
    def address(self) -> str:
        return f"{self.place.address}:{self.port}"


class KafkaServers:
    """A cluster of one or three brokers. `bootstrap` is `host:port[,host:port ...]` and does not change when brokers are stopped or
    restarted."""

    def __init__(self, brokers: tuple[KafkaBroker, ...], secured: Secured | None = None) -> None:
        self.brokers = brokers
        self._secured = secured
        self.bootstrap = ",".join(broker.address for broker in brokers)

    @classmethod
    def start(
        cls,
        folder: Path,
        brokers: int = 1,
        secured: Secured | None = None,
        places: Sequence[Machine] = (),
        tuning: BrokerTuning = TEST_TUNING,
    ) -> KafkaServers:
        """Starts new brokers that keep their data in `folder`, and returns when all of them answer. Raises ClusterError if one does
        not.

        If `secured` is given, clients need TLS and its password. `places`: the brokers' machines, by default this machine.
        Topics of three brokers have three replicas by default, and a message counts only when two replicas have it.
        """
        for attempt in range(_START_ATTEMPTS):
            servers = cls(_layout(folder / f"kafka-{attempt}", tuple(places) or (LOOPBACK,) * brokers, secured, tuning), secured)
            try:
                for broker in servers.brokers:
                    broker.launch()
                servers.wait_ready()
            except ClusterError as error:
                servers.stop()
                if attempt + 1 == _START_ATTEMPTS or "Address already in use" not in error.detail:
                    raise
            except BaseException:
                servers.stop()
                raise
            else:
                return servers
        raise AssertionError

    @property
    def url(self) -> str:
        """The URL for `--bus`, including the password of `secured`."""
        plain = f"kafka://{self.bootstrap}"
        return plain if self._secured is None else f"{plain}?{self._secured.url_query()}"

    def broker(self, number: int) -> KafkaBroker:
        return self.brokers[number - 1]

    def kill(self, number: int) -> None:
        """Kills a broker by SIGKILL, which also ends a frozen one."""
        self.broker(number).kill()

    def freeze(self, number: int) -> None:
        self.broker(number).freeze()

    def thaw(self, number: int) -> None:
        self.broker(number).thaw()

    def restart(self, number: int) -> None:
        """Starts a killed or stopped broker again, on its port and its data.
        Returns when all running brokers answer and this broker is in sync: only then may another one be killed.
        """
        self.broker(number).launch()
        self.wait_ready()
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._has_caught_up(number):
            _check_starting(self.broker(number), deadline)
            time.sleep(_POLL_S)

    def wait_ready(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Waits until every started broker answers and knows all others. Raises ClusterError with the log of a broker that ended,
        or does not answer within `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        started = [broker for broker in self.brokers if broker.was_launched]
        for broker in started:
            while not _listens(broker):
                _check_starting(broker, deadline)
                time.sleep(_POLL_S)
        while any(self._brokers_seen_by(broker) != {b.number for b in started} for broker in started):
            for broker in started:
                _check_starting(broker, deadline)
            time.sleep(_POLL_S)

    def _brokers_seen_by(self, broker: KafkaBroker) -> set[int]:
        """Returns the numbers of the running brokers in the metadata of `broker`; empty if it does not answer."""
        known = _metadata(broker)
        return set() if known is None else set(known.brokers)

    def _has_caught_up(self, number: int) -> bool:
        """Whether every running broker answers and reports broker `number` as an in-sync replica of all partitions that it
        replicates."""
        seen = [_metadata(broker) for broker in self.brokers if broker.is_running]
        partitions = [p for m in seen if m is not None for topic in m.topics.values() for p in topic.partitions.values()]
        return None not in seen and all(number in p.isrs for p in partitions if number in p.replicas)

    def stop(self) -> None:
        """Kills all brokers; their data remains in the folder."""
        for broker in self.brokers:
            broker.kill()

    def __enter__(self) -> KafkaServers:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


@dataclass(frozen=True, slots=True)
class Secured:
    """The files and settings of test brokers that require TLS and a password. Clients and brokers use the same name and password;
    clients must trust `certificate`."""

    username: str
    password: str = field(repr=False)
    key_store: Path
    certificate: Path

    @classmethod
    def create(cls, folder: Path) -> Secured:
        """Creates a key and a certificate for 127.0.0.1 in `folder`, and a password. Raises ClusterError if Java's keytool is
        missing or fails."""
        made = cls("hotspare", secrets.token_urlsafe(), folder / "broker.p12", folder / "broker.pem")
        store = ["-keystore", str(made.key_store), "-storetype", "PKCS12", "-storepass", made.password, "-alias", "broker"]
        subject = ["-dname", "CN=127.0.0.1", "-ext", "SAN=IP:127.0.0.1", "-validity", "2"]
        _keytool("-genkeypair", "-keyalg", "RSA", "-keysize", "2048", *subject, *store)
        _keytool("-exportcert", "-rfc", "-file", str(made.certificate), *store)
        return made

    @property
    def listener(self) -> str:
        return _LISTENER

    def broker_settings(self) -> dict[str, str]:
        """Returns the settings for `server.properties` of a broker."""
        login = (
            f'{_PLAIN_LOGIN} required username="{self.username}" password="{self.password}" user_{self.username}="{self.password}";'
        )
        return {
            "listener.security.protocol.map": f"CONTROLLER:PLAINTEXT,{_LISTENER}:{_LISTENER}",
            "inter.broker.listener.name": _LISTENER,
            "sasl.enabled.mechanisms": "PLAIN",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            f"listener.name.{_LISTENER.lower()}.plain.sasl.jaas.config": login,
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": str(self.key_store),
            "ssl.keystore.password": self.password,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.certificate),
        }

    def client_options(self) -> dict[str, str]:
        """Returns the options that a client needs, by their names in librdkafka."""
        return {
            "security.protocol": _LISTENER,
            "sasl.mechanism": "PLAIN",
            "sasl.username": self.username,
            "sasl.password": self.password,
            "ssl.ca.location": str(self.certificate),
        }

    def url_query(self) -> str:
        """Returns the options that a client needs, as the query of a bus URL."""
        return urlencode(self.client_options())


def _metadata(broker: KafkaBroker) -> ClusterMetadata | None:
    """Returns the broker's metadata of the cluster; None if it does not answer."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    options = {} if broker.secured is None else broker.secured.client_options()
    with contextlib.suppress(KafkaException):
        return AdminClient({"bootstrap.servers": broker.address, **options}, logger=_SILENT).list_topics(timeout=5)
    return None


def _check_starting(broker: KafkaBroker, deadline: float) -> None:
    if not broker.is_running:
        raise ClusterError(f"kafka broker {broker.number} ended while it started", detail=broker.log_tail())
    if time.monotonic() > deadline:
        raise ClusterError(f"kafka broker {broker.number} did not start in time", detail=broker.log_tail())


def _listens(broker: KafkaBroker) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((broker.place.address, broker.port)) == 0


def _layout(folder: Path, places: Sequence[Machine], secured: Secured | None, tuning: BrokerTuning) -> tuple[KafkaBroker, ...]:
    """Returns the brokers of a new cluster, not started, after creating their settings and formatted data in `folder`, which must
    not exist."""
    if folder.exists():
        raise ClusterError(f"{folder} exists already", hint="use a separate folder for each cluster")
    ports = free_ports(2 * len(places))
    brokers = tuple(
        KafkaBroker(number, place, (ports[2 * number - 2], ports[2 * number - 1]), folder / f"broker-{number}", secured)
        for number, place in enumerate(places, 1)
    )
    compilers = () if tuning.compilers is Compilers.BOTH else (_FIRST_COMPILER,)
    java = (str(find_java()), *_JVM_OPTIONS, *compilers, "-cp", class_path())
    for broker in brokers:
        (broker.folder / "data").mkdir(parents=True)
        (broker.folder / "log4j2.xml").write_text(_LOG_SETTINGS)
        settings = broker.folder / "server.properties"
        settings.touch(0o600)
        settings.write_text("".join(f"{key}={value}\n" for key, value in {**_settings(broker, brokers), **tuning.settings}.items()))
        logging_file = f"-Dlog4j2.configurationFile={broker.folder / 'log4j2.xml'}"
        broker.command = tuple(broker.place.command((java[0], logging_file, *java[1:], "kafka.Kafka", str(settings))))
    _format(java, brokers)
    return brokers


def _settings(broker: KafkaBroker, brokers: tuple[KafkaBroker, ...]) -> dict[str, str | int]:
    copies = min(3, len(brokers))
    in_sync = max(1, copies - 1)
    kind = "PLAINTEXT" if broker.secured is None else broker.secured.listener
    listener, controller = f"{kind}://{broker.address}", f"CONTROLLER://{broker.place.address}:{broker.controller_port}"
    return {
        "process.roles": "broker,controller",
        "node.id": broker.number,
        "controller.quorum.voters": ",".join(f"{b.number}@{b.place.address}:{b.controller_port}" for b in brokers),
        "controller.listener.names": "CONTROLLER",
        "listeners": f"{listener},{controller}",
        "advertised.listeners": listener,
        "log.dirs": str(broker.folder / "data"),
        "auto.create.topics.enable": "false",
        "num.partitions": 1,
        "default.replication.factor": copies,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": copies,
        "offsets.topic.num.partitions": 1,
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": in_sync,
        "transaction.state.log.num.partitions": 4,
        "group.initial.rebalance.delay.ms": 0,
        "group.coordinator.threads": 1,
        "log.cleaner.dedupe.buffer.size": 4 << 20,
        "log.retention.check.interval.ms": 30_000,
        # A dead broker's partitions move after this long; a busy machine of two cores must not lose a live one.
        "broker.session.timeout.ms": 3_000,
        "broker.heartbeat.interval.ms": 500,
        "replica.lag.time.max.ms": 5_000,
        **({} if broker.secured is None else broker.secured.broker_settings()),
    }


def _format(java: tuple[str, ...], brokers: tuple[KafkaBroker, ...]) -> None:
    """Formats the first broker's data folder by Kafka's tool, and copies the result for the others, which saves two JVMs."""
    first = brokers[0]
    settings = str(first.folder / "server.properties")
    done = subprocess.run(  # noqa: S603 - our own command
        [*java, "kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID, "-c", settings],
        capture_output=True,
        text=True,
        timeout=START_TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        raise ClusterError("kafka's data folder could not be formatted", detail=(done.stderr + done.stdout)[-_LOG_TAIL_LENGTH:])
    for broker in brokers[1:]:
        shutil.copyfile(first.folder / "data" / "bootstrap.checkpoint", broker.folder / "data" / "bootstrap.checkpoint")
        properties = f"version=1\ncluster.id={_CLUSTER_ID}\nnode.id={broker.number}\n"
        (broker.folder / "data" / "meta.properties").write_text(properties)


def _keytool(*arguments: str) -> None:
    tool = find_java().parent / "keytool"
    try:
        subprocess.run([str(tool), *arguments], capture_output=True, text=True, timeout=60, check=True)  # noqa: S603 - our own command
    except FileNotFoundError as error:
        raise ClusterError("this java has no keytool, so no certificate can be created", detail=str(tool)) from error
    except subprocess.CalledProcessError as error:
        raise ClusterError("a certificate could not be created", detail=f"keytool ended with {error.returncode}") from None

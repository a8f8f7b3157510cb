"""The brokers for tests and development: real ones, killed and restarted one by one, and ended with their parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from hotspare.base.errors import ClusterError, RunnerError
from hotspare.runners.spark.jars import Jar
from hotspare.testing import kafka_jars
from hotspare.testing.kafka_server import KafkaServers

pytestmark = pytest.mark.servers

_OWNER = """
import sys
from pathlib import Path
from hotspare.testing.kafka_server import KafkaServers
servers = KafkaServers.start(Path(sys.argv[1]))
print(servers.broker(1).process_id, flush=True)
sys.stdin.read()
"""


def known_brokers(servers: KafkaServers) -> set[int]:
    from confluent_kafka.admin import AdminClient

    return set(AdminClient({"bootstrap.servers": servers.bootstrap}).list_topics(timeout=30).brokers)


def test_a_broker_answers_and_comes_back_after_a_kill(tmp_path: Path) -> None:
    with KafkaServers.start(tmp_path) as servers:
        assert known_brokers(servers) == {1}
        before = servers.broker(1).process_id
        assert before
        with pytest.raises(ClusterError, match="runs already"):
            servers.restart(1)
        servers.kill(1)
        assert not servers.broker(1).is_running
        assert not psutil.pid_exists(before)
        servers.restart(1)
        assert known_brokers(servers) == {1}
        last = servers.broker(1).process_id
        assert last
    assert not psutil.pid_exists(last)


def test_brokers_end_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", _OWNER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        assert owner.stdout is not None
        broker = psutil.Process(int(owner.stdout.readline()))
        assert broker.is_running()
    finally:
        owner.send_signal(signal.SIGKILL)
        owner.communicate()
    gone, _ = psutil.wait_procs([broker], timeout=60)
    assert gone == [broker]


def test_a_jar_that_is_not_what_was_pinned_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jar = Jar("some.group:some-name:1.0", "0" * 64)
    (tmp_path / jar.file_name).write_bytes(b"something else")
    monkeypatch.setattr(kafka_jars, "pinned_jars", lambda: (jar,))
    with pytest.raises(RunnerError, match=r"some-name-1.0.jar is not the pinned jar"):
        kafka_jars.class_path(tmp_path)

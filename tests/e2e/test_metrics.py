"""Metrics and health of real engines with their parents: while they change roles, and while user code does not end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from hotspare.testing.cluster import hotspare_command, wait_until
from tests.e2e.site import PATIENT, PROJECT, Site

pytestmark = pytest.mark.system
WAIT_S = 90
GROUP = "e2e.shop"
HANGING = PROJECT.replace(
    "    edges: [orders -> kept]",
    """\
      code:
        type: python
        index: empty
        schema: "id*:int64,n:int64"
        events: create
        publish: true
        code: |
          import re
          def create(data):
              return {"n": 1 if data["count"] < 9 or re.match("(a|aa)+$", "a" * 60 + "b") else 2}
    edges: [orders -> kept, orders -> code]""",
)


class Engines:
    """Engines as their users start them, each answering at a port of its own."""

    def __init__(self, site: Site, free_port: Callable[[], int], stack: ExitStack) -> None:
        self.site = site
        self._free_port = free_port
        self._stack = stack
        self.ports: dict[str, int] = {}

    def start(self, name: str, *options: str) -> None:
        self.ports[name] = self._free_port()
        http = ("--engine", name, "--http", f"127.0.0.1:{self.ports[name]}")
        command = hotspare_command("run", str(self.site.project), *self.site.services, *http, *self.site.options, *options)
        log = self._stack.enter_context((self.site.folder / f"{name}.log").open("w"))
        parent = subprocess.Popen(command, cwd=self.site.folder, stdout=log, stderr=log)
        self._stack.callback(parent.wait, WAIT_S)
        self._stack.callback(parent.kill)

    def asked(self, name: str, target: str) -> tuple[int, bytes]:
        """Returns status and body; status 0 if nothing answers."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.ports[name]}{target}", timeout=WAIT_S) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()
        except OSError:
            return 0, b""

    def is_ok(self, name: str, target: str) -> bool:
        return self.asked(name, target)[0] == 200

    def values(self, name: str) -> dict[tuple[str, ...], float]:
        """Returns the samples of `/metrics` by name and the values of own labels."""
        families = text_string_to_metric_families(self.asked(name, "/metrics")[1].decode())
        samples = [sample for family in families for sample in family.samples]
        return {(s.name, *(v for k, v in s.labels.items() if k not in ("engine", "group"))): s.value for s in samples}

    def process(self, name: str) -> int:
        return int(json.loads(self.asked(name, "/livez")[1])["engine_process"] or 0)


@pytest.fixture
def made(tmp_path: Path, free_port: Callable[[], int]) -> Iterator[Callable[[str], Engines]]:
    with ExitStack() as stack:

        def make(project: str) -> Engines:
            site = Site(tmp_path, project)
            stack.callback(site.stop)
            return Engines(site, free_port, stack)

        yield make


def test_the_answers_follow_the_role_and_agree_with_the_status(made: Any) -> None:
    engines = made(PROJECT)
    site = engines.site
    engines.start("one", *PATIENT)
    wait_until(lambda: engines.is_ok("one", "/active"), "an active engine", WAIT_S)
    engines.start("two", *PATIENT)
    wait_until(lambda: engines.is_ok("two", "/standby?lag=3") and engines.is_ok("two", "/readyz"), "a spare", WAIT_S)
    site.publish("".join(f"i,n,{i},1.5,1\n" for i in range(200)) + "i,n,x,1,1\n")
    assert [engines.is_ok("one", path) for path in ("/readyz", "/active", "/standby", "/livez")] == [True, True, False, True]
    assert [engines.is_ok("two", path) for path in ("/active", f"/standby?group={GROUP}", "/standby?group=x")] == [
        False,
        True,
        False,
    ]

    def shows_status(name: str) -> bool:
        (group,) = json.loads(site.run("status", *site.places, "--json").stdout)["groups"]
        (engine,) = [each for each in group["engines"] if each["engine"] == name]
        values = engines.values(name)
        streams = {stream["stream"]: (stream["sequence"], stream["committed"]) for stream in engine["streams"]}
        shown = {s: (values["hotspare_output_sequence", s], values["hotspare_output_committed_sequence", s]) for s in streams}
        bad = {(each["window"], each["reason"]): each["count"] for each in engine["bad_events"]}
        shown_bad = {key[1:]: count for key, count in values.items() if key[0] == "hotspare_bad_events_total"}
        assert (values["hotspare_engine_epoch",], values["hotspare_engine_role", engine["role"]]) == (engine["epoch"], 1)
        return (shown, shown_bad) == (streams, bad) and bad != {} and max(sequence for sequence, _ in streams.values()) >= 200

    for name in ("one", "two"):
        wait_until(lambda name=name: shows_status(name), f"the metrics of {name} agree", WAIT_S, 0.2)
    values = engines.values("two")
    assert values["hotspare_engine_up",] == 1 and values["hotspare_metrics_age_seconds",] < 5
    assert values["process_resident_memory_bytes",] > 1 << 26

    os.kill(engines.process("one"), signal.SIGKILL)
    wait_until(lambda: engines.is_ok("two", "/active"), "the spare is active", WAIT_S)
    wait_until(lambda: engines.is_ok("one", "/standby"), "the killed engine is a spare", WAIT_S)
    assert [engines.is_ok(name, "/active") for name in ("one", "two")] == [False, True]
    assert engines.values("one")["hotspare_engine_starts_total",] == 2
    site.publish("i,n,500,1.5,1\n", "later.csv")
    wait_until(lambda: engines.values("two")["hotspare_failover_seconds_count", "total"] == 1, "a whole promotion", WAIT_S, 0.2)
    values = engines.values("two")
    assert values["hotspare_window_events_total", "sales/kept", "in"] >= 200
    assert values["hotspare_window_busy_seconds_total", "sales/kept"] > 0
    assert min(values[f"hotspare_{what}_seconds_count",] for what in ("step", "commit")) > 0


def test_the_parent_answers_while_user_code_does_not_end(made: Any) -> None:
    engines = made(HANGING)
    engines.start("one", *PATIENT, "--code-deadline-ms", "60000")
    wait_until(lambda: engines.is_ok("one", "/active"), "an active engine", WAIT_S)
    engines.site.publish("i,n,1,1.5,9\n")
    wait_until(lambda: not engines.is_ok("one", "/active"), "old facts are not shown as fresh", WAIT_S, 0.2)
    status, body = engines.asked("one", "/active")
    (why,) = json.loads(body)["why"]
    assert status == 503 and "was last heard of" in why
    assert json.loads(engines.asked("one", "/livez")[1])["call"]["window"] == "sales/code"
    values = engines.values("one")
    assert values["hotspare_metrics_age_seconds",] > 5
    assert (values["hotspare_engine_role", "active"], values["hotspare_engine_up",]) == (1, 1)

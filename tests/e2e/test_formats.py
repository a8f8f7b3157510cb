"""Formats and metadata through a real engine: JSON input, output in any format, clients without the project (SPEC B4, I4)."""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from hotspare.bus.contract import FORMAT_HEADER, OUTPUTS_HEADER, Partition
from hotspare.bus.open import open_bus
from hotspare.rows.batch import MessageFormat
from hotspare.testing.cluster import hotspare_command, wait_until
from tests.e2e.site import PREFIX, Site

pytestmark = pytest.mark.system

EVENTS = 300
PROJECT = """\
project: shop
queries:
  sales:
    windows:
      orders:
        type: source
        schema: id*:int64,amount:double,count:int64
        opcodes: insert-only
        index: empty
        connectors:
          bus_in: {kind: kafka, direction: publish, properties: {kafkatype: json}}
      kept:
        type: copy
        retention: {bycount_sliding: 1000}
        connectors:
          bus_out: {kind: kafka, direction: subscribe, properties: {kafkatype: FORMAT}}
    edges: [orders -> kept]
"""


@pytest.fixture
def site(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Site]:
    site = Site(tmp_path, PROJECT.replace("FORMAT", getattr(request, "param", "csv")))
    yield site
    site.stop()


def send_lines(site: Site, lines: list[bytes]) -> None:
    """Sends lines through a socket adapter, until all are acknowledged."""
    arguments = ("--bus", site.bus_url, "--prefix", PREFIX, "--window", "shop/sales/orders", "--format", "json", "tcp://:0")
    with subprocess.Popen(hotspare_command("publish", *arguments), stderr=subprocess.PIPE, text=True) as adapter:
        try:
            assert adapter.stderr is not None
            port = next(int(line.rsplit(" ", 1)[1]) for line in adapter.stderr if line.startswith("listening on port"))
            with socket.create_connection(("127.0.0.1", port), 60) as connection, connection.makefile("rb") as answers:
                connection.sendall(b"source test\n" + b"".join(line + b"\n" for line in lines))
                while answers.readline() != b"at %d\n" % len(lines):
                    pass
        finally:
            adapter.kill()


@pytest.mark.parametrize(("site", "format_"), [("json", "json"), ("avro", "avro")], indirect=["site"])
def test_events_in_json_come_out_in_the_format_of_the_stream(site: Site, format_: str) -> None:
    """SPEC I4, Z3: sequence and digest are in headers, whatever the format."""
    site.start()
    rows = [{"id": number, "amount": number / 7, "count": number * 3} for number in range(EVENTS)]
    send_lines(site, [json.dumps(row).encode() for row in rows] + [b'{"id": "x"}'])
    expected = [f"I,N, {row['id']},{row['amount']:.6f},{row['count']}" for row in rows]
    assert site.wait_for_outputs(EVENTS) == expected
    wait_until(lambda: len(site.bad_events()) > 1, "the bad event, which stands behind the last output", 180, 0.2)
    assert len(site.bad_events()) == 2  # the title and the one
    assert "x" in site.bad_events()[-1]
    bus = open_bus(site.bus_url)
    try:
        messages = bus.read(Partition(f"{PREFIX}.shop.sales.kept.O"), 0, messages_max=1000, bytes_max=1 << 24)
    finally:
        bus.close()
    assert {message.header(FORMAT_HEADER) for message in messages} == {MessageFormat[format_.upper()].header}
    spans = [(message.header(OUTPUTS_HEADER) or b"").split()[:2] for message in messages]
    assert [int(first) for first, _ in spans] == [1, *(int(last) + 1 for _, last in spans[:-1])]
    if format_ == "json":
        objects = [json.loads(line) for message in messages for line in message.value.splitlines()]
        assert [row["amount"] for row in objects] == [row["amount"] for row in rows]


def test_a_client_without_a_project_is_told_the_schema(site: Site) -> None:
    """SPEC I10: the engine has stopped, and a file of another schema is refused all the same."""
    site.start()
    site.stop()
    file = site.folder / "bad.csv"
    file.write_text("i,n,1,2.5\n")
    done = site.run("publish", "--bus", site.bus_url, "--prefix", PREFIX, "--window", "shop/sales/orders", str(file))
    assert done.returncode != 0
    assert "its first row has 4 columns, not 5" in done.stderr
    done = site.run("publish", "--bus", site.bus_url, "--prefix", PREFIX, "--window", "shop/sales/nobody", str(file))
    assert "has no source window shop/sales/nobody" in done.stderr

"""The commands of pages work as written there: blocks that need no server and no Spark.

Engines move their batches without Spark (`--runner local`), whose outputs are the same (law Runner).
"""

from __future__ import annotations

import contextlib
import re
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO

import pyarrow.parquet as pq
import pytest

from tests.cli.kept import kept_bus
from tests.documents.blocks import ROOT, Block, shows
from tests.documents.play import PageFolder

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]


@shows("README.md", "hotspare init", "hotspare run machines.yaml", "hotspare subscribe", "kill -9", "cmp alerts.csv")
def test_a_csv_file_an_alert_a_kill(shown: list[Block], tmp_path: Path) -> None:
    with PageFolder(tmp_path, "readme") as page:
        for block in shown:
            page.play(block)
        assert len(page.rows("alerts.csv")) == 40
        assert page.begun.pop(0).process.wait(60) == -signal.SIGKILL
        assert page.begun.pop().process.wait(60) == 0
        page.stop()


@shows(
    "docs/tutorial.md",
    "hotspare init",
    "hotspare validate alarm.yaml",
    "hotspare run alarm.yaml --runner local --bus sqlite:///alarm.db --engine one",
    "hotspare subscribe",
    "kill -9",
    "cmp alerts.csv",
    "hotspare run alarm.yaml --runner local --bus sqlite:///alarm.db --engine three",
)
def test_the_tutorial(shown: list[Block], tmp_path: Path) -> None:
    """The rows that the page shows are those of the files."""
    files = re.findall(r"^```\n(\w+,.*?)^```", (ROOT / "docs/tutorial.md").read_text(), re.MULTILINE | re.DOTALL)
    with PageFolder(tmp_path, "readme", ["docs/tutorial.md"]) as page:
        for block in shown:
            page.play(block)
        found = page.rows("first.csv"), page.rows("busy.csv")
        assert [rows[: text.count("\n")] for rows, text in zip(found, files, strict=True)] == [text.splitlines() for text in files]
        assert [len(rows) for rows in found] == [40, 3]
        assert page.begun.pop(0).process.wait(60) == -signal.SIGKILL
        (publisher,) = [each for each in page.begun if each.words[0] == "publish"]
        page.begun.remove(publisher)
        assert publisher.process.wait(60) == 0
        page.stop()


@shows("README.md", "hotspare validate loads.yaml")
def test_a_project_over_a_file(shown: list[Block], tmp_path: Path) -> None:
    with PageFolder(tmp_path, "readme", ["README.md"]) as page:
        page.play(*shown)
        rows = [row.split(",") for row in page.rows("busy.csv")]
        assert (rows[0], rows[1][:2], rows[-1][:2]) == (["opcode", "machine", "mean", "readings"], ["I", "press"], ["D", "press"])


@shows("docs/moving-from-sas.md", "hotspare assess", "hotspare replay orders.xml", "hotspare run orders.xml")
def test_a_project_that_moves(shown: list[Block], tmp_path: Path) -> None:
    with PageFolder(tmp_path, "sas", places={"/opt/sas/esp/projects": "."}) as page:
        for block in shown:
            page.play(block)
        page.do("hotspare publish --bus sqlite:///orders.db --window orders/cq/orders day.csv")
        page.wait_rows("large.csv", lambda rows: len(rows) == 2)
        page.stop()
        assert page.rows("large.csv") == page.rows("ours.csv")


@shows("docs/projects.md", "hotspare replay meter.yaml")
def test_the_example_of_projects(shown: list[Block], tmp_path: Path) -> None:
    with PageFolder(tmp_path, "projects", ["docs/projects.md"]) as page:
        page.play(*shown)
        assert len(page.rows("report.csv")) == 21


@shows("docs/csv.md", "hotspare replay login.yaml", "hotspare run login.yaml")
def test_a_csv_file_as_users_have_it(shown: list[Block], tmp_path: Path) -> None:
    """The first steps of a newcomer: a file written by another program gives the same rows in replay and through an engine."""
    written = re.findall(r"^```csv\n(.*?)^```", (ROOT / "docs/csv.md").read_text(), re.MULTILINE | re.DOTALL)
    with PageFolder(tmp_path, "plain", ["docs/csv.md"]) as page:
        for block in shown:
            page.play(block)
        assert [(page.folder / name).read_text() for name in ("logins.csv", "failed.csv", "users.csv")] == written
        page.wait_rows("counts.csv", lambda rows: len(rows) > 2)
        page.stop("subscribe")
        assert page.rows("counts.csv") == page.rows("users.csv")


@shows(
    "docs/alerts.md",
    "hotspare replay machines.yaml",
    "hotspare replay shop.yaml",
    "hotspare replay security.yaml",
    "hotspare replay watch.yaml",
    "hotspare replay cards.yaml",
)
def test_alerts(shown: list[Block], tmp_path: Path) -> None:
    check_examples(shown, tmp_path)


@shows("docs/absence.md", "hotspare replay plant.yaml")
def test_absence(shown: list[Block], tmp_path: Path) -> None:
    check_examples(shown, tmp_path)


@shows("docs/joins.md", "hotspare replay shop.yaml", "hotspare replay ads.yaml")
def test_joins(shown: list[Block], tmp_path: Path) -> None:
    check_examples(shown, tmp_path)


@shows("docs/sessions.md", "hotspare replay web.yaml", "hotspare replay live.yaml")
def test_sessions(shown: list[Block], tmp_path: Path) -> None:
    check_examples(shown, tmp_path)


@shows("docs/moving-from-epl.md", "hotspare replay market.yaml")
def test_moving_from_epl(shown: list[Block], tmp_path: Path) -> None:
    check_examples(shown, tmp_path)


@shows("docs/moving-from-cql.md", "hotspare replay plant.yaml")
def test_moving_from_cql(shown: list[Block], tmp_path: Path) -> None:
    check_examples(shown, tmp_path)


def check_examples(shown: list[Block], tmp_path: Path) -> None:
    """Checks that each command of a page produces the outputs of the page from the inputs of the page."""
    page_name = shown[0].page
    files = re.findall(r"^(Input|Output) `([\w.]+)`.*?\n\n```csv\n(.*?)^```", (ROOT / page_name).read_text(), re.M | re.S)
    with PageFolder(tmp_path, "empty", [page_name]) as page:
        for kind, name, text in files:
            if kind == "Input":
                (page.folder / name).write_text(text)
        for block in shown:
            page.play(block)
        outputs = {name: text.splitlines() for kind, name, text in files if kind == "Output"}
        assert {name: page.rows(name) for name in outputs} == outputs
        assert len(outputs) == len(shown)


@shows("examples/README.md", "../.venv/bin/hotspare replay")
def test_the_examples(shown: list[Block], tmp_path: Path) -> None:
    with PageFolder(tmp_path, "../../../examples") as page:
        page.play(*shown)
        for name, expected in (("alerts.csv", "payments/expected-alerts.csv"), ("recent.csv", "motors/expected-recent.csv")):
            assert page.rows(name) == page.rows(expected)


@shows("docs/memory.md", "hotspare run loads.yaml")
def test_state_in_a_budget(shown: list[Block], tmp_path: Path) -> None:
    with PageFolder(tmp_path, "readme", ["README.md"]) as page:
        page.play(*shown)
        page.stop()


@shows(
    "docs/adapters.md",
    "hotspare publish --bus sqlite:///shop.db --window shop/sales/orders --growing",
    "hotspare publish --bus sqlite:///shop.db --window shop/sales/orders --format json",
    "hotspare subscribe --bus sqlite:///shop.db --window shop/sales/kept tcp://",
)
def test_adapters_in_groups_and_with_sockets(shown: list[Block], tmp_path: Path, free_port: Callable[[], int]) -> None:
    files, publisher, subscriber = shown
    ports = {":7000": free_port(), ":7001": free_port()}
    with PageFolder(tmp_path, "adapters", places={name: f":{port}" for name, port in ports.items()}) as page:
        page.do("hotspare run shop.yaml --bus sqlite:///shop.db")
        page.play(files)
        page.wait_rows("kept.csv", lambda rows: len(rows) == 8)
        with (page.folder / "orders.csv").open("a") as orders:
            orders.write("i,n,11,5.5\n")
        page.wait_rows("kept.csv", lambda rows: len(rows) == 9)
        page.play(publisher)
        with connected(page, ports[":7000"]) as lines:
            lines.write('source till\n{"id": 12, "amount": 2}\n')
            lines.flush()
            assert [lines.readline(), lines.readline()] == ["at 0\n", "at 1\n"]
        page.play(subscriber)
        with connected(page, ports[":7001"]) as lines:
            lines.write("after 8\n")
            lines.flush()
            assert [lines.readline(), lines.readline()] == ["9,I,N, 11,5.500000\n", "10,I,N, 12,2.000000\n"]
        page.wait_rows("kept.csv", lambda rows: len(rows) == 10)
        page.stop()


@contextlib.contextmanager
def connected(page: PageFolder, port: int) -> Iterator[TextIO]:
    """Yields a connection to the last command started, which listens on `port`."""
    page.begun[-1].wait_for("listening on port")
    with socket.create_connection(("127.0.0.1", port)) as client, client.makefile("rw") as lines:
        yield lines


@shows("docs/qualities.md", "hotspare quality hotspare.meter")
def test_a_quality_that_changes(shown: list[Block], tmp_path: Path) -> None:
    with PageFolder(tmp_path, "projects", ["docs/projects.md"]) as page:
        page.do("hotspare run meter.yaml --bus sqlite:///demo.db")
        page.play(*shown)
        page.stop()


@shows("docs/shards.md", "hotspare validate shop.yaml")
def test_a_project_in_shards(shown: list[Block], tmp_path: Path) -> None:
    with PageFolder(tmp_path, "shards", ["docs/shards.md"]) as page:
        page.play(*shown)
        page.wait_rows("high.csv", lambda rows: len(rows) == 20)
        page.stop()


@shows("docs/state.md", "hotspare state ls")
def test_looking_into_snapshots(shown: list[Block], tmp_path: Path) -> None:
    """The two snapshots differ, which `diff` reports by its exit status."""
    with PageFolder(tmp_path, "empty", places={"time:2026-01-31T08:00": "0001"}) as page:
        kept_bus(page.folder)
        page.play(shown[0], {"hotspare state diff": 1})
        assert pq.read_table(page.folder / "orders.parquet").num_rows == 3


@shows("docs/upgrade.md", "hotspare upgrade shop.yaml")
def test_a_group_that_goes_on_with_a_changed_project(shown: list[Block], tmp_path: Path) -> None:
    with PageFolder(tmp_path, "upgrade") as page:
        page.do("hotspare run shop.yaml --bus sqlite:///demo.db --engine one")
        (page.folder / "new.yaml").rename(page.folder / "shop.yaml")
        page.play(*shown)
        page.stop()


@shows("docs/upgrade.md", "hotspare upgrade new.yaml")
def test_a_changed_project_beside_the_one_before(shown: list[Block], tmp_path: Path) -> None:
    with PageFolder(tmp_path, "upgrade") as page:
        page.do("hotspare run shop.yaml --bus sqlite:///demo.db --engine one")
        page.play(*shown)
        page.await_end("one", 1)
        page.stop()

"""The settings file of `hotspare run`, and `--snapshots`: times and form of snapshots (SPEC G8, G9)."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer

from hotspare.base.choices import EventPolicy, RunnerKind, SnapshotForm
from hotspare.base.errors import UsageError
from hotspare.cli.main import build_app
from hotspare.cli.shared.run_settings import snapshot_settings
from hotspare.cli.shared.values import parse_bindings
from hotspare.ha.rules.settings import GroupSettings
from tests.cli.commands_page import PAGE
from tests.cli.running import hotspare_here


@pytest.mark.parametrize(
    ("texts", "settings"),
    [
        ([], {}),
        (["10 seconds"], {"snapshot_interval_ms": 10_000}),
        (["1000 events"], {"snapshot_interval_ms": 0, "snapshot_events": 1_000}),
        (["1 second", "1000  events"], {"snapshot_interval_ms": 1_000, "snapshot_events": 1_000}),
        (["cron 30 4 * * *"], {"snapshot_interval_ms": 0, "snapshot_cron": "30 4 * * *"}),
        (["off"], {"snapshot_interval_ms": 0}),
        (["full", "priority 3"], {"snapshot_form": SnapshotForm.FULL, "snapshot_priority": 3}),
        (["incremental", "2 minutes"], {"snapshot_interval_ms": 120_000, "snapshot_form": SnapshotForm.INCREMENTAL}),
    ],
)
def test_what_is_said_becomes_settings(texts: list[str], settings: dict[str, Any]) -> None:
    found = snapshot_settings(texts)
    assert found == settings
    GroupSettings(**found)


@pytest.mark.parametrize(
    "texts",
    [
        ["sometimes"],
        ["5"],
        ["0 events"],
        ["10 microseconds"],
        ["1 second", "2 seconds"],
        ["off", "5 events"],
        ["full", "incremental"],
        ["priority -1"],
    ],
)
def test_what_is_not_understood_or_contradicts_itself_is_refused(texts: list[str]) -> None:
    with pytest.raises(UsageError, match="--snapshots"):
        snapshot_settings(texts)


class Asked(NamedTuple):
    """The result of a command line with a settings file; `given`: the parameters of `run`."""

    given: dict[str, Any]
    refusal: str


@pytest.fixture
def ask(tmp_path: Path) -> Callable[..., Asked]:
    """Returns a parser of `run`'s command line with a settings file of this text."""

    def parse(text: str, *arguments: str) -> Asked:
        file = tmp_path / "settings.yaml"
        file.write_text(text)
        run = typer.main.get_command(build_app()).commands["run"]
        line = ["p.yaml", "--bus", "sqlite:///b.db", "--settings", str(file), *arguments]
        try:
            return Asked(run.make_context("run", line).params, "")
        except UsageError as error:
            return Asked({}, str(error))

    return parse


def test_the_file_gives_what_the_command_line_does_not(ask: Callable[..., Asked], tmp_path: Path) -> None:
    text = """
lease-ms: 3000
on-poison: stop
runner: local
memory: 1GiB
page-folder: pages
snapshots: [10 seconds, full]
set: {limit: "7", word: a=b}
bind: {q/w/in: {fsname: in.csv, sep: ":"}}
conf: {spark.jars: a.jar, spark.app.name: shop}
"""
    given = ask(text, "--lease-ms", "2500", "--set", "limit=8").given
    assert (given["lease_ms"], list(given["set_"])) == (2500, ["limit=8"]), "the command line wins"
    kinds = EventPolicy(given["on_poison"]), RunnerKind(given["runner"])
    assert (*kinds, given["memory"]) == (EventPolicy.STOP, RunnerKind.LOCAL, "1GiB")
    assert (list(given["snapshots"]), Path(given["page_folder"])) == (["10 seconds", "full"], tmp_path / "pages")
    assert parse_bindings(given["bind"]) == {"q/w/in": {"fsname": "in.csv", "sep": ":"}}
    assert list(given["conf"]) == [f"spark.jars={tmp_path}/a.jar", "spark.app.name=shop"]
    assert given["held_bytes_max"] == 256 << 20, "what neither says has its default"


def test_an_empty_file_gives_nothing(ask: Callable[..., Asked]) -> None:
    assert ask("# nothing yet\n").given["lease_ms"] == 1000


@pytest.mark.parametrize(
    ("text", "line", "why"),
    [
        ("lease_ms: 5\nlaese-ms: 5\n", 2, "did you mean 'lease-ms'?"),
        ("skew-max-ms: soon\n", 1, "skew-max-ms: "),
        ("head: driver\ncreate-time: sorce\n", 2, "create-time: "),
        ("messages-max: 0\n", 1, "messages-max: "),
        ("snapshots: [10 seconds,\n  sometimes]\n", 1, "cannot be read"),
        ("memory: much\n", 1, "not a size"),
        ("lease-ms: 1\nlease-ms: 2\n", 2, "is given twice"),
        ("lease-ms: [1]\n", 1, "not a single value"),
        ("set: 5\n", 1, "set is not a mapping"),
        ("bind: {in: 5}\n", 1, "is not a mapping"),
        ("conf: {spark.jars: file:a.jar}\n", 1, "needs an absolute path"),
        ("bus: sqlite:///b.db\n", 1, "give it on the command line: --bus"),
        ("settings: other.yaml\n", 1, "settings is not a setting"),
        ("- lease-ms: 5\n", 1, "settings are a mapping"),
        ("lease-ms: &a 5\n", 1, "anchors"),
        ("lease-ms: 'open\n", 2, "not YAML"),
    ],
)
def test_each_mistake_has_its_line_and_a_hint(ask: Callable[..., Asked], tmp_path: Path, text: str, line: int, why: str) -> None:
    refusal = ask(text).refusal
    assert f"{tmp_path / 'settings.yaml'}:{line}" in refusal
    assert why in refusal


def test_all_mistakes_are_reported_at_once_and_no_password(ask: Callable[..., Asked]) -> None:
    text = "bus: kafka://u:hush@h\nconf: {'': hush}\nset: {a=b: hush}\nbind: {'a:b': {password: hush}}\nlease: 1\n"
    refusal = ask(text).refusal
    assert [f"settings.yaml:{line}:" in refusal for line in range(1, 6)] == [True] * 5
    assert "hush" not in refusal


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    done = hotspare_here("run", "p.yaml", "--bus", "sqlite:///b.db", "--settings", tmp_path / "none.yaml")
    assert (done.returncode, f"{tmp_path}/none.yaml cannot be read" in done.stderr) == (2, True)


def test_a_rare_option_is_refused_on_the_command_line() -> None:
    done = hotspare_here("run", "p.yaml", "--bus", "sqlite:///b.db", "--skew-max-ms", "2000")
    assert (done.returncode, "write `skew-max-ms: VALUE` in FILE" in done.stderr) == (2, True)


def test_the_example_of_the_page_is_a_settings_file(ask: Callable[..., Asked]) -> None:
    (example,) = re.findall(r"```yaml\n(# .*?)```", PAGE.read_text(), re.DOTALL)
    found = ask(example)
    assert not found.refusal
    rare = {name for name in found.given if f"\n{name.replace('_', '-')}: " in example}
    listed = re.search(r"file of --settings:\n(.*?)\n```", PAGE.read_text(), re.DOTALL)
    assert listed is not None
    assert set(re.split(r",\s+", listed[1].strip())) <= {name.replace("_", "-") for name in rare}, "it shows all of them"

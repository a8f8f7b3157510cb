"""`hotspare quality` against a real coordination: shows, changes, and names engines that do not act by it yet (SPEC D1, Z16)."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from hotspare.coordination.contract import Coordination, Member
from hotspare.coordination.open import open_coordination
from hotspare.ha.outputs import qualities
from hotspare.ha.rules.settings import GroupTopics, InboundTopic, OutputStream
from hotspare.model.quality import SIMPLE, parse_quality
from tests.cli.running import hotspare

GROUP = "p.shop"
TOPICS = GroupTopics((InboundTopic("in"),), (OutputStream("q/sums", "out"), OutputStream("q/rest", "rest", SIMPLE)))


def member(engine: str, version: int, sums: str, pending: str = "[]") -> Member:
    acts_by = {"q/sums": sums, "q/rest": "simple"}
    detail = {"qualities": json.dumps(acts_by), "quality_version": str(version), "qualities_pending": pending}
    return Member(engine, "127.0.0.1:1", 1, 1, "host", "", "", "", "standby", {}, detail)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Coordination]:
    made = open_coordination(f"sqlite:///{tmp_path / 'coord.db'}")
    qualities.agree_on_qualities(made, GROUP, TOPICS)
    yield made
    made.close()


def run(tmp_path: Path, *arguments: str) -> tuple[int, str, str]:
    done = hotspare("quality", *arguments, "--coordination", f"sqlite:///{tmp_path / 'coord.db'}", "--timeout-s", "0.2")
    return done.returncode, done.stdout, done.stderr


def test_a_change_stands_and_who_has_not_read_it_is_named(service: Coordination, tmp_path: Path) -> None:
    service.refresh_member(GROUP, member("e0", 1, "trimmed 5 events or 1 second", '["q/sums"]'))
    service.refresh_member(GROUP, member("e1", 0, "precise"))
    status, out, _ = run(tmp_path, "shop", "q/sums", "trimmed 5 events")
    assert status == 0
    assert out.splitlines() == [
        "requested trimmed 5 events or 1 second of stream q/sums, as change 1",
        "q/sums  trimmed 5 events or 1 second",
        "  e0 does not hold all uncommitted outputs yet",
        "  e1 still uses precise",
        "q/rest  simple",
    ]
    known = qualities.current_qualities(service, GROUP)
    assert known is not None
    assert known.stream_quality("q/sums") == parse_quality("trimmed 5 events")


def test_without_a_change_it_shows(service: Coordination, tmp_path: Path) -> None:
    assert run(tmp_path, GROUP) == (0, "q/sums  precise\nq/rest  simple\n", "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nothing",), "no group is called nothing"),
        ((GROUP, "q/sums"), "a stream and its new quality must be given together"),
        ((GROUP, "q/sums", "exact"), "quality 'exact' does not exist"),
        ((GROUP, "q/nothing", "simple"), "output stream q/nothing does not exist"),
    ],
)
def test_what_cannot_be_is_refused(service: Coordination, tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    service.refresh_member(GROUP, member("e0", 0, "precise"))
    status, _, err = run(tmp_path, *arguments)
    assert status == 2
    assert message in err
    known = qualities.current_qualities(service, GROUP)
    assert known is not None
    assert known.version == 0


def test_a_bus_that_is_not_there_is_refused_and_not_made(tmp_path: Path) -> None:
    done = hotspare("quality", GROUP, "--bus", f"sqlite:///{tmp_path / 'other.db'}")
    assert done.returncode == 2
    assert "there is no file" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_group_that_does_not_exist_is_named_with_those_that_do(service: Coordination, tmp_path: Path) -> None:
    status, _, error = run(tmp_path, "p.shops")
    assert status == 2
    assert "no group is called p.shops" in error
    assert f"groups: {GROUP}" in error


def test_a_project_in_shards_is_changed_and_told_of_as_a_whole(tmp_path: Path) -> None:
    groups = [f"p.divided/{number}" for number in range(3)]
    with contextlib.closing(open_coordination(f"sqlite:///{tmp_path / 'coord.db'}")) as made:
        for number, group in enumerate(groups):
            qualities.agree_on_qualities(made, group, TOPICS)
            made.refresh_member(group, member("e0", 0 if number == 1 else 1, "precise" if number == 1 else "simple"))
        status, out, _ = run(tmp_path, "divided", "q/sums", "simple")
        assert status == 0
        asked, *told = out.splitlines()
        assert asked == "requested simple of stream q/sums, as change 1 of each of 3 shards"
        as_wanted = ["q/sums  simple", "q/rest  simple"]
        behind = ["q/sums  simple", "  e0 still uses precise", "q/rest  simple"]
        assert told == [
            line
            for group, lines in zip(groups, (as_wanted, behind, as_wanted), strict=True)
            for line in (f"group {group}:", *lines)
        ]
        made.refresh_member(groups[1], member("e0", 1, "simple"))
        assert run(tmp_path, "p.divided") == (0, "\n".join(as_wanted) + "\n", "")
        assert run(tmp_path, groups[1], "q/rest", "precise")[0] == 0
        known = [qualities.current_qualities(made, group) for group in groups]
    assert [each is not None and each.version for each in known] == [1, 2, 1]

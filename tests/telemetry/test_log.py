"""Log lines: a closed list of events, fields for programs, a sentence for users, and no secrets."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.telemetry.log import Level, Log, LogEvent, LogFormat, configure_logging
from hotspare.telemetry.secrets import MASK, masked, masked_value
from tests.telemetry import log_page


@pytest.fixture(autouse=True)
def _defaults_again() -> Iterator[None]:
    yield
    configure_logging()


def test_names_are_unique_words_and_every_event_says_what_it_means() -> None:
    labels = [event.label for event in LogEvent]
    assert len(set(labels)) == len(labels)
    assert all(re.fullmatch(r"[a-z]+(_[a-z]+)*", label) for label in labels)
    assert all(event.label == event.name.lower() and len(event.meaning.split()) > 3 for event in LogEvent)


def test_the_page_is_that_of_the_events() -> None:
    assert log_page.PAGE.read_text(encoding="utf-8") == log_page.page(), "run `make docs`"


def test_a_json_line_carries_everything_and_nothing_twice() -> None:
    """SPEC C8."""
    out = io.StringIO()
    configure_logging(LogFormat.JSON, stream=out)
    log = Log().bind(group="g", engine="e1")
    log.bind(role="active").event(LogEvent.ROLE_CHANGED, "won the epoch", epoch=7)
    line = json.loads(out.getvalue())
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "event": "role_changed",
        "level": "info",
        "message": "won the epoch",
        "group": "g",
        "engine": "e1",
        "role": "active",
        "epoch": 7,
    }


def test_people_read_the_same() -> None:
    out = io.StringIO()
    configure_logging(stream=out)
    Log().bind(engine="e1").event(LogEvent.ROLE_CHANGED, "won the epoch", epoch=7)
    for text in ("role_changed", "info", "won the epoch", "engine=e1", "epoch=7"):
        assert text in out.getvalue()
    assert "\x1b" not in out.getvalue(), "no colours in a file"


def test_lines_below_the_level_are_left_out() -> None:
    out = io.StringIO()
    configure_logging(LogFormat.JSON, Level.WARNING, out)
    Log().event(LogEvent.ROLE_CHANGED)
    Log().event(LogEvent.SEQUENCE_BROKEN)
    assert [json.loads(line)["event"] for line in out.getvalue().splitlines()] == ["sequence_broken"]


def test_secrets_never_reach_a_line() -> None:
    out = io.StringIO()
    configure_logging(LogFormat.JSON, stream=out)
    log = Log().bind(bus="kafka://user:hunter2@host:9092", password="hunter2")
    log.event(LogEvent.ENGINE_FAILED, "no answer from redis://:hunter2@host", error=ValueError("token=hunter2"))
    assert "hunter2" not in out.getvalue()
    assert out.getvalue().count(MASK) == 4


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("postgresql://me:pa@ss@host/db", "postgresql://me:***@host/db"),
        ("redis://:secret@host", "redis://:***@host"),
        ("sqlite:///a.db and zookeeper://a:2181,b:2181/x", "sqlite:///a.db and zookeeper://a:2181,b:2181/x"),
        ("x?sasl.password=abc&y=1", "x?sasl.password=***&y=1"),
        ("mail me@host", "mail me@host"),
    ],
)
def test_masked(text: str, expected: str) -> None:
    assert masked(text) == expected


words = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1)


@given(user=words, secret=words.map("!".__add__), host=words)
def test_no_password_survives_in_a_url(user: str, secret: str, host: str) -> None:
    assert secret not in masked(f"at kafka://{user}:{secret}@{host}:9092/topic")


def test_numbers_stay_numbers() -> None:
    assert masked_value("epoch", 7) == 7
    assert masked_value("api_key", 7) == MASK

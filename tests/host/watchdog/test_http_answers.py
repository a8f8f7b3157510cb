"""The answers of the parent to HTTP requests: a table of facts, requests and answers."""

from __future__ import annotations

import json
import os
from typing import Any

import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

from hotspare.host.watchdog.http_answers import STALE_S, ParentFacts, answer_to
from hotspare.host.watchdog.published_facts import PublishedFacts

NOW_NS = 10**15
OK, NOT, MISSING, WRONG = "200 OK", "503 Service Unavailable", "404 Not Found", "400 Bad Request"


def group(role: str, *, name: str = "p.shop", caught_up: bool = True, lag: int | None = 0, age_s: float = 0) -> dict[str, Any]:
    """Returns a group's facts, with their age in place of the time."""
    return {"group": name, "role": role, "caught_up": caught_up, "lag": lag, "age_s": age_s, "epoch": 3}


def parent(*groups: dict[str, Any], process: int = os.getpid(), text: bytes = b"") -> ParentFacts:
    own = [{**each, "looked_ns": NOW_NS - int(each["age_s"] * 1e9)} for each in groups]
    newest_ns = max((each["looked_ns"] for each in own), default=0)
    facts = {"engine": "one", "groups": own, "published_ns": newest_ns}
    return ParentFacts(process, 2, NOW_NS, None, PublishedFacts(facts, text) if groups else None)


OLD_S = STALE_S + 1
ACTIVE, SPARE = group("active"), group("standby")
TWO = [group("active", name="p.shop#0"), group("standby", name="p.shop#1", lag=7)]


@pytest.mark.parametrize(
    ("groups", "ready", "active", "standby"),
    [
        pytest.param([ACTIVE], OK, OK, NOT, id="active"),
        pytest.param([SPARE], OK, NOT, OK, id="spare"),
        pytest.param([group("standby", caught_up=False)], NOT, NOT, OK, id="spare that catches up"),
        pytest.param([group("promoting")], OK, NOT, NOT, id="promoting"),
        pytest.param([group("warming")], NOT, NOT, NOT, id="warming"),
        pytest.param([group("stopped")], NOT, NOT, NOT, id="stopped"),
        pytest.param([group("diverged")], NOT, NOT, NOT, id="diverged"),
        pytest.param([group("active", age_s=OLD_S)], NOT, NOT, NOT, id="active, but old"),
        pytest.param([group("standby", age_s=OLD_S)], NOT, NOT, NOT, id="spare, but old"),
        pytest.param([], NOT, NOT, NOT, id="nothing published"),
        pytest.param(TWO, OK, OK, NOT, id="two groups"),
        pytest.param([TWO[0], group("standby", name="p.shop#1", age_s=OLD_S)], NOT, OK, NOT, id="two groups, one old"),
        pytest.param([TWO[0], group("joining", name="p.shop#1")], NOT, OK, NOT, id="two groups, one joins"),
    ],
)
def test_what_each_state_answers(groups: list[dict[str, Any]], ready: str, active: str, standby: str) -> None:
    facts = parent(*groups)
    answers = [answer_to(path, facts) for path in ("/readyz", "/active", "/standby")]
    assert [answer.status for answer in answers] == [ready, active, standby]
    assert [bool(json.loads(answer.body).get("why")) for answer in answers] == [answer.status != OK for answer in answers]
    assert (answer_to("/livez", facts).status, answer_to("/status", facts).status, answer_to("/metrics", facts).status) == (OK,) * 3


@pytest.mark.parametrize(
    ("target", "groups", "status"),
    [
        ("/standby?lag=7", [group("standby", lag=7)], OK),
        ("/standby?lag=6", [group("standby", lag=7)], NOT),
        ("/standby?lag=6", [group("standby", lag=None)], NOT),
        ("/standby?lag=x", [SPARE], WRONG),
        ("/standby?lag=-1", [SPARE], WRONG),
        ("/standby?lag=", [SPARE], OK),
        ("/active?group=p.shop#0", TWO, OK),
        ("/active?group=p.shop#1", TWO, NOT),
        ("/standby?group=p.shop#1&lag=7", TWO, OK),
        ("/standby?group=p.shop#1&lag=6", TWO, NOT),
        ("/readyz?group=other", TWO, MISSING),
        ("/readyz?group=other", [], NOT),
        ("/nothing", [ACTIVE], MISSING),
        ("/", [ACTIVE], MISSING),
    ],
)
def test_what_a_query_answers(target: str, groups: list[dict[str, Any]], status: str) -> None:
    assert answer_to(target, parent(*groups)).status == status


def test_an_engine_that_has_ended_is_nothing() -> None:
    facts = parent(ACTIVE, process=0)
    assert {answer_to(path, facts).status for path in ("/readyz", "/active", "/standby")} == {NOT}


def test_old_facts_say_how_old_they_are() -> None:
    (why,) = json.loads(answer_to("/active", parent(group("active", age_s=OLD_S))).body)["why"]
    assert "6.0 s ago" in why
    (shown,) = json.loads(answer_to("/status", parent(group("active", age_s=OLD_S))).body)["groups"]
    assert shown["age_s"] == pytest.approx(OLD_S, abs=0.5)
    assert "looked_ns" not in shown


def test_the_text_of_the_engine_is_served_with_its_age() -> None:
    text = b"# HELP a b\n# TYPE a gauge\na 1\n"
    answer = answer_to("/metrics", parent(group("active", age_s=OLD_S), text=text))
    assert answer.body.startswith(text)
    values = {family.name: family.samples[0].value for family in text_string_to_metric_families(answer.body.decode())}
    assert (values["a"], values["hotspare_engine_up"], values["hotspare_engine_starts"]) == (1, 1, 2)
    assert values["hotspare_metrics_age_seconds"] == pytest.approx(OLD_S, abs=0.5)
    assert values["process_resident_memory_bytes"] > 1 << 20
    assert values["process_start_time_seconds"] == pytest.approx(psutil.Process().create_time(), abs=2)
    assert values["process_cpu_seconds"] > 0


def test_without_an_engine_there_is_no_age() -> None:
    body = answer_to("/metrics", ParentFacts(0, 1, NOW_NS)).body
    assert body.decode().splitlines()[2::3] == ["hotspare_engine_up 0", "hotspare_engine_starts_total 1"]

"""A bus with small limits gets the same outputs in smaller pieces, and no engine loses the role over it (SPEC E2, B13)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hotspare.base.errors import AppendTooLarge, BusUnavailable, MessageTooLarge, UsageError
from hotspare.bus.contract import Commit
from hotspare.bus.memory import MemoryProducer
from hotspare.ha.outputs.message import output_message
from hotspare.ha.rules.roles import Role
from hotspare.model.quality import Quality, QualityKind
from hotspare.rows.batch import MessageFormat
from tests.simulation.fast_core import OUTPUT, columns_of
from tests.simulation.script import Script
from tests.simulation.test_scenarios import EVENTS, FOREVER_MS, two_engines
from tests.simulation.world import SETTINGS


def test_outputs_that_are_too_much_for_one_message_come_out_in_several(tmp_path: Path) -> None:
    """SPEC B13: a message that the bus refuses would end every engine in turn."""
    script = two_engines(tmp_path, settings=replace(SETTINGS, message_rows_max=16))
    script.world.pause("e0", FOREVER_MS)
    script.world.bus.message_bytes = dict.fromkeys(script.world.bus.logs, _bytes_of(script, rows=6))
    script.publish(*EVENTS * 6)
    refused = ""
    try:
        script.until_active("e1")
        script.finish()
    except UsageError as error:
        refused = error.message
    assert not refused
    assert not script.told("output too large")


@pytest.mark.parametrize("error", [AppendTooLarge, MessageTooLarge])
def test_outputs_that_are_refused_together_come_out_in_several(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[MessageTooLarge]
) -> None:
    """Each of them alone fits into its topic, so none is blamed: no stream waits."""
    whole = MemoryProducer.publish

    def publish(self: MemoryProducer, epoch: int, commit: Commit) -> None:
        if any(len(messages) > 2 for messages in commit.messages.values()):
            raise error("too many bytes")
        whole(self, epoch, commit)

    monkeypatch.setattr(MemoryProducer, "publish", publish)
    script = two_engines(tmp_path, settings=replace(SETTINGS, message_rows_max=1))
    script.world.pause("e0", FOREVER_MS)
    script.publish(*EVENTS * 6)
    script.until_active("e1")
    script.finish()
    assert not script.told("output too large")


def test_an_output_that_is_too_large_for_its_topic_keeps_back_its_stream_alone(tmp_path: Path) -> None:
    """Nothing is dropped, and no engine ends. The stream continues once the topic takes the output, whichever engine is active
    then."""
    script = two_engines(tmp_path, settings=replace(SETTINGS, oversized_retry_ms=50))
    bus = script.world.bus
    bus.message_bytes = {"out0": _bytes_of(script, rows=1) // 2}
    before = dict(script.world.observer.delivered())
    script.publish(*EVENTS)
    due = script.due()
    script.until(lambda: script.world.observer.delivered()["q/b"] >= due["q/b"])
    script.until(lambda: script.told("output too large: stream q/a waits"))
    for _ in range(6 * SETTINGS.lease_ms):
        script.turn()
    assert script.role("e0") is Role.ACTIVE
    assert script.world.observer.delivered()["q/a"] == before["q/a"]
    script.world.kill("e0")
    script.until_active("e1")
    script.until(lambda: script.told("e1   (output too large: stream q/a waits"))
    bus.message_bytes = {}
    script.finish()
    script.until(lambda: script.told("stream q/a continues"))


def _bytes_of(script: Script, rows: int) -> int:
    """Returns the size of a message of `rows` outputs of `q/a`."""
    one = columns_of([(99, 0, 0, 99, 0, 0, 1 << 62, 1, 1, 99, 99)] * rows, OUTPUT)
    message = output_message(one, MessageFormat.ARROW, 9, script.world.codec)
    return len(message.value) + sum(len(name) + len(value) for name, value in message.headers)


def test_a_trimmed_stream_comes_on_where_commits_fail_again_and_again(tmp_path: Path) -> None:
    """Each failure is followed by a fence, long before progress is due: outputs committed before it are not repeated."""
    trimmed = Quality(QualityKind.TRIMMED, progress_events=100_000, progress_ms=1_000_000)
    script = Script(tmp_path, "e0", qualities={"q/b": trimmed}, settings=replace(SETTINGS, message_rows_max=1))
    script.world.lasting.commit_rows = 1
    script.start("e0")
    script.publish(*EVENTS * 20)
    script.until_active("e0")
    script.finish()
    assert script.told("result unknown: the transaction took too long")
    failures = sum("result unknown" in line for line in script.lines)
    outputs = sum(script.world.observer.delivered().values())
    assert script.world.observer.commits <= outputs + failures


def test_who_takes_over_begins_with_what_the_engine_before_it_learned(tmp_path: Path) -> None:
    """Each commit that is too large costs a time-out and a fence, before the first output of the new epoch."""
    script = Script(tmp_path, "e0", "e1", settings=replace(SETTINGS, message_rows_max=1))
    script.world.lasting.commit_rows = 1
    script.start("e0")
    script.publish(*EVENTS * 4)
    script.until_active("e0")
    script.start("e1")
    script.until(lambda: script.told("result unknown: the transaction took too long"))
    script.finish()
    script.until(lambda: script.role("e1") is Role.STANDBY)
    for _ in range(3 * SETTINGS.member_refresh_ms):
        script.turn()
    script.world.pause("e0", FOREVER_MS)
    script.publish(*EVENTS * 4)
    script.until_active("e1")
    script.finish()
    first = next(number for number, line in enumerate(script.lines) if "e1   (promoted: first output" in line)
    assert not any("e1   (result unknown" in line for line in script.lines[:first])


def test_a_backlog_that_a_slow_bus_does_not_take_at_once_comes_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same transaction of all streams would time out forever."""
    whole = MemoryProducer.publish

    def publish(self: MemoryProducer, epoch: int, commit: Commit) -> None:
        if sum(len(messages) for messages in commit.messages.values()) > 2:
            raise BusUnavailable("the transaction took too long")
        whole(self, epoch, commit)

    monkeypatch.setattr(MemoryProducer, "publish", publish)
    script = two_engines(tmp_path, settings=replace(SETTINGS, message_rows_max=1))
    script.world.pause("e0", FOREVER_MS)
    script.publish(*EVENTS * 6)
    script.until_active("e1")
    script.finish()

"""Sources that generate events: the timer, and the publishing of each step once through any number of kills (SPEC I11, I13)."""

from __future__ import annotations

import contextlib
import datetime
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.adapters.connectors import ConnectorSet, ConnectorState
from hotspare.adapters.esp.connector_mistakes import connector_mistakes
from hotspare.adapters.failover.source_position import PublishedSource, SourcePosition
from hotspare.adapters.files.canonical import KeyPresence
from hotspare.adapters.generated.publisher import publish_generated
from hotspare.adapters.generated.steps import GENERATOR_STATE_BYTES_MAX, GeneratedPosition, GeneratedStep, StepOutcome
from hotspare.adapters.generated.timer import Timer, TimerOptions, base_time_us
from hotspare.base.errors import BusError, ProjectError, UsageError
from hotspare.bus.contract import Partition
from hotspare.bus.memory import MemoryBus, MemoryBusClient
from hotspare.ha.rules.roles import Role
from hotspare.model.project import Connector, ConnectorDirection
from hotspare.model.types import Field, FieldType, KeyRole, Schema
from hotspare.projects.load import load_text
from hotspare.testing.cluster import wait_until

ID, TIME, LABEL = Field("id", FieldType.INT64, KeyRole.KEY), Field("time", FieldType.STAMP), Field("label", FieldType.STRING)
SCHEMA = Schema((ID, TIME, LABEL))
TOPIC = Partition("t")
BASE = "2020-06-08 00:56:00"
BASE_US = 1_591_577_760_000_000


def new_bus() -> MemoryBusClient:
    bus = MemoryBus().client("c")
    bus.create_topic(TOPIC.topic)
    return bus


def rows(bus: MemoryBusClient, partition: Partition = TOPIC) -> list[str]:
    messages = bus.read(partition, 0, messages_max=10_000, bytes_max=1 << 26)
    return [row for message in messages for row in message.value.decode().split("\n")]


def options(interval: int = 60, unit: str = "second", **more: object) -> TimerOptions:
    return TimerOptions(SCHEMA, interval, unit, **{"base_us": BASE_US, "label": "minutely"} | more)  # type: ignore[arg-type]


def test_the_first_times_are_exact() -> None:
    """SPEC I13."""
    timer = Timer(options())
    made = [row.decode() for _ in range(3) for row in timer.next_step().rows]
    assert made == [f'i,n,{k + 1},{BASE_US + k * 60_000_000},"minutely"' for k in range(3)]
    assert base_time_us(BASE, "") == BASE_US
    assert base_time_us("08/Jun/2020 00:56", "%d/%b/%Y %H:%M") == BASE_US


@pytest.mark.parametrize(
    ("base", "unit", "interval", "times"),
    [
        ("2024-01-31", "month", 1, ["2024-01-31", "2024-02-29", "2024-03-31", "2024-04-30"]),
        ("2024-02-29", "year", 1, ["2024-02-29", "2025-02-28", "2026-02-28", "2027-02-28", "2028-02-29"]),
        ("2024-01-31", "week", 2, ["2024-01-31", "2024-02-14"]),
        ("1969-12-31", "day", 1, ["1969-12-31", "1970-01-01"]),
    ],
)
def test_units_of_the_calendar(base: str, unit: str, interval: int, times: Sequence[str]) -> None:
    timer = Timer(options(interval, unit, base_us=base_time_us(base, "%Y-%m-%d")))
    epoch = datetime.datetime(1970, 1, 1)
    assert [(epoch + datetime.timedelta(microseconds=timer.time_us(k))).date().isoformat() for k in range(len(times))] == times


def test_a_window_that_makes_its_keys_gets_none_and_a_date_gets_seconds() -> None:
    schema = Schema((ID, Field("time", FieldType.DATE), LABEL))
    timer = Timer(TimerOptions(schema, 1, "hour", base_us=BASE_US, key=KeyPresence.ABSENT))
    assert timer.next_step().rows == [b"i,n,,%d," % (BASE_US // 1_000_000)]


@pytest.mark.parametrize(
    ("schema", "interval", "unit", "words"),
    [
        (SCHEMA, 0, "second", "interval"),
        (SCHEMA, 1, "fortnight", "unit"),
        (Schema((ID, TIME)), 1, "second", "schema"),
        (Schema((ID, LABEL, TIME)), 1, "second", "schema"),
        (Schema((ID, Field("time", FieldType.STAMP, KeyRole.KEY), LABEL)), 1, "second", "schema"),
    ],
)
def test_what_a_timer_cannot_do_is_refused(schema: Schema, interval: int, unit: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        TimerOptions(schema, interval, unit)


class Counting:
    """Step k makes `pattern[k]` rows, and keeps the sum of all."""

    def __init__(self, pattern: Sequence[int], interval_us: int = 0) -> None:
        self._pattern = pattern
        self._interval_us = interval_us
        self._steps = self._sum = 0

    def resume(self, position: GeneratedPosition) -> None:
        self._steps, self._sum = position.steps, int(position.generator_state or 0)

    def next_step(self) -> GeneratedStep:
        made = [b"i,n,%d.%d,%d" % (self._steps, i, self._sum + i) for i in range(self._pattern[self._steps])]
        self._steps, self._sum = self._steps + 1, self._sum + len(made)
        return GeneratedStep(made, StepOutcome.DONE if self._steps == len(self._pattern) else StepOutcome.GOES_ON)

    def save_state(self) -> str:
        return str(self._sum)

    def due_us(self, step: int) -> int:
        return step * self._interval_us


class Killed(Exception):
    pass


class FragileBus:
    """Dies at call number `at`, before or after its effect."""

    def __init__(self, bus: MemoryBusClient, at: int, after: bool) -> None:
        self._bus, self._left, self._after = bus, at, after

    def __getattr__(self, name: str) -> Callable[..., object]:
        call = getattr(self._bus, name)

        def wrapped(*arguments: object, **more: object) -> object:
            self._left -= 1
            if self._left == 0 and not self._after:
                raise Killed
            result = call(*arguments, **more)
            if self._left == 0:
                raise Killed
            return result

        return wrapped


@given(st.lists(st.integers(0, 3), min_size=1, max_size=30), st.lists(st.tuples(st.integers(1, 12), st.booleans()), max_size=6))
def test_each_step_is_published_once_through_any_number_of_kills(pattern: list[int], kills: list[tuple[int, bool]]) -> None:
    """SPEC I11."""
    bus = new_bus()
    expected = [row.decode() for generator in [Counting(pattern)] for _ in pattern for row in generator.next_step().rows]
    clock = iter(range(10**9, 10**12, 7))
    for at, after in kills:
        with contextlib.suppress(Killed):
            publish_generated(
                FragileBus(bus, at, after),  # type: ignore[arg-type]
                TOPIC,
                "s",
                lambda: Counting(pattern, 5),
                threading.Event(),
                clock_us=lambda: next(clock),
            )
    done = publish_generated(bus, TOPIC, "s", lambda: Counting(pattern), threading.Event())
    assert rows(bus) == expected
    assert (done.steps, done.events, done.is_done) == (len(pattern), len(expected), True)
    again = publish_generated(bus, TOPIC, "s", lambda: Counting(pattern), threading.Event())
    assert (again.is_done, rows(bus)) == (True, expected)


def test_steps_are_due_at_the_same_times_whoever_makes_them() -> None:
    """Steps that fell due while no publisher ran are made up for at once."""
    bus, stop, now_us = new_bus(), threading.Event(), [1_000_000]

    class Waiting(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            now_us[0] += int((timeout or 0) * 1e6)
            if now_us[0] >= until_us:
                self.set()
            return self.is_set()

    def run() -> None:
        publish_generated(bus, TOPIC, "s", lambda: Counting([1] * 100, 1_000_000), Waiting(), clock_us=lambda: now_us[0])

    until_us = 4_500_000
    run()
    assert len(rows(bus)) == 4
    now_us[0], until_us = 9_000_000, 9_500_000
    run()
    assert len(rows(bus)) == 9
    assert not stop.is_set()


def test_a_source_that_was_a_file_is_not_generated_on() -> None:
    bus = new_bus()
    source = PublishedSource(bus, TOPIC, "s")
    source.read_source_position()
    source.append([b"i,n,1,1"], [SourcePosition(7, "0a")], b"csv")
    with pytest.raises(BusError, match="published by another kind of connector"):
        publish_generated(bus, TOPIC, "s", lambda: Counting([1]), threading.Event())


def test_a_generator_that_keeps_too_much_is_refused() -> None:
    class Hoarder(Counting):
        def save_state(self) -> str:
            return "x" * (GENERATOR_STATE_BYTES_MAX + 1)

    with pytest.raises(UsageError, match="keeps"):
        publish_generated(new_bus(), TOPIC, "s", lambda: Hoarder([1]), threading.Event())


PROJECT = """
project: p
queries:
  q:
    singletons: included
    windows:
      ticks:
        type: source
        opcodes: any
        schema: id*:int64,time:stamp,label:string
        connectors:
          every: {kind: timer, direction: pub, properties: {basetime: "2020-06-08 00:56:00", interval: 1, unit: microsecond,
                  label: 'a, b', maxevents: 5}}
"""


def test_a_timer_of_a_project_goes_on_elsewhere(tmp_path: Path) -> None:
    """SPEC I11, I13."""
    bus = MemoryBus().client("engine")
    bus.create_topic("x.p.q.ticks.I")
    for _ in range(2):
        engine = ConnectorSet(load_text(PROJECT).resolved, bus, "x", tmp_path)
        engine.follow_role(Role.ACTIVE)
        wait_until(lambda engine=engine: engine.states()["q/ticks/every"] is ConnectorState.FINISHED, "the timer is done")
        engine.stop()
        made = rows(bus, Partition("x.p.q.ticks.I"))
        assert made == [f'i,n,{k + 1},{BASE_US + k},"a, b"' for k in range(5)]


@pytest.mark.parametrize(
    ("old", "new", "word"),
    [
        ("direction: pub", "direction: sub", "only publish"),
        ("unit: microsecond", "unit: moment", "unit"),
        ("interval: 1", "interval: 0", "interval"),
        ("label:string", "label:int64", "schema"),
        ("00:56:00", "00:99", "basetime"),
    ],
)
def test_mistakes_of_a_timer_are_told_when_the_project_is_loaded(old: str, new: str, word: str) -> None:
    with pytest.raises(ProjectError, match=word):
        load_text(PROJECT.replace(old, new), connectors=connector_mistakes)


@pytest.mark.parametrize(("kind", "word"), [("videocap", "camera"), ("mqtt", "no client"), ("db", "no client")])
def test_classes_that_cannot_run_here_are_refused_with_the_reason(kind: str, word: str) -> None:
    with pytest.raises(ProjectError, match=f"connector class '{kind}' does not exist yet.*{word}"):
        load_text(PROJECT.replace("kind: timer", f"kind: {kind}"))


def test_a_connector_whose_values_are_given_later_is_not_judged() -> None:
    connector = Connector("c", "timer", ConnectorDirection.PUBLISH, (("interval", "@EVERY@"),))
    assert connector_mistakes(connector, SCHEMA) == ()


def test_without_a_basetime_times_are_those_of_the_first_event_and_on() -> None:
    """A successor keeps to these times."""
    bus = new_bus()
    timer = options(1, "second", base_us=None, events_max=3)
    publish_generated(
        bus,
        TOPIC,
        "s",
        lambda: Timer(options(1, "second", base_us=None, events_max=1)),
        threading.Event(),
        clock_us=lambda: 5_000_000,
    )
    assert [row.split(",")[3] for row in rows(bus)] == ["5000000"]
    generator = Timer(timer)
    generator.resume(GeneratedPosition(2, 2, 5_000_000))
    assert generator.next_step().rows[0].startswith(b"i,n,3,7000000,")

"""Reads a failover scenario and plays it in a simulated cluster. README.md describes the form.

A scenario is parsed as a whole before it is played: a line that cannot be parsed is an error with its place.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from hotspare.bus.contract import Message, Partition
from hotspare.bus.memory import Fencing
from hotspare.ha.rules.roles import Role
from hotspare.ha.rules.settings import GroupSettings
from hotspare.ha.rules.view import PeerStatus
from hotspare.model.quality import SIMPLE
from hotspare.stores.contract import SnapshotStatus
from tests.simulation.calls import CallKind
from tests.simulation.fast_core import FastCore, FastCores
from tests.simulation.faults import Reach
from tests.simulation.kits import Kit, fast_kit
from tests.simulation.recent import RecentCore, from_recent_input
from tests.simulation.script import Script
from tests.simulation.world import GROUP, SETTINGS

FOREVER_MS = 1 << 40
WITHIN_MS = 5_000
"""The default time limit of an expectation."""
_UNIT_MS = {"ms": 1, "s": 1_000, "min": 60_000}
_TIME = r"(\d+) (ms|s|min)"
_WITHIN = rf"(?: within {_TIME})?"
_ENGINE = r"(e\d)"


@dataclass(frozen=True)
class Line:
    """A line of a scenario: its place, and the function to play, with its arguments."""

    place: str
    text: str
    play: Callable[..., None]
    arguments: tuple[str | None, ...]


@dataclass(frozen=True)
class Verb:
    usage: str
    pattern: re.Pattern[str]
    play: Callable[..., None]


VERBS: dict[str, list[Verb]] = {}
"""The forms of each first word of a line."""


def verb(usage: str, pattern: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    def register(play: Callable[..., None]) -> Callable[..., None]:
        VERBS.setdefault(usage.split()[0], []).append(Verb(usage, re.compile(pattern), play))
        return play

    return register


def read_scenario(path: Path) -> list[Line]:
    """Parses a scenario. Raises ValueError with the line that cannot be parsed, and the valid forms."""
    return [
        read_line(f"{path.name}:{number}", text.strip())
        for number, text in enumerate(path.read_text().splitlines(), 1)
        if text.strip() and not text.startswith("#")
    ]


def read_line(place: str, text: str) -> Line:
    word = text.split()[0]
    if word not in VERBS:
        raise ValueError(f"{place}: no such verb: {word}; the verbs are {', '.join(sorted(VERBS))}")
    for form in VERBS[word]:
        if match := form.pattern.fullmatch(text):
            return Line(place, text, form.play, match.groups())
    raise ValueError(f"{place}: not understood: {text}; it is written: {' or: '.join(form.usage for form in VERBS[word])}")


class Play:
    """A scenario in progress. The cluster is built when its first engine starts."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.settings = SETTINGS
        self.fencing = Fencing.BY_EPOCH
        self.qualities: dict[str, Any] = {}
        self.kit: Kit | None = None
        self._script: Script | None = None

    @property
    def script(self) -> Script:
        if self._script is None:
            names = tuple(f"e{i}" for i in range(10))
            self._script = Script(
                self._folder, *names, settings=self.settings, fencing=self.fencing, qualities=self.qualities, kit=self.kit
            )
        return self._script

    @property
    def world(self) -> Any:
        return self.script.world

    def run(self, lines: list[Line]) -> None:
        """Plays the lines. Raises AssertionError with the line's place and the story so far if an expectation fails."""
        for line in lines:
            try:
                line.play(self, *line.arguments)
            except AssertionError as failure:
                story = "\n  ".join(self.script.lines[-40:])
                raise AssertionError(f"{line.place}: {line.text}\n{failure}\nthe story so far:\n  {story}") from None
        if self._script is not None:
            self.world.close()

    def role(self, engine: str) -> str:
        process = self.world.processes.get(engine)
        return process.engine.role.value if process is not None else "gone"

    def until(self, condition: Callable[[], bool], amount: str | None, unit: str | None, what: Callable[[], str]) -> None:
        """Advances time until the condition holds."""
        within_ms = _ms(amount, unit) if amount and unit else WITHIN_MS
        begun_ms = self.world.now_ms
        while not condition():
            assert self.world.now_ms - begun_ms <= within_ms, f"not within {within_ms} ms: {what()}"
            self.world.turn()


def _ms(amount: str, unit: str) -> int:
    return int(amount) * _UNIT_MS[unit]


# --- before the first engine starts ---------------------------------------------------------------------------------------------


@verb("settings of hotspare run", r"settings of hotspare run")
def _default_settings(play: Play) -> None:
    play.settings = GroupSettings()


@verb("settings NAME VALUE", r"settings (\w+) (\d+)")
def _setting(play: Play, name: str, value: str) -> None:
    known = [each.name for each in fields(GroupSettings)]
    if name not in known:
        raise ValueError(f"no such setting: {name}; the settings are {', '.join(known)}")
    play.settings = replace(play.settings, **{name: int(value)})


@verb("fencing by epoch/generation", r"fencing (by epoch|by generation)")
def _fencing(play: Play, kind: str) -> None:
    play.fencing = Fencing(kind)


@verb("a short memory", r"a short memory")
def _short_memory(play: Play) -> None:
    play.kit = fast_kit(FastCores(kind=RecentCore))


@verb("stream STREAM is simple", r"stream (\S+) is simple")
def _simple(play: Play, stream: str) -> None:
    play.qualities[stream] = SIMPLE


# --- what happens ---------------------------------------------------------------------------------------------------------------


@verb("start E ...", rf"start ({_ENGINE}(?: e\d)*)")
def _start(play: Play, names: str, _: str) -> None:
    play.script.start(*names.split())


@verb("start E from recent input", rf"start {_ENGINE} from recent input")
def _start_from_recent_input(play: Play, name: str) -> None:
    from_recent_input(play.world, [name])
    play.script.start(name)


@verb("kill E ...", rf"kill ({_ENGINE}(?: e\d)*)")
def _kill(play: Play, names: str, _: str) -> None:
    for name in names.split():
        play.world.kill(name)


@verb("freeze E", rf"freeze {_ENGINE}")
def _freeze(play: Play, name: str) -> None:
    play.world.pause(name, FOREVER_MS)


@verb("thaw E", rf"thaw {_ENGINE}")
def _thaw(play: Play, name: str) -> None:
    play.world.processes[name].paused_until_ms = -1


@verb("stop E", rf"stop {_ENGINE}")
def _stop(play: Play, name: str) -> None:
    play.world.processes[name].engine.request_stop()


@verb("switch over [to E]", rf"switch over(?: to {_ENGINE})?")
def _switch_over(play: Play, name: str | None) -> None:
    play.world.coordination.client("world").request_switchover(GROUP, name or "")


@verb("publish N [to TOPIC]", r"publish (\d+)(?: to (in[01]))?")
def _publish(play: Play, count: str, topic: str | None) -> None:
    """Publishes even numbers, so that each is an output of both streams; to both topics in turn by default."""
    for number in range(int(count)):
        play.world.publish(int(topic[2]) if topic else number % 2, 2 * (number % 50))


@verb("publish every TIME for TIME", rf"publish every {_TIME} for {_TIME}")
def _publish_steadily(play: Play, amount: str, unit: str, long: str, long_unit: str) -> None:
    for ms in range(_ms(long, long_unit)):
        if ms % _ms(amount, unit) == 0:
            play.world.publish(ms // _ms(amount, unit) % 2, 2 * (ms % 50))
        play.world.turn()


@verb("hang E", rf"hang {_ENGINE}")
def _hang(play: Play, name: str) -> None:
    """Stops its pipeline, but not its timers."""
    play.world.processes[name].is_stuck = True


@verb("unhang E", rf"unhang {_ENGINE}")
def _unhang(play: Play, name: str) -> None:
    play.world.processes[name].is_stuck = False


@verb("lag E TIME", rf"lag {_ENGINE} {_TIME}")
def _lag(play: Play, name: str, amount: str, unit: str) -> None:
    """Lets it read this far behind the log while it is a spare."""
    play.world.processes[name].lag_ms = _ms(amount, unit)


@verb("wrong E", rf"wrong {_ENGINE}")
def _wrong(play: Play, name: str) -> None:
    """Changes its results from its next event on; every engine that is made wrong computes the same."""
    core = play.world.processes[name].state.core
    assert isinstance(core, FastCore)
    core.salt = 1


_REACHES = {"the bus": Reach.BUS, "coordination": Reach.COORDINATION, "bus and coordination": Reach.BOTH}


@verb("cut E from the bus/coordination/bus and coordination", rf"cut {_ENGINE} from ({'|'.join(_REACHES)})")
def _cut(play: Play, name: str, reach: str) -> None:
    play.world.plan.cut_off[name] = (FOREVER_MS, _REACHES[reach])


@verb("cut E from its peers", rf"cut {_ENGINE} from its peers")
def _cut_from_peers(play: Play, name: str) -> None:
    play.world.lasting.verdicts[name] = PeerStatus.UNKNOWN


@verb("lose the commits of E", rf"lose the commits of {_ENGINE}")
def _lose_commits(play: Play, name: str) -> None:
    """Its commits are not written and get no response; its other calls are answered."""
    play.world.plan.commits_lost.add(name)


@verb("join E again", rf"join {_ENGINE} again")
def _join(play: Play, name: str) -> None:
    play.world.plan.cut_off.pop(name, None)
    play.world.plan.commits_lost.discard(name)
    play.world.lasting.verdicts.pop(name, None)


@verb("believe of every holder: E closed/connected/unknown", rf"believe of every holder: {_ENGINE} (closed|connected|unknown)")
def _believe(play: Play, name: str, verdict: str) -> None:
    play.world.lasting.verdicts[name] = PeerStatus(verdict)


@verb("slow KIND TIME [of E]", rf"slow ({'|'.join(kind.value for kind in CallKind)}) {_TIME}(?: of {_ENGINE})?")
def _slow(play: Play, kind: str, amount: str, unit: str, name: str | None) -> None:
    """Delays each call of the kind by this time from now on; half of it is before the effect."""
    play.world.pace.set_ms[name or "", CallKind(kind)] = _ms(amount, unit)


@verb("lock the bus by E/a stranger", rf"lock the bus by (?:{_ENGINE}|a stranger)")
def _lock(play: Play, name: str | None) -> None:
    """Holds the write lock of the embedded bus; if an engine holds it, until it thaws or dies."""
    play.world.plan.lock_holder = name or "a stranger"


@verb("unlock the bus", r"unlock the bus")
def _unlock(play: Play) -> None:
    play.world.plan.lock_holder = ""


@verb("break bus/coordination", r"break (bus|coordination)")
def _break(play: Play, what: str) -> None:
    setattr(play.world.plan, f"{what}_down_until_ms", FOREVER_MS)


@verb("mend bus/coordination", r"mend (bus|coordination)")
def _mend(play: Play, what: str) -> None:
    setattr(play.world.plan, f"{what}_down_until_ms", 0)


@verb("lose progress", r"lose progress")
def _lose_progress(play: Play) -> None:
    play.world.bus.progress.clear()


@verb("damage the newest snapshot", r"damage the newest snapshot")
def _damage(play: Play) -> None:
    newest = next(i for i in play.world.store.list(GROUP) if i.status is SnapshotStatus.CONFIRMED)
    play.world.store.damage(GROUP, newest.name)


@verb("trim the input", r"trim the input")
def _trim(play: Play) -> None:
    """Trims input that the newest confirmed snapshot does not need."""
    play.world.trim_input()


@verb("leap TOPIC TIME", rf"leap (in[01]) {_TIME}")
def _leap(play: Play, topic: str, amount: str, unit: str) -> None:
    """Publishes an event whose append time is this far ahead."""
    play.world.publish(int(topic[2]), 2)
    log = play.world.bus.log(Partition(topic))
    newest = log.messages[-1]
    time_us = newest.append_time_us + _ms(amount, unit) * 1_000
    log.messages[-1] = Message(newest.offset, time_us, newest.value, newest.headers)


# --- time, and what is expected -------------------------------------------------------------------------------------------------


@verb("tick", r"tick")
def _tick(play: Play) -> None:
    play.world.turn()


@verb("wait TIME", rf"wait {_TIME}")
def _wait(play: Play, amount: str, unit: str) -> None:
    for _ in range(_ms(amount, unit)):
        play.world.turn()


@verb("alone E for TIME", rf"alone {_ENGINE} for {_TIME}")
def _alone(play: Play, name: str, amount: str, unit: str) -> None:
    """Advances only this engine."""
    for _ in range(_ms(amount, unit)):
        play.world.turn(name)


@verb("delivered N-M [of STREAM] [within TIME]", rf"delivered (\d+)-(\d+)(?: of (\S+))?{_WITHIN}")
def _delivered(play: Play, first: str, last: str, stream: str | None, amount: str | None, unit: str | None) -> None:
    """Expects these outputs, each once and equal to those of an uninterrupted run, and none after them."""
    name, observer = stream or "q/a", play.world.observer

    def come() -> list[int]:
        return [row[0] for row in observer.rows.get(name, []) if row[0] >= int(first)]

    play.until(lambda: observer.delivered()[name] >= int(last), amount, unit, lambda: f"{name} has {come()}")
    assert come() == list(range(int(first), int(last) + 1)), f"{name} has {come()}"
    reference = play.world.reference()[name]
    for row in observer.rows[name]:
        assert row == reference[row[0] - 1], f"output {row[0]} is {row}, should be {reference[row[0] - 1]}"


@verb("all is delivered [within TIME]", rf"all is delivered{_WITHIN}")
def _all_delivered(play: Play, amount: str | None, unit: str | None) -> None:
    """Expects all outputs that are due, with the right values."""
    due, come = play.script.due(), play.world.observer.delivered
    play.until(lambda: all(come()[s] >= n for s, n in due.items()), amount, unit, lambda: f"{come()} of {due}")
    play.world.check_end(due)


_STATES = "|".join([*(role.value for role in Role), "gone"])


@verb("role E ROLE [within TIME]", rf"role {_ENGINE} ({_STATES}){_WITHIN}")
def _role(play: Play, name: str, role: str, amount: str | None, unit: str | None) -> None:
    """Expects that it gets this role in time; `gone`: its process has ended."""
    play.until(lambda: play.role(name) == role, amount, unit, lambda: f"{name} is {play.role(name)}")


@verb("still E ROLE", rf"still {_ENGINE} ({_STATES})")
def _still(play: Play, name: str, role: str) -> None:
    assert play.role(name) == role, f"{name} is {play.role(name)}"


@verb("epochs N[-M]", r"epochs (\d+)(?:-(\d+))?")
def _epochs(play: Play, least: str, most: str | None) -> None:
    """Expects the group's newest epoch in this range: the number of elections."""
    epoch = play.world.coordination.group(GROUP).role.epoch
    assert int(least) <= epoch <= int(most or least), f"the epoch is {epoch}"


@verb("snapshot confirmed [by E] [within TIME]", rf"snapshot confirmed(?: by {_ENGINE})?{_WITHIN}")
def _snapshot(play: Play, name: str | None, amount: str | None, unit: str | None) -> None:
    """Expects that a snapshot written from now on is confirmed."""
    since_us = play.world.now_ms * 1_000

    def is_there() -> bool:
        new = [i for i in play.world.store.list(GROUP) if i.written_time_us >= since_us and i.engine == (name or i.engine)]
        return any(i.status is SnapshotStatus.CONFIRMED for i in new)

    play.until(
        is_there, amount, unit, lambda: f"{len(play.world.store.list(GROUP))} snapshots are there, none is new and confirmed"
    )


@verb("told TEXT", r"told (.+)")
def _told(play: Play, text: str) -> None:
    assert play.script.told(text), "no line of the story has it"


@verb("never told TEXT", r"never told (.+)")
def _never_told(play: Play, text: str) -> None:
    assert not play.script.told(text), "a line of the story has it"

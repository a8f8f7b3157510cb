"""Clocks and random numbers of user code: the time of the event, and numbers that its position determines."""

from __future__ import annotations

import datetime as real
import random
import uuid
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from hotspare.scripting.python.name_lists import split_names

UUID, TIME_TUPLE = uuid.UUID, type(real.datetime(1970, 1, 1).timetuple())
_EPOCH = real.datetime(1970, 1, 1, tzinfo=real.UTC)


class VirtualClock:
    """The time and the random generator of the current call. `reset_call` sets both before each call."""

    __slots__ = ("_generator", "seed", "time_us")

    def __init__(self) -> None:
        self.reset_call(0, 0)

    def reset_call(self, time_us: int, seed: int) -> None:
        self.time_us, self.seed = time_us, seed
        self._generator: Any = None

    @property
    def generator(self) -> Any:
        """The random generator of this call, seeded with `seed` and built at first use because that costs more than a call."""
        if self._generator is None:
            self._generator = random.Random(self.seed)  # noqa: S311 they are meant to be known
        return self._generator

    def utc(self) -> real.datetime:
        return _EPOCH + real.timedelta(microseconds=self.time_us)


class EventDate(real.date):
    """The class `datetime.date` of user code, in which `today` returns the day of the event."""

    _clock: ClassVar[VirtualClock]

    @classmethod
    def today(cls) -> Any:
        now = cls._clock.utc()
        return cls(now.year, now.month, now.day)

    @classmethod
    def fromtimestamp(cls, timestamp: float, /) -> Any:
        made = real.datetime.fromtimestamp(timestamp, real.UTC)
        return cls(made.year, made.month, made.day)


class EventDatetime(real.datetime):
    """The class `datetime.datetime` of user code, in which `now` returns the time of the event, and the machine's zone is UTC."""

    _clock: ClassVar[VirtualClock]
    _date: ClassVar[type[EventDate]]

    @classmethod
    def now(cls, tz: real.tzinfo | None = None) -> Any:
        now = cls._clock.utc()
        return cls._from_datetime(now.replace(tzinfo=None) if tz is None else now.astimezone(tz))

    @classmethod
    def utcnow(cls) -> Any:
        return cls.now()

    @classmethod
    def today(cls) -> Any:
        return cls.now()

    @classmethod
    def fromtimestamp(cls, timestamp: float, tz: real.tzinfo | None = None) -> Any:
        made = real.datetime.fromtimestamp(timestamp, real.UTC)
        return cls._from_datetime(made.replace(tzinfo=None) if tz is None else made.astimezone(tz))

    @classmethod
    def utcfromtimestamp(cls, timestamp: float, /) -> Any:
        return cls.fromtimestamp(timestamp)

    @classmethod
    def _from_datetime(cls, made: real.datetime) -> Any:
        parts = made.year, made.month, made.day, made.hour, made.minute, made.second, made.microsecond
        return cls(*parts, made.tzinfo, fold=made.fold)

    def date(self) -> Any:
        return self._date(self.year, self.month, self.day)

    def timestamp(self) -> float:
        return (self.replace(tzinfo=real.UTC) if self.tzinfo is None else self)._exact().timestamp()

    def astimezone(self, tz: real.tzinfo | None = None) -> Any:
        known = self.replace(tzinfo=real.UTC) if self.tzinfo is None else self
        return type(self)._from_datetime(known._exact().astimezone(tz or real.UTC))

    def _exact(self) -> real.datetime:
        parts = self.year, self.month, self.day, self.hour, self.minute, self.second, self.microsecond
        return real.datetime(*parts, self.tzinfo, fold=self.fold)


def datetime_members(clock: VirtualClock) -> Mapping[str, Any]:
    """Returns the members of the module `datetime`. Its classes `date` and `datetime` take the current time from `clock`."""
    date = type("date", (EventDate,), {"_clock": clock, "__module__": "datetime"})
    datetime = type("datetime", (EventDatetime,), {"_clock": clock, "_date": date, "__module__": "datetime"})
    for kind in (date, datetime):
        least, most = kind.min, kind.max  # type: ignore[attr-defined]
        kind.min, kind.max = (  # type: ignore[attr-defined]
            kind(*each.timetuple()[:3]) if kind is date else datetime._from_datetime(each)  # type: ignore[attr-defined]
            for each in (least, most)
        )
    kept = ("MAXYEAR", "MINYEAR", "UTC", "time", "timedelta", "timezone", "tzinfo")
    return {name: getattr(real, name) for name in kept} | {"datetime": datetime, "date": date}


def time_members(clock: VirtualClock) -> Mapping[str, Any]:
    """Returns the members of `time` that read a clock; each returns the time of the event."""

    def seconds() -> float:
        return clock.time_us / 1_000_000

    def nanoseconds() -> int:
        return clock.time_us * 1000

    readers: dict[str, Callable[[], Any]] = dict.fromkeys(("time", "monotonic", "perf_counter", "process_time"), seconds)
    readers |= {f"{name}_ns": nanoseconds for name in tuple(readers)}
    return readers


def random_members(clock: VirtualClock) -> Mapping[str, Any]:
    """Returns the members of `random`, which use the generator of the call. The function `seed` is omitted, because the event's
    position determines the seed.
    """

    def drawing(name: str) -> Callable[..., Any]:
        return lambda *arguments, **named: getattr(clock.generator, name)(*arguments, **named)

    names = split_names(
        """
        random uniform randint randrange choice choices sample shuffle gauss normalvariate expovariate triangular
        betavariate gammavariate lognormvariate paretovariate weibullvariate getrandbits randbytes
        """
    )
    return {name: drawing(name) for name in names}


def uuid_members(clock: VirtualClock) -> Mapping[str, Any]:
    """Returns the members of `uuid` that do not read the machine; `uuid4` uses the random generator of the call."""

    def uuid4() -> Any:
        return uuid.UUID(int=clock.generator.getrandbits(128), version=4)

    kept = ("UUID", "uuid3", "uuid5", "NAMESPACE_DNS", "NAMESPACE_URL", "NAMESPACE_OID", "NAMESPACE_X500")
    return {name: getattr(uuid, name) for name in kept} | {"uuid4": uuid4}

"""Clocks and random numbers of people's code: the time of the event, and numbers that its position determines."""

from __future__ import annotations

import datetime as real
import random
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from hotspare.engine.code.python.meter import Meter
from hotspare.engine.code.python.words import words

_EPOCH = real.datetime(1970, 1, 1, tzinfo=real.UTC)


class CallClock:
    """What time it is for the code, and the numbers that it draws; set before each call."""

    __slots__ = ("_generator", "meter", "seed", "time_us")

    def __init__(self, meter: Meter) -> None:
        self.meter = meter
        self.set(0, 0)

    def set(self, time_us: int, seed: int) -> None:
        self.time_us, self.seed = time_us, seed
        self._generator: Any = None

    @property
    def generator(self) -> Any:
        """Random numbers of this call. Made when it is first used: that costs more than a call."""
        if self._generator is None:
            self._generator = random.Random(self.seed)  # noqa: S311 they are meant to be known
        return self._generator

    def utc(self) -> real.datetime:
        return _EPOCH + real.timedelta(microseconds=self.time_us)


def datetime_members(clock: CallClock) -> Mapping[str, Any]:
    """The module `datetime`, in which it is the time of the event, and the zone of the machine is UTC."""

    class datetime(real.datetime):
        @classmethod
        def now(cls, tz: real.tzinfo | None = None) -> Any:
            now = clock.utc()
            return cls._of(now.replace(tzinfo=None) if tz is None else now.astimezone(tz))

        @classmethod
        def utcnow(cls) -> Any:
            return cls._of(clock.utc().replace(tzinfo=None))

        @classmethod
        def today(cls) -> Any:
            return cls._of(clock.utc().replace(tzinfo=None))

        @classmethod
        def fromtimestamp(cls, timestamp: float, tz: real.tzinfo | None = None) -> Any:
            made = real.datetime.fromtimestamp(timestamp, real.UTC)
            return cls._of(made.replace(tzinfo=None) if tz is None else made.astimezone(tz))

        @classmethod
        def utcfromtimestamp(cls, timestamp: float) -> Any:
            return cls.fromtimestamp(timestamp)

        @classmethod
        def _of(cls, made: real.datetime) -> Any:
            parts = made.year, made.month, made.day, made.hour, made.minute, made.second, made.microsecond
            return cls(*parts, made.tzinfo, fold=made.fold)

        def timestamp(self) -> float:
            return (self.replace(tzinfo=real.UTC) if self.tzinfo is None else self)._exact().timestamp()

        def astimezone(self, tz: real.tzinfo | None = None) -> Any:
            known = self.replace(tzinfo=real.UTC) if self.tzinfo is None else self
            return type(self)._of(known._exact().astimezone(tz or real.UTC))

        def _exact(self) -> real.datetime:
            parts = self.year, self.month, self.day, self.hour, self.minute, self.second, self.microsecond
            return real.datetime(*parts, self.tzinfo, fold=self.fold)

    class date(real.date):
        @classmethod
        def today(cls) -> Any:
            now = clock.utc()
            return cls(now.year, now.month, now.day)

        @classmethod
        def fromtimestamp(cls, timestamp: float) -> Any:
            made = real.datetime.fromtimestamp(timestamp, real.UTC)
            return cls(made.year, made.month, made.day)

    kept = ("MAXYEAR", "MINYEAR", "UTC", "time", "timedelta", "timezone", "tzinfo")
    return {name: getattr(real, name) for name in kept} | {"datetime": datetime, "date": date}


def time_members(clock: CallClock) -> Mapping[str, Any]:
    """What of the module `time` reads a clock: the time of the event, whichever clock is asked."""

    def seconds() -> float:
        return clock.time_us / 1_000_000

    def nanoseconds() -> int:
        return clock.time_us * 1000

    readers: dict[str, Callable[[], Any]] = dict.fromkeys(("time", "monotonic", "perf_counter", "process_time"), seconds)
    readers |= {f"{name}_ns": nanoseconds for name in tuple(readers)}
    return readers


def random_members(clock: CallClock) -> Mapping[str, Any]:
    """The module `random`; each call begins with a seed that the position of the event determines. `seed` has no meaning here."""

    def drawing(name: str) -> Callable[..., Any]:
        def draw(*arguments: Any, **named: Any) -> Any:
            generator = clock.generator
            for argument in (*arguments, *named.values()):
                if hasattr(argument, "__len__"):
                    clock.meter.charge(len(argument))
                elif isinstance(argument, int):
                    clock.meter.charge(0)
            if name in ("choices", "sample", "getrandbits", "randbytes"):
                most = max((each for each in (*arguments, *named.values()) if isinstance(each, int)), default=0)
                clock.meter.charge(most)
            return getattr(generator, name)(*arguments, **named)

        return draw

    names = words(
        """
        random uniform randint randrange choice choices sample shuffle gauss normalvariate expovariate triangular
        betavariate gammavariate lognormvariate paretovariate weibullvariate getrandbits randbytes
        """
    )
    return {name: drawing(name) for name in names}


def uuid_members(clock: CallClock) -> Mapping[str, Any]:
    """The module `uuid` without what asks the machine; uuid4 comes of the random numbers of the call."""

    def uuid4() -> Any:
        return uuid.UUID(int=clock.generator.getrandbits(128), version=4)

    kept = ("UUID", "uuid3", "uuid5", "NAMESPACE_DNS", "NAMESPACE_URL", "NAMESPACE_OID", "NAMESPACE_X500")
    return {name: getattr(uuid, name) for name in kept} | {"uuid4": uuid4}

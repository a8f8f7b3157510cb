"""Law Twin: each compiled kernel equals its plain-Python twin, bit for bit.

Each kernel that is called from Python has a generator of inputs. Running their twins on these yields calls of all other kernels. A
kernel that is never reached fails the law.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np
import pytest

from hotspare.rows.compile import KERNELS, import_all, plain
from tests.laws.kernel_inputs import GENERATORS

pytestmark = pytest.mark.law

import_all()

SAMPLES_MAX = 24


class Recorder:
    """Records calls of kernels while twins run: copies of the arguments before the call; of each kernel the first few, and then
    ever fewer."""

    def __init__(self) -> None:
        self.calls: dict[str, list[tuple[Any, ...]]] = {name: [] for name in KERNELS}
        self.seen = dict.fromkeys(KERNELS, 0)
        self._names = {id(kernel): name for name, kernel in KERNELS.items()}
        self._twins: dict[str, Callable[..., Any]] = {}

    def record(self, name: str, args: tuple[Any, ...]) -> None:
        seen = self.seen[name]
        self.seen[name] = seen + 1
        if len(self.calls[name]) < SAMPLES_MAX and (seen < 8 or seen & (seen - 1) == 0):
            self.calls[name].append(copy.deepcopy(args))

    def twin(self, name: str) -> Callable[..., Any]:
        """Returns the plain-Python twin, which records itself and all kernels that it calls."""
        if name in self._twins:
            return self._twins[name]
        function = KERNELS[name].py_func
        assert isinstance(function, FunctionType)
        world = dict(function.__globals__)
        for used in function.__code__.co_names:
            if id(world.get(used)) in self._names:
                world[used] = self.twin(self._names[id(world[used])])
        inner = FunctionType(function.__code__, world, function.__name__, function.__defaults__)

        def recorded(*args: Any) -> Any:
            self.record(name, args)
            return inner(*args)

        self._twins[name] = recorded
        return recorded


@pytest.fixture(scope="module")
def recorded() -> Recorder:
    recorder = Recorder()
    with np.errstate(all="ignore"):
        for name, generator in GENERATORS.items():
            for args in generator():
                recorder.twin(name)(*args)
    return recorder


def test_every_kernel_is_reached(recorded: Recorder) -> None:
    assert sorted(name for name, calls in recorded.calls.items() if not calls) == []


@pytest.mark.parametrize("name", sorted(KERNELS))
def test_twin(name: str, recorded: Recorder) -> None:
    check_twin(name, KERNELS[name], recorded.calls[name])


def check_twin(name: str, compiled: Callable[..., Any], calls: list[tuple[Any, ...]]) -> None:
    twin = plain(KERNELS[name])
    for args in calls:
        mine, other = copy.deepcopy(args), copy.deepcopy(args)
        result = compiled(*mine)
        with np.errstate(all="ignore"):
            expected = twin(*other)
        assert bits((result, mine)) == bits((expected, other))


def bits(value: Any) -> Any:
    """Returns a comparable form without losing a bit: arrays as bytes, numbers by their own bits."""
    if isinstance(value, tuple):
        return [bits(item) for item in value]
    if isinstance(value, np.ndarray):
        return (value.dtype.str, value.shape, value.tobytes())
    if isinstance(value, float | np.floating):
        return np.float64(value).tobytes()
    return None if value is None else int(value) % 2**64


def test_the_law_bites() -> None:
    """A twin that differs in the last bit is found."""
    twin = plain(KERNELS["calculate.slide"])

    def other_bit(values: Any, valid: Any, window: Any, out: Any, missed: Any) -> None:
        twin(values, valid, window, out, missed)
        out.sums[:] = np.nextafter(out.sums, np.inf)

    calls = [args for _, args in zip(range(8), GENERATORS["calculate.slide"](), strict=False)]
    with np.errstate(all="ignore"), pytest.raises(AssertionError):
        check_twin("calculate.slide", other_bit, calls)

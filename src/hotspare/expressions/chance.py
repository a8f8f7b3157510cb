"""What SAS draws by chance, drawn from the place of the event: equal in every engine, in every cut and after a restore (SPEC Z8).

The place is the number of the event among those that came to the window; the seed tells calls from each other.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hotspare.expressions.frame import Frame, Value
from hotspare.expressions.function import DOUBLE, INT64, STRING, Function, eager, fixed
from hotspare.expressions.tree import TypedCall

_UInt64s = npt.NDArray[np.uint64]
_STEP = np.uint64(0x9E3779B97F4A7C15)
_FACTORS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_FRACTION = 2.0**-53


def _mixed(seed: Value, position: Value, draw: int) -> _UInt64s:
    """64 bits for each position: the generator splitmix64, begun anew for each."""
    with np.errstate(over="ignore"):
        begin = np.uint64((seed.as_py() or 0) % (1 << 64)) + np.uint64(draw) * _FACTORS[0]
        bits: _UInt64s = begin ^ (position.fill_null(0).to_numpy().astype(np.uint64) * _STEP)
        for _ in range(2):
            bits = bits + _STEP
            bits = (bits ^ (bits >> np.uint64(30))) * _FACTORS[0]
            bits = (bits ^ (bits >> np.uint64(27))) * _FACTORS[1]
            bits = bits ^ (bits >> np.uint64(31))
    return bits


def _random(frame: Frame, _call: TypedCall, arguments: list[Value]) -> Value:
    position, seed, *limits = arguments
    low, high = (limits[i] if i < len(limits) else pa.scalar(float(i)) for i in (0, 1))
    position = frame.array(position)
    fraction = pa.array((_mixed(seed, position, 0) >> np.uint64(11)).astype(np.float64) * _FRACTION)
    drawn = pc.add(low, pc.multiply(fraction, pc.subtract(high, low)))
    return pc.if_else(position.is_valid(), drawn, pa.scalar(None, pa.float64()))


def _guid(frame: Frame, _call: TypedCall, arguments: list[Value]) -> Value:
    position, seed = frame.array(arguments[0]), arguments[1]
    first, second = _mixed(seed, position, 1).tolist(), _mixed(seed, position, 2).tolist()
    made = [None if p is None else _written(a, b) for p, a, b in zip(position.to_pylist(), first, second, strict=True)]
    return pa.array(made, pa.string())


def _written(first: int, second: int) -> str:
    """128 bits in the form of a UUID of version 8, which is anybody's own."""
    digits = f"{first & ~0xF000 | 0x8000:016x}{second & ~(3 << 62) | (2 << 62):016x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


FUNCTIONS: tuple[Function, ...] = (
    Function(
        "random",
        fixed(DOUBLE, INT64, INT64, DOUBLE, DOUBLE, required=2),
        eager(_random),
        "a number drawn from the place of the event",
        literals=(1,),
    ),
    Function("guid", fixed(STRING, INT64, INT64), eager(_guid), "an identifier drawn from the place of the event", literals=(1,)),
)

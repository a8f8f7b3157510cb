"""The digests of a stream as a chain: each digest combines the digest before with a hash of its output alone.

So an output's own hash can be extracted from two consecutive digests, and the same outputs can be chained to another beginning. An
engine that began to compute in the middle of a stream needs this: it chains its outputs to the digest that its group has committed
(`ha.rules.warming`).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_ALL = (1 << 64) - 1
_M1, _M2 = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_BACK_1, _BACK_2 = pow(_M1, -1, 1 << 64), pow(_M2, -1, 1 << 64)


def mixed(x: int) -> int:
    """Returns the same hash as `table.loops.hashing.mix` for a number below 2^64."""
    x = (x ^ (x >> 30)) * _M1 & _ALL
    x = (x ^ (x >> 27)) * _M2 & _ALL
    return x ^ (x >> 31)


def unmixed(x: int) -> int:
    """Returns the number that `mixed` maps to `x`."""
    x = _unshifted(x, 31) * _BACK_2 & _ALL
    x = _unshifted(x, 27) * _BACK_1 & _ALL
    return _unshifted(x, 30)


def _unshifted(x: int, bits: int) -> int:
    """Returns the number y for which x == y ^ (y >> bits)."""
    found = x
    for _ in range(64 // bits):
        found = x ^ (found >> bits)
    return found


def chained(digest: int, hash_: int) -> int:
    """Returns the digest of a stream up to an output whose hash is `hash_`. `digest`: the stream's digest up to the output
    before."""
    return mixed(digest ^ hash_)


def rechained(digests: NDArray[np.uint64], before: int, base: int) -> NDArray[np.uint64]:
    """Returns the digests that the same outputs have if the chain begins at the digest `base` instead of `before`."""
    found = np.empty(len(digests), np.uint64)
    for i, digest in enumerate(digests.tolist()):
        base = mixed(base ^ unmixed(digest) ^ before)
        before, found[i] = digest, base
    return found

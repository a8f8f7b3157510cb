"""Digests can be chained to another beginning, and equal those of the kernels."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hotspare.flow.digest_chain import chained, mixed, rechained, unmixed
from hotspare.table.loops.hashing import mix

NUMBERS = st.integers(0, (1 << 64) - 1)


@given(x=NUMBERS)
def test_it_mixes_as_the_kernel_does_and_back(x: int) -> None:
    assert mixed(x) == int(mix(np.uint64(x)))
    assert unmixed(mixed(x)) == x


@given(hashes=st.lists(NUMBERS, min_size=1, max_size=20), before=NUMBERS, base=NUMBERS)
def test_the_same_outputs_behind_another_digest(hashes: list[int], before: int, base: int) -> None:
    def chain(digest: int) -> list[int]:
        return [digest := chained(digest, each) for each in hashes]

    assert rechained(np.array(chain(before), np.uint64), before, base).tolist() == chain(base)

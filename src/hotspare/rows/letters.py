"""Opcodes and flags as the letters used in CSV and expressions (SPEC A8, A9, A26)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hotspare.model.events import FLAG_LETTER, OPCODE_LETTER, Flag, Opcode

OPCODE_TEXTS = pa.array([OPCODE_LETTER[Opcode(i)] if i else "?" for i in range(max(Opcode) + 1)], pa.string())
FLAG_TEXTS = pa.array(["".join(FLAG_LETTER[flag] for flag in Flag if flag & bits) for bits in range(sum(Flag) + 1)], pa.string())

"""The letters of opcodes, by number, and of sets of flags, by their bits."""


def opcode_letters(opcode: npt.NDArray[np.uint8] | pa.Array) -> pa.Array:
    """Returns the letters of each opcode: I, U, P, D, SD or UB."""
    return OPCODE_TEXTS.take(opcode if isinstance(opcode, pa.Array) else pa.array(opcode))


def flag_letters(flags: npt.NDArray[np.uint8] | pa.Array) -> pa.Array:
    """Returns the letters of each set of flags: those of N, P and R that are set, joined in that order."""
    return FLAG_TEXTS.take(flags if isinstance(flags, pa.Array) else pa.array(flags))

"""A publishing transaction over all streams: what goes into it, and that it is under way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hotspare.bus.contract import Commit
from hotspare.ha.calls.underway import Underway
from hotspare.ha.outputs.blocks import Block


@dataclass(frozen=True, slots=True)
class NextCommit:
    """`sent`: per stream the newest sequence that is on the topic once this is committed, recorded as progress or not.

    `rows` and `bytes` count its outputs. `cut`: the first stream of which some had to be left for the next one, "" for none.
    `blocks` are its messages.
    """

    commit: Commit
    sent: Mapping[str, int]
    rows: int = 0
    bytes: int = 0
    cut: str = ""
    blocks: Sequence[Block] = ()


@dataclass(frozen=True, slots=True)
class Transaction:
    """`content` is being committed since `begun_ms`; the engine goes on meanwhile, but begins no other transaction."""

    content: NextCommit
    call: Underway
    begun_ms: int

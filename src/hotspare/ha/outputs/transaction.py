"""A publishing transaction over all streams: its content, and its state while it is under way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hotspare.bus.contract import Commit
from hotspare.ha.calls.pending_call import PendingCall
from hotspare.ha.outputs.blocks import Block


@dataclass(frozen=True, slots=True)
class NextCommit:
    """The content of a transaction. `sent`: by stream, the newest sequence on the topic once this is committed, with or without
    progress.

    `rows` and `bytes` count its outputs. `cut_stream`: the first stream of which some outputs were left for the next one, "" for
    none. `blocks` are its messages.
    """

    commit: Commit
    sent: Mapping[str, int]
    rows: int = 0
    bytes: int = 0
    cut_stream: str = ""
    blocks: Sequence[Block] = ()


@dataclass(frozen=True, slots=True)
class Transaction:
    """A transaction under way: `content` is committed since `begun_ms`. The engine continues meanwhile, but begins no other."""

    content: NextCommit
    call: PendingCall
    begun_ms: int

"""Describes a publishing transaction over all streams: its content, and its state while it is under way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hotspare.bus.contract import Commit
from hotspare.ha.calls.pending_call import PendingCall
from hotspare.ha.outputs.blocks import Block


@dataclass(frozen=True, slots=True)
class NextCommit:
    """The content of a transaction. `sent`: by stream, the newest sequence on the topic once it is committed, whether or not its
    progress is included.

    `rows` and `bytes` count its outputs. `cut_stream`: the first stream of which the limits left outputs for the next transaction,
    "" for none. `blocks` are its messages.
    """

    commit: Commit
    sent: Mapping[str, int]
    rows: int = 0
    bytes: int = 0
    cut_stream: str = ""
    blocks: Sequence[Block] = ()


@dataclass(frozen=True, slots=True)
class Transaction:
    """A transaction under way: `call` commits `content` since `begun_ms`. The engine continues to compute meanwhile, but begins no
    other transaction."""

    content: NextCommit
    call: PendingCall
    begun_ms: int

"""The doors of a group to the world: everything that it does outside its own memory goes through one of these."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from hotspare.bus.contract import Bus
from hotspare.coordination.contract import Coordination, Leader
from hotspare.ha.events import HaEvent
from hotspare.ha.view import PeerPort
from hotspare.stores.contract import Store


class BlockCodec(Protocol):
    """One message of an output topic from and to output rows: `hotspare.engine.codec.arrow_block`."""

    def encode(self, rows: pa.RecordBatch) -> bytes: ...

    def decode(self, value: bytes) -> pa.RecordBatch: ...


@dataclass(frozen=True, slots=True)
class Ports:
    """`clock_ms`: this process's monotonic milliseconds.

    `background` runs a job that may take long, now or in another thread, once. `end_process` ends the frozen process that a leader
    record names, after checking that it is that very process on this machine; False when it is not. `report` must not raise.
    """

    bus: Bus
    coordination: Coordination
    store: Store
    peers: PeerPort
    codec: BlockCodec
    clock_ms: Callable[[], int]
    report: Callable[[HaEvent], None]
    background: Callable[[Callable[[], None]], None]
    end_process: Callable[[Leader], bool]

"""Faults that last for the whole run, healed or not: a group has to live with them."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field

from hotspare.ha.rules.view import PeerStatus
from tests.simulation.faults import FaultKind

_VERDICTS = {
    FaultKind.VERDICT_UNKNOWN: PeerStatus.UNKNOWN,
    FaultKind.VERDICT_CONNECTED: PeerStatus.CONNECTED,
    FaultKind.VERDICT_CLOSED: PeerStatus.CLOSED,
}
_LAGS_MS = (3, 9, 30, 90)
"""The longest exceeds a lease."""
FEW_ROWS_BYTES = 2_000
"""A message of any one row of the small core fits, and one of a few rows; one of sixteen does not."""
_ENGINES_MAX = 3
_COMMIT_ROWS = (1, 3, 7)
_DETECTIONS_MS = (1, 3, 3, 10)


@dataclass
class Lasting:
    """The lasting faults of a run. Per engine: its verdict about every holder, true or not, and its lag as a spare. `storeless`
    engines reach no store; the pipeline of `hung` hangs while it is a spare of a calm group."""

    verdicts: dict[str, PeerStatus] = field(default_factory=dict)
    lags_ms: dict[str, int] = field(default_factory=dict)
    storeless: frozenset[str] = frozenset()
    hung: str = ""
    astray: str = ""
    """The engine with a store other than the group's: it is refused whenever it starts."""
    cold: frozenset[str] = frozenset()
    """Engines that are cold spares in every life."""
    recent: Mapping[str, int] = field(default_factory=dict)
    """Engines that rebuild their state from recent input, with the span of input that matters, in us."""
    sees_the_end: frozenset[str] = frozenset()
    """Engines on the machine of all others, which see their processes end."""
    detection_ms: int = 3
    message_bytes: int = 0
    """The largest message that output topics take; 0: any."""
    commit_rows: int = 0
    """Larger transactions time out; 0: none does."""

    @property
    def is_role_restless(self) -> bool:
        """Whether a healthy holder is taken for dead again and again."""
        return PeerStatus.CLOSED in self.verdicts.values()

    @property
    def lag_ms_max(self) -> int:
        return max(self.lags_ms.values(), default=0)


def drawn(rng: random.Random, enabled: frozenset[FaultKind], names: tuple[str, ...]) -> Lasting:
    """Draws the lasting faults of a run with these kinds of faults."""
    lasting = Lasting(detection_ms=rng.choice(_DETECTIONS_MS))
    if rng.random() < 0.5:
        lasting.sees_the_end = frozenset(names)
    for kind, verdict in _VERDICTS.items():
        if kind in enabled:
            lasting.verdicts |= {name: verdict for name in names if rng.random() < 0.7}
    if FaultKind.STEADY_LAG in enabled:
        lasting.lags_ms = {name: rng.choice(_LAGS_MS) for name in names if rng.random() < 0.7}
    fit = set(names)  # at least one engine can take snapshots
    if FaultKind.OTHER_STORE in enabled and len(fit) > 1:
        lasting.astray = rng.choice(names)
        fit.discard(lasting.astray)
    if FaultKind.NO_STORE in enabled and len(fit) > 1:
        lasting.storeless = frozenset((rng.choice(sorted(fit)),))
    if FaultKind.HUNG_SPARE in enabled and len(fit - lasting.storeless) > 1:
        lasting.hung = rng.choice(sorted(fit))
    if FaultKind.SMALL_MESSAGES in enabled:
        lasting.message_bytes = FEW_ROWS_BYTES
    if FaultKind.SLOW_COMMITS in enabled and len(names) <= _ENGINES_MAX:  # steps are shared: of many engines, each is too slow
        lasting.commit_rows = rng.choice(_COMMIT_ROWS)
    return lasting

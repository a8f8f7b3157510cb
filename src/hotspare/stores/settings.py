"""Sizes and times of a store; the content of snapshots does not depend on them."""

from __future__ import annotations

from dataclasses import dataclass

from hotspare.base.retry import Retry

_UNAVAILABLE_RETRY = Retry(lasting_s=30.0, pause_s=0.1, pause_max_s=2.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    """The settings of an opened store. All processes that use a store must have the same `reader_timeout_s` and
    `writer_timeout_s`."""

    eager_bytes_max: int = 16 << 20
    """Limit on the bytes of a snapshot that is read at once; a larger one, which may exceed memory, is read page by page."""
    read_ahead_bytes: int = 8 << 20
    """Limit on the bytes of pages that one call reads ahead and keeps until they are requested."""
    unavailable_retry: Retry = _UNAVAILABLE_RETRY
    """The retries of a page read while the server does not answer."""
    renew_s: float = 60.0
    """The interval in seconds at which a reader renews its hold on pages."""
    reader_timeout_s: float = 600.0
    """A reader without a sign of life for longer counts as dead; its pages may be deleted."""
    writer_timeout_s: float = 600.0
    """A writer without a sign of life for longer counts as dead. If it was only frozen, it writes its snapshot again."""
    write_hold_s: int = 600
    """The seconds for which Redis keeps content that a writer wrote or found, until a snapshot references it."""
    write_hold_renew_s: float = 150.0
    """The interval in seconds at which a writer to Redis renews its hold on contents."""
    left_s: int = 60
    """The seconds for which Redis keeps content that no snapshot references any more, because a concurrent writer may rely on
    it."""
    kafka_call_s: float = 15.0
    """Limit in seconds on one call of a changelog's Kafka client."""


DEFAULT = StoreSettings()

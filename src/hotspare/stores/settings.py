"""The sizes and times by which a store works; its content does not depend on them."""

from __future__ import annotations

from dataclasses import dataclass

from hotspare.base.retry import Retry

_UNAVAILABLE_RETRY = Retry(lasting_s=30.0, pause_s=0.1, pause_max_s=2.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    """The settings of an opened store. All processes that use it have the same `reader_timeout_s` and `writer_timeout_s`, except in
    tests."""

    eager_bytes_max: int = 16 << 20
    """A larger snapshot is read page by page: it may be larger than memory."""
    read_ahead_bytes: int = 8 << 20
    """Bytes of pages that are read in one call and kept until they are requested."""
    unavailable_retry: Retry = _UNAVAILABLE_RETRY
    """The retries of a page read while the server does not answer."""
    renew_s: float = 60.0
    """How often a reader renews its hold on pages."""
    reader_timeout_s: float = 600.0
    """A reader without a sign of life for longer counts as dead."""
    writer_timeout_s: float = 600.0
    """A writer without a sign of life for longer counts as dead. If it lives, it writes again."""
    write_hold_s: int = 600
    """How long Redis keeps content that a writer wrote or found, until its snapshot names it."""
    write_hold_renew_s: float = 150.0
    """How often a writer renews that."""
    left_s: int = 60
    """How long Redis keeps content that no snapshot names any more: another writer may rely on it just now."""
    kafka_call_s: float = 15.0
    """How long one call of a changelog's Kafka client may take."""


DEFAULT = StoreSettings()

"""Names and texts of records in a state database: the layout of SAS's StateDB windows on Redis (SPEC G13). Pure.

A value has its CSV text: dates in seconds and stamps in microseconds since 1970, money with four decimals, blobs in base64. A null
field is left out. Values in keys are separated by ';'; a ';' or backslash in a value is escaped by a backslash.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from hotspare.bus.contract import CAUSE_HEADER, Message
from hotspare.formats.csv.rows import CsvStyle, value_texts

WRITTEN_AT, DIES_AT = "_esp_meta_timestamp_", "_esp_meta_ttd_"
"""Meta fields of a record: the time of its output and its expiry time, in microseconds since 1970."""
NEVER_EXPIRES_US = 9_000_000_000_000_000
"""The latest time that a Redis score represents exactly."""


def record_key(prefix: str, values: Iterable[str | None]) -> str:
    return f"{prefix}:{_joined(values)}"


def index_key(prefix: str, index: str, values: Iterable[str | None]) -> str:
    return f"{prefix}:SK:{index}:{_joined(values)}"


def key_fields_key(prefix: str) -> str:
    return f"{prefix}:_esp_meta_primarykey_fields_"


def indexes_key(prefix: str) -> str:
    return f"{prefix}:_esp_meta_secondary_indexes_"


def stream_progress_key(prefix: str, stream: str) -> str:
    """Returns the key of a stream's progress record: the epoch of its writer, the last sequence written, and the position to read
    next."""
    return f"{prefix}:_hotspare_written_:{stream}"


def format_indexes(indexes: Iterable[tuple[str, Sequence[str]]]) -> str:
    """Returns the value of `indexes_key`: `name:field;field`, separated by commas."""
    return ",".join(f"{name}:{';'.join(fields)}" for name, fields in indexes)


def record_field_texts(rows: pa.RecordBatch, field: str) -> list[str | None]:
    """Returns the texts of a field's values."""
    found: list[str | None] = value_texts(rows.column(field), CsvStyle.EXACT).to_pylist()
    return found


def message_time_us(message: Message) -> int:
    """Returns the time of a message of a stream: that of its cause if the stream records it, else the append time, which is the
    same for all readers."""
    cause = (message.header(CAUSE_HEADER) or b"").split()
    return int(cause[0]) if cause and cause[0].isdigit() else message.append_time_us


def _joined(values: Iterable[str | None]) -> str:
    return ";".join((value or "").replace("\\", "\\\\").replace(";", "\\;") for value in values)

"""Turns single Avro datums, whose schema is known from elsewhere, into container files, which contain their schema."""

from __future__ import annotations

import json
from collections.abc import Callable

from hotspare.base.errors import UsageError
from hotspare.formats.avro_block import MAGIC

_SYNC = b"hotspare-a-datum"
"""The sync marker after a block of a container file: any 16 bytes."""


def datum_container(schema: str) -> Callable[[bytes], bytes]:
    """Returns a function that makes a container file with one record from a datum. `schema`: the datum's Avro schema in JSON.
    Raises UsageError if the schema is invalid."""
    import fastavro

    try:
        fastavro.parse_schema(json.loads(schema))
    except (ValueError, TypeError, KeyError, RecursionError, fastavro.schema.SchemaParseException) as error:
        raise UsageError(
            "the avro schema cannot be parsed", detail=f"{type(error).__name__}: {error}"[:300], hint="write it as JSON"
        ) from error
    meta = {b"avro.codec": b"null", b"avro.schema": schema.encode()}
    entries = b"".join(_bytes(name) + _bytes(value) for name, value in meta.items())
    head = MAGIC + _long(len(meta)) + entries + _long(0) + _SYNC
    return lambda datum: head + _long(1) + _bytes(datum) + _SYNC


def _long(number: int) -> bytes:
    """Returns a non-negative number in Avro's encoding: doubled, seven bits per byte, the lowest first."""
    rest, out = number << 1, bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def _bytes(value: bytes) -> bytes:
    return _long(len(value)) + value

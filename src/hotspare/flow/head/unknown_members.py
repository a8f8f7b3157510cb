"""Members of JSON events that match no field of their source window, sampled by the head while it decodes a batch.

Such members are ignored, so outputs and state never depend on them. Which members are found may depend on how the input is cut into
batches. They are stored as metadata of the batch's schema, which comparisons of batches ignore.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa

from hotspare.formats.json.plain import first_unknown
from hotspare.model.names import nearest_name
from hotspare.model.types import Schema
from hotspare.rows.elementwise import Rows

_KEY = b"hs:unknown-members"
_MESSAGES = 4
"""The greatest number of messages inspected per batch. Inspecting one takes as long as decoding about thirty."""
_BYTES_MAX = 65_536
"""A message of more bytes is not inspected: inspecting it would take as long as decoding a batch."""
_NAMES_MAX = 20
_NAME_LENGTH_MAX = 100
_LISTED_MAX = 5


@dataclass(frozen=True, slots=True)
class UnknownMember:
    """A member that matches no field. `events`: how many of the events inspected for `window` have it. `near`: the field that the
    producer may have meant, which these events lack; "" if no name is near."""

    window: str
    name: str
    near: str
    events: int = 1


def sampled(values: pa.Array, rows: Rows, window: str, schema: Schema) -> list[UnknownMember]:
    """Returns the unknown members of at most `_MESSAGES` messages, evenly spread over `rows`; of each message only the first object
    is inspected. `values`: an Arrow binary array of JSON texts; `rows`: indexes into it."""
    chosen = rows[:: max(1, -(-len(rows) // _MESSAGES))]
    if not len(chosen):
        return []
    found = values.take(pa.array(chosen)).to_pylist()
    return [each for value in found if value for each in unknown_members_of(value, window, schema)]


def unknown_members_of(value: bytes, window: str, schema: Schema) -> list[UnknownMember]:
    """Returns the unknown members in the first object of a message: at most `_NAMES_MAX`, in alphabetical order. Returns none for a
    message of more than `_BYTES_MAX` bytes."""
    if len(value) > _BYTES_MAX:
        return []
    names, lacking = first_unknown(value, schema)
    return [UnknownMember(window, _shown(name), _near(name, lacking)) for name in sorted(names)[:_NAMES_MAX]]


def _shown(name: str) -> str:
    """Returns the name, escaped if it has unprintable characters and truncated, so that it is safe in terminals and logs."""
    return (name if name.isprintable() else ascii(name)[1:-1])[:_NAME_LENGTH_MAX]


@lru_cache(1024)
def _near(name: str, fields: frozenset[str]) -> str:
    """Returns the field name nearest to `name`, or "" if none is near. Cached, because comparing takes longer than parsing an
    event, and events of one source repeat their names."""
    return nearest_name(name[:_NAME_LENGTH_MAX], fields)


def merged(found: Iterable[UnknownMember]) -> list[UnknownMember]:
    """Returns one entry per window and name, in the order of first occurrence, with the sum of `events`."""
    by_name: dict[tuple[str, str], UnknownMember] = {}
    for each in found:
        key = each.window, each.name
        known = by_name.get(key, UnknownMember(*key, "", 0))
        by_name[key] = UnknownMember(*key, known.near or each.near, known.events + each.events)
    return list(by_name.values())


def sentence_of(source: str, found: Sequence[UnknownMember]) -> str:
    """Returns the warning about the unknown members of one source. It lists probable misspellings of fields first."""
    ordered = sorted(found, key=lambda each: not each.near)
    listed = [f"{each.name!r} (did you mean {each.near!r}?)" if each.near else repr(each.name) for each in ordered[:_LISTED_MAX]]
    more = [] if len(found) <= _LISTED_MAX else [f"{len(found) - _LISTED_MAX} more"]
    return f"events of {source} have members that are ignored, because no field has their name: {', '.join([*listed, *more])}"


def with_unknown(batch: pa.RecordBatch | pa.Table, found: Sequence[UnknownMember]) -> pa.RecordBatch | pa.Table:
    """Returns the batch, or the table, with these unknown members as its only metadata."""
    if not found:
        return batch.replace_schema_metadata(None) if batch.schema.metadata else batch
    rows = [[each.window, each.name, each.near, each.events] for each in merged(found)]
    return batch.replace_schema_metadata({_KEY: json.dumps(rows).encode()})


def unknown_of(schema: pa.Schema) -> list[UnknownMember]:
    """Returns the unknown members that `with_unknown` put into a batch of this schema."""
    metadata: Mapping[bytes, bytes] = schema.metadata or {}
    return [UnknownMember(*row) for row in json.loads(metadata.get(_KEY, b"[]"))]

"""Members of JSON events that no field of their source window has: what the head saw of them when it decoded a batch.

Such members are ignored, so what is known of them is nothing that outputs or state depend on, and may depend on how the input is
cut into batches. It goes with a batch as metadata of its schema, which no comparison of batches looks at.
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
"""How many messages of a batch are looked at. Each takes as long as decoding some thirty."""
_BYTES_MAX = 65_536
"""A larger message is not looked at: that would take as long as decoding a batch."""
_NAMES_MAX = 20
_NAME_LENGTH_MAX = 100
_LISTED_MAX = 5


@dataclass(frozen=True, slots=True)
class UnknownMember:
    """`events` of those looked at for `window` have the member `name`; `near` is the name of a field that these events lack and may
    mean, or ""."""

    window: str
    name: str
    near: str
    events: int = 1


def sampled(values: pa.Array, rows: Rows, window: str, schema: Schema) -> list[UnknownMember]:
    """Returns what is unknown in the first object of a few of the messages `rows` of an Arrow binary array, spread over them."""
    chosen = rows[:: max(1, -(-len(rows) // _MESSAGES))]
    if not len(chosen):
        return []
    found = values.take(pa.array(chosen)).to_pylist()
    return [each for value in found if value for each in unknown_members_of(value, window, schema)]


def unknown_members_of(value: bytes, window: str, schema: Schema) -> list[UnknownMember]:
    """Returns what is unknown in the first object of a message, the first names by alphabet."""
    if len(value) > _BYTES_MAX:
        return []
    names, lacking = first_unknown(value, schema)
    return [UnknownMember(window, _shown(name), _near(name, lacking)) for name in sorted(names)[:_NAMES_MAX]]


def _shown(name: str) -> str:
    """Returns a name that a terminal and a log take, whatever text a producer wrote."""
    return (name if name.isprintable() else ascii(name)[1:-1])[:_NAME_LENGTH_MAX]


@lru_cache(1024)
def _near(name: str, fields: frozenset[str]) -> str:
    """Comparing takes longer than parsing an event, and the events of a source are alike."""
    return nearest_name(name[:_NAME_LENGTH_MAX], fields)


def merged(found: Iterable[UnknownMember]) -> list[UnknownMember]:
    """Returns one entry per window and name, in the order in which they come."""
    by_name: dict[tuple[str, str], UnknownMember] = {}
    for each in found:
        key = each.window, each.name
        known = by_name.get(key, UnknownMember(*key, "", 0))
        by_name[key] = UnknownMember(*key, known.near or each.near, known.events + each.events)
    return list(by_name.values())


def sentence_of(source: str, found: Sequence[UnknownMember]) -> str:
    """Returns the warning for members of one source: those first that may be a field misspelt."""
    ordered = sorted(found, key=lambda each: not each.near)
    listed = [f"{each.name!r} (did you mean {each.near!r}?)" if each.near else repr(each.name) for each in ordered[:_LISTED_MAX]]
    more = [] if len(found) <= _LISTED_MAX else [f"{len(found) - _LISTED_MAX} more"]
    return f"events of {source} have members that are ignored, because no field has their name: {', '.join([*listed, *more])}"


def with_unknown(batch: pa.RecordBatch | pa.Table, found: Sequence[UnknownMember]) -> pa.RecordBatch | pa.Table:
    """Returns the batch, or the table, with these and no others."""
    if not found:
        return batch.replace_schema_metadata(None) if batch.schema.metadata else batch
    rows = [[each.window, each.name, each.near, each.events] for each in merged(found)]
    return batch.replace_schema_metadata({_KEY: json.dumps(rows).encode()})


def unknown_of(schema: pa.Schema) -> list[UnknownMember]:
    """Returns what a batch of this schema has from `with_unknown`."""
    metadata: Mapping[bytes, bytes] = schema.metadata or {}
    return [UnknownMember(*row) for row in json.loads(metadata.get(_KEY, b"[]"))]

"""The classifier of SPEC E11 must see each kind of inaccuracy, and none in exact outputs."""

import pyarrow as pa
import pytest

from hotspare.model.types import Field, FieldType, KeyRole, Schema
from hotspare.rows.batch import output_schema
from hotspare.testing.verify import DeliveryVerdict, compare, compare_stream

SCHEMA = output_schema(
    Schema((Field("id", FieldType.INT64, KeyRole.KEY), Field("x", FieldType.DOUBLE), Field("s", FieldType.STRING)))
)


def stream(*rows: tuple[int, float | None, str | None]) -> pa.Table:
    """Returns a stream of rows (sequence, x, s); the other columns depend on the sequence."""
    columns = [
        [r[0] for r in rows],
        [0] * len(rows),
        [0] * len(rows),
        [r[0] for r in rows],
        [0] * len(rows),
        [0] * len(rows),
        [r[0] * 7 for r in rows],
        [1] * len(rows),
        [1] * len(rows),
        [r[0] for r in rows],
        [r[1] for r in rows],
        [r[2] for r in rows],
    ]
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)


REFERENCE = stream((1, 1.0, "a"), (2, None, None), (3, float("nan"), "c"), (4, 0.0, "d"))


@pytest.mark.parametrize(
    ("delivered", "expected"),
    [
        (REFERENCE, DeliveryVerdict(4, 4, 0, 0, 0)),
        (REFERENCE.slice(0, 3), DeliveryVerdict(4, 3, 1, 0, 0)),
        (pa.concat_tables([REFERENCE, REFERENCE.slice(3)]), DeliveryVerdict(4, 5, 0, 1, 0)),
        (REFERENCE.take([0, 2, 1, 3]), DeliveryVerdict(4, 4, 0, 0, 1)),
        (pa.concat_tables([REFERENCE, stream((5, 1.0, "e"))]), DeliveryVerdict(4, 5, 0, 0, 1)),
        (pa.concat_tables([REFERENCE.slice(0, 3), stream((4, -0.0, "d"))]), DeliveryVerdict(4, 4, 0, 0, 1)),
        (pa.concat_tables([stream((1, 1.0, None)), REFERENCE.slice(1)]), DeliveryVerdict(4, 4, 0, 0, 1)),
        (REFERENCE.slice(0, 0), DeliveryVerdict(4, 0, 4, 0, 0)),
    ],
)
def test_each_inaccuracy_is_counted_once_e11(delivered: pa.Table, expected: DeliveryVerdict) -> None:
    """SPEC E11."""
    assert compare_stream(REFERENCE, delivered) == expected


def test_a_stream_that_one_side_lacks_counts_as_empty() -> None:
    assert compare({"a": REFERENCE}, {"b": REFERENCE}) == DeliveryVerdict(4, 4, 4, 0, 4)

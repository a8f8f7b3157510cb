"""A schema with a field of every type, for tests of formats."""

from hotspare.model.types import Field, FieldType, KeyRole, Schema

EVERY_TYPE = Schema(
    (
        Field("id", FieldType.INT64, KeyRole.KEY),
        Field("n", FieldType.INT32),
        Field("x", FieldType.DOUBLE),
        Field("s", FieldType.STRING),
        Field("m", FieldType.MONEY),
        Field("t", FieldType.STAMP),
        Field("d", FieldType.DATE),
        Field("b", FieldType.BLOB),
        Field("few", FieldType.INT32_ARRAY),
        Field("many", FieldType.INT64_ARRAY),
        Field("real", FieldType.DOUBLE_ARRAY),
    )
)

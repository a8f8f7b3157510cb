"""Names of field types in other systems: accepted in YAML if they mean one type, else explained (SPEC A7)."""

from __future__ import annotations

import pytest

from hotspare.base.errors import Place
from hotspare.model.frontends.values import FIELD_TYPES, TYPE_ALIASES, parse_schema
from hotspare.model.mistakes import Mistakes
from hotspare.model.types import FieldType


@pytest.mark.parametrize(("name", "type_"), TYPE_ALIASES.items())
def test_a_name_of_one_type_is_understood_in_yaml_alone(name: str, type_: FieldType) -> None:
    assert name not in FIELD_TYPES
    found = Mistakes()
    for written in (name, name.upper()):
        schema = parse_schema(f"id*:int64,x:{written}", Place("p"), found, TYPE_ALIASES)
        assert schema is not None
        assert schema.fields[1].type is type_
    assert not found.mistakes
    assert parse_schema(f"id*:int64,x:{name}", Place("p"), found) is None
    assert found.mistakes[0].hint == f"did you mean {type_.value!r}?"


@pytest.mark.parametrize("name", ["int", "bool", "decimal", "Integer", "boolean", "numeric"])
def test_a_name_that_may_mean_several_types_is_explained(name: str) -> None:
    found = Mistakes()
    assert parse_schema(f"id*:int64,x:{name}", Place("p"), found, TYPE_ALIASES) is None
    (mistake,) = found.mistakes
    assert mistake.message == f"type of field x: {name!r} does not exist"
    assert mistake.hint.startswith("write ")

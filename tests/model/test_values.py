"""Small texts of projects: durations, schemas, names, references to properties (SPEC A4, A6, A7, A19)."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hotspare.base.errors import Place, UsageError
from hotspare.bus import naming
from hotspare.model.durations import DURATION_US_MAX, format_duration, format_seconds, parse_duration, parse_seconds, parse_unit
from hotspare.model.frontends.properties import Substitution
from hotspare.model.frontends.values import parse_schema
from hotspare.model.mistakes import Mistakes
from hotspare.model.names import NAME, did_you_mean
from hotspare.model.types import Schema
from tests.strategies_projects import schemas


@pytest.mark.parametrize(
    ("text", "duration_us"),
    [
        ("30 minutes", 1_800_000_000),
        ("5 seconds", 5_000_000),
        ("1 days", 86_400_000_000),
        (" 1 Hour ", 3_600_000_000),
        ("250ms", None),
        ("1.5 seconds", 1_500_000),
        ("2 microseconds", 2),
        ("-1 second", None),
        ("1 second 2", None),
        ("٣ seconds", None),
    ],
)
def test_durations(text: str, duration_us: int | None) -> None:
    if duration_us is None:
        with pytest.raises(ValueError, match="not a duration in days, hours, minutes, seconds, milliseconds or microseconds"):
            parse_duration(text)
    else:
        assert parse_duration(text) == duration_us


@given(st.integers(1, DURATION_US_MAX))
@example(1)
@example(1_000_001)
def test_durations_are_exact_both_ways(duration_us: int) -> None:
    assert parse_duration(format_duration(duration_us)) == duration_us
    assert parse_seconds(format_seconds(duration_us)) == duration_us
    assert parse_unit(format_duration(duration_us)) == duration_us


@given(schemas())
def test_short_schemas_are_exact_both_ways(schema: Schema) -> None:
    found = Mistakes()
    assert parse_schema(str(schema), Place(), found) == schema
    assert parse_schema(str(schema).replace(":", " : ").replace(",", " ,\n "), Place(), found) == schema
    assert not found


@given(st.text(max_size=8))
def test_project_names_are_those_that_topics_take(name: str) -> None:
    """SPEC B1: the model repeats the rule for topic names; both must be equal."""
    try:
        naming.checked_name(name)
    except UsageError:
        assert not NAME.fullmatch(name)
    else:
        assert NAME.fullmatch(name)


def test_hints_name_the_nearest() -> None:
    assert did_you_mean("WINDOWLENGTH", ["windowLength"]) == "did you mean 'windowLength'?"
    assert did_you_mean("zebra", ["windowLength"]) == ""


@given(st.text("@AB_.x", max_size=12), st.dictionaries(st.sampled_from(["A", "B", "AB"]), st.text("@ABx", max_size=6)))
def test_references_are_replaced_until_none_is_left(text: str, values: dict[str, str]) -> None:
    """SPEC A4: the result has no reference to a known property, so reading it again changes nothing."""
    found = Mistakes()
    out = Substitution(values, found).replace_references(text, Place())
    if not found:
        assert Substitution(values, found).replace_references(out, Place()) == out
        assert not any(f"@{name}@" in out for name in values)
    if not values:
        assert out == text

"""What is done about an event on which the engine fails is one thing for the whole group."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.base.choices import OnPoison
from hotspare.base.errors import UsageError
from hotspare.coordination.memory import MemoryCoordination
from hotspare.ha.effects.poison_agreement import agree_on_poison

ASKED = st.sampled_from([None, *OnPoison])


@given(ASKED, st.lists(ASKED))
def test_all_engines_do_what_the_first_was_asked_to_do_or_do_not_join(
    first: OnPoison | None, others: list[OnPoison | None]
) -> None:
    coordination = MemoryCoordination().client("e")
    stands = agree_on_poison(coordination, "g", first)
    assert stands is (first or OnPoison.BAD_EVENT)
    for asked in others:
        if asked in (None, stands):
            assert agree_on_poison(coordination, "g", asked) is stands
        else:
            with pytest.raises(UsageError, match=f"group g has on-poison: {stands.value}"):
                agree_on_poison(coordination, "g", asked)


def test_a_value_of_a_newer_hotspare_is_refused() -> None:
    coordination = MemoryCoordination().client("e")
    coordination.set_fact_once("g", "on-poison", b"dance")
    with pytest.raises(UsageError, match="does not know"):
        agree_on_poison(coordination, "g", None)

"""All engines of a group do the same about an event on which the engine fails: what the first one was asked to do is a fact.

Otherwise some would end where others go on, and their states would differ.
"""

from __future__ import annotations

from hotspare.base.choices import OnPoison
from hotspare.base.errors import UsageError
from hotspare.coordination.contract import Coordination

_FACT = "on-poison"


def agree_on_poison(coordination: Coordination, group: str, asked: OnPoison | None) -> OnPoison:
    """What the group does; an engine that asks for nothing (None) does it too. UsageError where it asks for something else."""
    first = OnPoison.BAD_EVENT if asked is None else asked
    stands = coordination.set_fact_once(group, _FACT, first.value.encode()).decode("utf-8", "replace")
    if asked is not None and stands != asked.value:
        raise UsageError(
            f"group {group} has on-poison: {stands}, this engine has {asked.value}",
            hint="leave it out of the settings file, or stop all engines and forget the group's state with: hotspare reset",
        )
    try:
        return OnPoison(stands)
    except ValueError:
        raise UsageError(f"group {group} has on-poison: {stands}, which this hotspare does not know") from None

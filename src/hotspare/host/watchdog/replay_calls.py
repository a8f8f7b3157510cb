"""The decisions of a replay's parent about calls of user code, passed on to the next start of it: a replay has no group."""

from __future__ import annotations

import json
from collections.abc import Mapping, MutableMapping
from dataclasses import astuple, dataclass, replace

from hotspare.base.call_place import CallAttempt, CallPlace, Decision

DECIDED_VARIABLE = "HOTSPARE_REPLAY_CALLS"
"""The environment variable of a replay with a parent: `ReplayCalls.to_text`."""


@dataclass(frozen=True, slots=True)
class ReplayCalls:
    """`decisions`: about calls that did not end, by number. `divided`: the places of calls for several rows that did not end, whose
    windows are called row by row."""

    decisions: tuple[Decision, ...] = ()
    divided: tuple[CallPlace, ...] = ()

    def with_attempt(self, attempt: CallAttempt) -> ReplayCalls:
        """Returns these, with a decision about the attempt's place, or with the place as divided if the call had several rows."""
        if attempt.rows > 1:
            return replace(self, divided=(*self.divided, attempt.place))
        return replace(self, decisions=(*self.decisions, Decision(attempt.place, attempt.cause, len(self.decisions) + 1)))

    def to_text(self) -> str:
        return json.dumps({"decisions": [each.to_list() for each in self.decisions], "divided": [astuple(p) for p in self.divided]})

    @classmethod
    def taken_from(cls, environment: MutableMapping[str, str]) -> ReplayCalls:
        """Removes what a parent passed on from the environment, and returns it."""
        text = environment.pop(DECIDED_VARIABLE, "")
        read: Mapping[str, list[list[str | int]]] = json.loads(text) if text else {"decisions": [], "divided": []}
        places = (CallPlace(*place) for place in read["divided"])  # type: ignore[arg-type]
        return cls(tuple(map(Decision.from_list, read["decisions"])), tuple(places))


NOTHING_KNOWN = ReplayCalls()

"""What goes on beside engines and faults in the wild phase of every run: events come in, commits arrive late, hung calls end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.simulation.world import World

_HUNG_ENDS_SHARE = 0.01
_SHARE = 0.1
"""Of the steps in which events come, and in which what is under way arrives."""
_BLOCKS = (1, 1, 6)


def end_hung_calls(world: World) -> None:
    """Now and then."""
    if world.calls.hung and world.rng.random() < _HUNG_ENDS_SHARE:
        world.calls.let_go()


@dataclass
class Traffic:
    """Of groups in the same surroundings: `events_left` come to any of them, in these blocks."""

    worlds: Sequence[World]
    events_left: int
    blocks: tuple[int, ...] = _BLOCKS

    def step(self) -> None:
        first = self.worlds[0]
        rng, plan = first.rng, first.plan
        if self.events_left and rng.random() < _SHARE:
            for _ in range(min(self.events_left, rng.choice(self.blocks))):
                self.events_left -= 1
                world = rng.choice(self.worlds) if len(self.worlds) > 1 else first
                world.publish(rng.randrange(2), rng.randrange(100))
        if plan.late and rng.random() < _SHARE:
            plan.deliver()
        if first.bus.in_flight and rng.random() < _SHARE:
            first.bus.deliver()

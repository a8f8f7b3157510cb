"""The traffic of the wild phase of every run: events are published, commits arrive late, hung calls end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.simulation.world import World

_HUNG_ENDS_SHARE = 0.01
_SHARE = 0.1
"""The share of steps in which events are published, and in which late messages and commits arrive."""
_BLOCKS = (1, 1, 6)


def end_hung_calls(world: World) -> None:
    """Ends hung calls in a random share of steps."""
    if world.calls.hung and world.rng.random() < _HUNG_ENDS_SHARE:
        world.calls.let_go()


@dataclass
class Traffic:
    """The traffic of groups in the same surroundings: publishes `events_left` to any of them, in blocks of these sizes."""

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

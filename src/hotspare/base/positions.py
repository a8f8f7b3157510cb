"""The link from an output to the input event that caused it, shared by the engine, buses and consumers of outputs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OutputId:
    """The position of the event that caused an output, and the ordinal among that position's outputs in the stream, from 0.

    `topic` is the index of the inbound topic in the project's inbound topics; `index` is the event's index in its message.
    """

    topic: int
    partition: int
    offset: int
    index: int
    ordinal: int

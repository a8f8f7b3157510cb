"""Everything that an engine can do to the world outside it, one effect each: where it can die or sleep is between two of these."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import ClassVar

from hotspare.ha.rules.roles import Reason


@dataclass(frozen=True, slots=True)
class Action:
    """One effect, or one change of what the engine knows. Actions of one class with the same fields are equal."""

    template: ClassVar[str]
    """What the log says of it, over its fields."""

    @property
    def sentence(self) -> str:
        return self.template.format(**asdict(self))


@dataclass(frozen=True, slots=True)
class NoteVacancy(Action):
    """Remembers since when the role is free (no effect outside). `reason` None: it is not free after all."""

    epoch: int
    reason: Reason | None

    @property
    def sentence(self) -> str:
        return f"the role of epoch {self.epoch} is " + ("held" if self.reason is None else f"free: {self.reason.value}")


@dataclass(frozen=True, slots=True)
class Campaign(Action):
    expected_epoch: int
    reason: Reason

    @property
    def sentence(self) -> str:
        return f"campaigns for epoch {self.expected_epoch + 1}: {self.reason.value}"


@dataclass(frozen=True, slots=True)
class Fence(Action):
    template = "fences the output with epoch {epoch}"
    epoch: int


@dataclass(frozen=True, slots=True)
class EndLockHolder(Action):
    """A stopped process may never go on, and while it holds the bus's lock no other process can write."""

    template = "ends process {process_id}, which keeps the bus locked, if it is stopped"
    process_id: int
    process_start: int


class ReadCommitted(Action):
    """Reads progress after fencing: nothing older can change it any more. Requests the coordination epoch concurrently."""

    template = "reads what is committed"


class Recheck(Action):
    """Takes note of the coordination epoch, which was requested again after fencing."""

    template = "reads the newest epoch again"


class BecomeActive(Action):
    template = "becomes active"


@dataclass(frozen=True, slots=True)
class StepDown(Action):
    """Ends publishing; state and held outputs are kept."""

    template = "becomes standby: {reason.value}"
    reason: Reason


@dataclass(frozen=True, slots=True)
class GiveUp(Action):
    """Releases the role, naming a successor or "", then becomes standby."""

    successor: str
    reason: Reason

    @property
    def sentence(self) -> str:
        return f"gives the role up to {self.successor or 'whoever comes first'}: {self.reason.value}"


class Publish(Action):
    template = "publishes its outputs"


class AwaitCommit(Action):
    """Takes note of what came of the transaction under way, when it is over."""

    template = "hears what came of its outputs"


class PlaceOutputs(Action):
    """Continues streams that another project of the group numbered behind what is committed (no effect outside)."""

    template = "goes on behind the outputs of another project"


class BecomeEligible(Action):
    """The state that was made from recent input agrees with what is committed (no effect outside)."""

    template = "becomes standby: its outputs are those that are committed"


@dataclass(frozen=True, slots=True)
class Tick(Action):
    """Appends a tick to inbound partition number `index` of the group."""

    template = "ticks inbound partition {index}: {reason.value}"
    index: int
    reason: Reason


class Renew(Action):
    template = "renews its lease"


@dataclass(frozen=True, slots=True)
class ReadLeader(Action):
    template = "reads who leads: {reason.value}"
    reason: Reason


class ReadSwitchover(Action):
    template = "reads whether a switch-over is asked for"


class RefreshMember(Action):
    """Describes this engine to the group, and reads the descriptions of the others."""

    template = "refreshes its member record"


class CheckInbound(Action):
    """Checks that the inbound topics have the partitions that the group reads."""

    template = "looks at the partitions of the inbound topics"


class TrimBus(Action):
    template = "lets the bus forget old messages"


class ReadQualities(Action):
    template = "reads the qualities of service"


class ReadProjects(Action):
    template = "reads which projects the group runs"


class ReadProgress(Action):
    template = "reads progress to let held outputs go"


class TakeSnapshot(Action):
    template = "takes a snapshot"


@dataclass(frozen=True, slots=True)
class ConfirmSnapshot(Action):
    template = "confirms snapshot {name}"
    name: str


@dataclass(frozen=True, slots=True)
class DiscardSnapshot(Action):
    template = f"discards snapshot {{name}}: {Reason.DIFFERS.value}"
    name: str


class ReadPersist(Action):
    """Reads whether a snapshot is requested, and which engine undertakes it."""

    template = "reads whether a snapshot is asked for"


@dataclass(frozen=True, slots=True)
class ClaimPersist(Action):
    """Undertakes request `number`, as the engine in place `place` to do so."""

    template = "undertakes to persist a snapshot, request {number}"
    number: int
    place: int


@dataclass(frozen=True, slots=True)
class PersistSnapshot(Action):
    template = "persists a snapshot, request {number}"
    number: int


@dataclass(frozen=True, slots=True)
class ReportPersisted(Action):
    template = "tells what came of request {number} for a snapshot"
    number: int


class GiveUpStore(Action):
    """Gives up work on the store that takes too long."""

    template = "no longer waits for the store"


class Diverge(Action):
    """Ends as diverged, giving the role up if it is held."""

    template = f"ends as diverged: {Reason.DIFFERS.value}"


@dataclass(frozen=True, slots=True)
class Leave(Action):
    """Leaves the group and ends as stopped, giving the role up if it is held. `detail` says what was refused, if anything."""

    reason: Reason
    detail: str = ""

    @property
    def sentence(self) -> str:
        return f"stops: {self.detail or self.reason.value}"


@dataclass(frozen=True, slots=True)
class Duty:
    """An action and when it falls due."""

    due_ms: int
    action: Action

"""Everything that an engine can do to the world outside it, one effect each: where it can die or sleep is between two of these."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from hotspare.ha.rules.roles import Reason


@dataclass(frozen=True, slots=True)
class NoteVacancy:
    """Remember since when the role is free (no effect outside). `reason` None: it is not free after all."""

    epoch: int
    reason: Reason | None

    @property
    def sentence(self) -> str:
        if self.reason is None:
            return f"the role of epoch {self.epoch} is held"
        return f"the role of epoch {self.epoch} is free: {self.reason.value}"


@dataclass(frozen=True, slots=True)
class Campaign:
    expected_epoch: int
    reason: Reason

    @property
    def sentence(self) -> str:
        return f"campaigns for epoch {self.expected_epoch + 1}: {self.reason.value}"


@dataclass(frozen=True, slots=True)
class Fence:
    epoch: int
    reason: Reason = Reason.PROMOTION_ORDER

    @property
    def sentence(self) -> str:
        return f"fences the output with epoch {self.epoch}"


@dataclass(frozen=True, slots=True)
class EndLockHolder:
    """End the process that holds the bus's lock, if it is stopped: it may never go on, and nobody else can write."""

    process_id: int
    process_start: int
    reason: Reason = Reason.STOPPED_HOLDER

    @property
    def sentence(self) -> str:
        return f"ends process {self.process_id}, which keeps the bus locked, if it is stopped"


@dataclass(frozen=True, slots=True)
class ReadCommitted:
    """Read progress after fencing: nothing older can change it any more. Beside it the coordination epoch is asked for."""

    reason: Reason = Reason.PROMOTION_ORDER

    @property
    def sentence(self) -> str:
        return "reads what is committed"


@dataclass(frozen=True, slots=True)
class Recheck:
    """Take note of the coordination epoch, which was asked for again after fencing."""

    reason: Reason = Reason.PROMOTION_ORDER

    @property
    def sentence(self) -> str:
        return "reads the newest epoch again"


@dataclass(frozen=True, slots=True)
class BecomeActive:
    reason: Reason = Reason.PROMOTED

    @property
    def sentence(self) -> str:
        return "becomes active"


@dataclass(frozen=True, slots=True)
class StepDown:
    """Close the door for output and become standby; state and held outputs are kept."""

    reason: Reason

    @property
    def sentence(self) -> str:
        return f"becomes standby: {self.reason.value}"


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Release the role, naming a successor or "", then become standby."""

    successor: str
    reason: Reason

    @property
    def sentence(self) -> str:
        return f"gives the role up to {self.successor or 'whoever comes first'}: {self.reason.value}"


@dataclass(frozen=True, slots=True)
class Publish:
    reason: Reason = Reason.OUTPUTS_DUE

    @property
    def sentence(self) -> str:
        return "publishes its outputs"


@dataclass(frozen=True, slots=True)
class PlaceOutputs:
    """Let streams that another project of the group numbered go on behind what is committed (no effect outside)."""

    reason: Reason = Reason.PROMOTION_ORDER

    @property
    def sentence(self) -> str:
        return "goes on behind the outputs of another project"


@dataclass(frozen=True, slots=True)
class BecomeEligible:
    """The state that was made from recent input agrees with what is committed (no effect outside)."""

    reason: Reason = Reason.MATCHED

    @property
    def sentence(self) -> str:
        return "becomes standby: its outputs are those that are committed"


@dataclass(frozen=True, slots=True)
class AwaitCommit:
    """Take note of what came of the transaction under way, when it is over."""

    reason: Reason = Reason.OUTPUTS_DUE

    @property
    def sentence(self) -> str:
        return "hears what came of its outputs"


@dataclass(frozen=True, slots=True)
class Tick:
    """Append a tick to inbound partition number `index` of the group."""

    index: int
    reason: Reason

    @property
    def sentence(self) -> str:
        return f"ticks inbound partition {self.index}: {self.reason.value}"


@dataclass(frozen=True, slots=True)
class Renew:
    reason: Reason = Reason.TIMER

    @property
    def sentence(self) -> str:
        return "renews its lease"


@dataclass(frozen=True, slots=True)
class ReadLeader:
    reason: Reason

    @property
    def sentence(self) -> str:
        return f"reads who leads: {self.reason.value}"


@dataclass(frozen=True, slots=True)
class ReadSwitchover:
    reason: Reason = Reason.TIMER

    @property
    def sentence(self) -> str:
        return "reads whether a switch-over is asked for"


@dataclass(frozen=True, slots=True)
class RefreshMember:
    """Describe itself to the group, and read the others' descriptions."""

    reason: Reason = Reason.TIMER

    @property
    def sentence(self) -> str:
        return "refreshes its member record"


@dataclass(frozen=True, slots=True)
class CheckInbound:
    """Look whether the inbound topics have the partitions that the group reads."""

    reason: Reason = Reason.TIMER

    @property
    def sentence(self) -> str:
        return "looks at the partitions of the inbound topics"


@dataclass(frozen=True, slots=True)
class TrimBus:
    """Let the bus forget messages that are old and that nobody needs."""

    reason: Reason = Reason.TIMER

    @property
    def sentence(self) -> str:
        return "lets the bus forget old messages"


@dataclass(frozen=True, slots=True)
class ReadQualities:
    """Read whether another quality of service is asked for a stream."""

    reason: Reason = Reason.TIMER

    @property
    def sentence(self) -> str:
        return "reads the qualities of service"


@dataclass(frozen=True, slots=True)
class ReadProjects:
    """Read what was decided about another project of the group."""

    reason: Reason = Reason.TIMER

    @property
    def sentence(self) -> str:
        return "reads which projects the group runs"


@dataclass(frozen=True, slots=True)
class ReadProgress:
    reason: Reason = Reason.TIMER

    @property
    def sentence(self) -> str:
        return "reads progress to let held outputs go"


@dataclass(frozen=True, slots=True)
class TakeSnapshot:
    reason: Reason = Reason.TIMER

    @property
    def sentence(self) -> str:
        return "takes a snapshot"


@dataclass(frozen=True, slots=True)
class ConfirmSnapshot:
    name: str
    reason: Reason = Reason.COMMITTED

    @property
    def sentence(self) -> str:
        return f"confirms snapshot {self.name}"


@dataclass(frozen=True, slots=True)
class DiscardSnapshot:
    name: str
    reason: Reason = Reason.DIFFERS

    @property
    def sentence(self) -> str:
        return f"discards snapshot {self.name}: {self.reason.value}"


@dataclass(frozen=True, slots=True)
class ReadPersist:
    """Read whether somebody asks for a snapshot, and who undertakes it."""

    reason: Reason = Reason.TIMER

    @property
    def sentence(self) -> str:
        return "reads whether a snapshot is asked for"


@dataclass(frozen=True, slots=True)
class ClaimPersist:
    """Undertake request `number`, as the engine in place `place` to do so."""

    number: int
    place: int
    reason: Reason = Reason.PERSIST_ASKED

    @property
    def sentence(self) -> str:
        return f"undertakes to persist a snapshot, request {self.number}"


@dataclass(frozen=True, slots=True)
class PersistSnapshot:
    number: int
    reason: Reason = Reason.PERSIST_ASKED

    @property
    def sentence(self) -> str:
        return f"persists a snapshot, request {self.number}"


@dataclass(frozen=True, slots=True)
class ReportPersisted:
    """Tell the group what came of a request."""

    number: int
    reason: Reason = Reason.PERSIST_ASKED

    @property
    def sentence(self) -> str:
        return f"tells what came of request {self.number} for a snapshot"


@dataclass(frozen=True, slots=True)
class GiveUpStore:
    """No longer wait for work on the store that takes too long."""

    reason: Reason = Reason.NO_ANSWER

    @property
    def sentence(self) -> str:
        return "no longer waits for the store"


@dataclass(frozen=True, slots=True)
class Diverge:
    """End as diverged, giving the role up if it is held."""

    reason: Reason = Reason.DIFFERS

    @property
    def sentence(self) -> str:
        return f"ends as diverged: {self.reason.value}"


@dataclass(frozen=True, slots=True)
class Leave:
    """Leave the group and end as stopped, giving the role up if it is held. `detail` says what was refused, if anything."""

    reason: Reason
    detail: str = ""

    @property
    def sentence(self) -> str:
        return f"stops: {self.detail or self.reason.value}"


Action: TypeAlias = (
    NoteVacancy
    | Campaign
    | Fence
    | EndLockHolder
    | ReadCommitted
    | Recheck
    | BecomeActive
    | StepDown
    | GiveUp
    | Publish
    | PlaceOutputs
    | AwaitCommit
    | BecomeEligible
    | Tick
    | Renew
    | ReadLeader
    | ReadSwitchover
    | RefreshMember
    | CheckInbound
    | TrimBus
    | ReadQualities
    | ReadProjects
    | ReadProgress
    | TakeSnapshot
    | ConfirmSnapshot
    | DiscardSnapshot
    | ReadPersist
    | ClaimPersist
    | PersistSnapshot
    | ReportPersisted
    | GiveUpStore
    | Diverge
    | Leave
)


@dataclass(frozen=True, slots=True)
class Duty:
    """An action and when it falls due."""

    due_ms: int
    action: Action

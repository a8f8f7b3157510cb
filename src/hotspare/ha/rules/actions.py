"""Every effect that an engine can have on the world outside it, one per action. An engine can die or sleep only between two of
these."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import ClassVar

from hotspare.ha.rules.roles import Reason


@dataclass(frozen=True, slots=True)
class HaAction:
    """An effect, or a change of what the engine knows. Actions of one class with the same fields are equal."""

    template: ClassVar[str]
    """The sentence in the log, over the fields."""

    @property
    def sentence(self) -> str:
        return self.template.format(**asdict(self))


@dataclass(frozen=True, slots=True)
class RecordVacancy(HaAction):
    """Records since when the role is free (no effect outside). `reason` None: the role is held after all."""

    epoch: int
    reason: Reason | None

    @property
    def sentence(self) -> str:
        return f"the role of epoch {self.epoch} is " + ("held" if self.reason is None else f"free: {self.reason.value}")


@dataclass(frozen=True, slots=True)
class Campaign(HaAction):
    expected_epoch: int
    reason: Reason

    @property
    def sentence(self) -> str:
        return f"campaigns for epoch {self.expected_epoch + 1}: {self.reason.value}"


@dataclass(frozen=True, slots=True)
class Fence(HaAction):
    template = "fences the output with epoch {epoch}"
    epoch: int


@dataclass(frozen=True, slots=True)
class EndLockHolder(HaAction):
    """Ends a stopped process that holds the bus's lock: it may never resume, and until then no other process can write."""

    template = "ends process {process_id}, which keeps the bus locked, if it is stopped"
    process_id: int
    process_start: int


class ReadCommitted(HaAction):
    """Reads progress after fencing: nothing older can change it any more. Requests the coordination epoch concurrently."""

    template = "reads what is committed"


class Recheck(HaAction):
    """Takes note of the coordination epoch, which was requested again after fencing."""

    template = "reads the newest epoch again"


class BecomeActive(HaAction):
    template = "becomes active"


@dataclass(frozen=True, slots=True)
class StepDown(HaAction):
    """Ends publishing; state and held outputs are kept."""

    template = "becomes standby: {reason.value}"
    reason: Reason


@dataclass(frozen=True, slots=True)
class GiveUp(HaAction):
    """Releases the role, naming a successor or "", then becomes standby."""

    successor: str
    reason: Reason

    @property
    def sentence(self) -> str:
        return f"releases the role to {self.successor or 'any spare'}: {self.reason.value}"


class Publish(HaAction):
    template = "publishes its outputs"


class AwaitCommit(HaAction):
    """Records the result of the transaction under way, once it is over."""

    template = "waits for the result of its commit"


class RenumberOutputs(HaAction):
    """Numbers the outputs of streams that another project of the group numbered, from the newest committed one on (no effect
    outside)."""

    template = "numbers its outputs after those of another project"


class BecomeEligible(HaAction):
    """The state that was made from recent input agrees with what is committed (no effect outside)."""

    template = "becomes standby: its outputs match the committed ones"


@dataclass(frozen=True, slots=True)
class Tick(HaAction):
    """Appends a tick to inbound partition number `index` of the group."""

    template = "ticks inbound partition {index}: {reason.value}"
    index: int
    reason: Reason


class Renew(HaAction):
    template = "renews its lease"


@dataclass(frozen=True, slots=True)
class ReadLeader(HaAction):
    template = "reads the leader: {reason.value}"
    reason: Reason


class ReadSwitchover(HaAction):
    template = "reads whether a switch-over is requested"


class RefreshMember(HaAction):
    """Describes this engine to the group, and reads the descriptions of the others."""

    template = "refreshes its member record"


class CheckInbound(HaAction):
    """Checks that the inbound topics have the partitions that the group reads."""

    template = "checks the partitions of the inbound topics"


class TrimBus(HaAction):
    template = "lets the bus delete old messages"


class ReadQualities(HaAction):
    template = "reads the qualities of service"


class ReadProjects(HaAction):
    template = "reads which projects the group runs"


class ReadProgress(HaAction):
    template = "reads progress to release held outputs"


class TakeSnapshot(HaAction):
    template = "takes a snapshot"


@dataclass(frozen=True, slots=True)
class ConfirmSnapshot(HaAction):
    template = "confirms snapshot {name}"
    name: str


@dataclass(frozen=True, slots=True)
class DiscardSnapshot(HaAction):
    template = f"discards snapshot {{name}}: {Reason.DIFFERS.value}"
    name: str


class ReadPersist(HaAction):
    """Reads whether a snapshot is requested, and which engine undertakes it."""

    template = "reads whether a snapshot is requested"


@dataclass(frozen=True, slots=True)
class ClaimPersist(HaAction):
    """Undertakes request `number`; `claim_index` is the index of this engine's claim."""

    template = "undertakes to persist a snapshot, request {number}"
    number: int
    claim_index: int


@dataclass(frozen=True, slots=True)
class PersistSnapshot(HaAction):
    template = "persists a snapshot, request {number}"
    number: int


@dataclass(frozen=True, slots=True)
class ReportPersisted(HaAction):
    template = "reports the result of request {number} for a snapshot"
    number: int


class AbandonStoreJobs(HaAction):
    """Gives up work on the store that takes too long."""

    template = "no longer waits for the store"


class Diverge(HaAction):
    """Ends as diverged, releasing the role if it is held."""

    template = f"ends as diverged: {Reason.DIFFERS.value}"


@dataclass(frozen=True, slots=True)
class Leave(HaAction):
    """Leaves the group and ends as stopped, releasing the role if it is held. `detail` names what was refused, if anything."""

    reason: Reason
    detail: str = ""

    @property
    def sentence(self) -> str:
        return f"stops: {self.detail or self.reason.value}"


@dataclass(frozen=True, slots=True)
class Duty:
    """An action and when it falls due."""

    due_ms: int
    action: HaAction

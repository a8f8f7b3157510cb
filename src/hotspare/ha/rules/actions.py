"""Defines the actions of an engine, each with at most one effect outside the engine. An engine can die or sleep only between two of
them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import ClassVar

from hotspare.ha.rules.roles import Reason


@dataclass(frozen=True, slots=True)
class HaAction:
    """An external effect, or a change of what the engine knows. Two actions of one class with the same fields are equal."""

    template: ClassVar[str]
    """The format of the sentence in the log; its placeholders are the fields."""

    @property
    def sentence(self) -> str:
        return self.template.format(**asdict(self))


@dataclass(frozen=True, slots=True)
class RecordVacancy(HaAction):
    """Records, without an external effect, that the role is free from now on under `epoch` for `reason`; None: the role is held
    after all."""

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
    """Ends a stopped process that holds the bus's lock. That process may never resume, and no other process can write before it
    does."""

    template = "ends process {process_id}, which keeps the bus locked, if it is stopped"
    process_id: int
    process_start: int


class ReadCommitted(HaAction):
    """Reads progress after fencing: no older epoch can change it any more. Requests the coordination epoch concurrently."""

    template = "reads what is committed"


class Recheck(HaAction):
    """Records the answer to the request for the coordination epoch that was sent after fencing."""

    template = "reads the newest epoch again"


class BecomeActive(HaAction):
    template = "becomes active"


@dataclass(frozen=True, slots=True)
class StepDown(HaAction):
    """Stops publishing and becomes standby; the state and the held outputs stay."""

    template = "becomes standby: {reason.value}"
    reason: Reason


@dataclass(frozen=True, slots=True)
class GiveUp(HaAction):
    """Releases the role to `successor`, or to any spare if "", then becomes standby."""

    successor: str
    reason: Reason

    @property
    def sentence(self) -> str:
        return f"releases the role to {self.successor or 'any spare'}: {self.reason.value}"


class Publish(HaAction):
    template = "publishes its outputs"


class PassPlace(HaAction):
    """Makes the core compute, without a limit, the call before which it has stopped. No external effect."""

    template = "computes a call that another engine has passed, without a limit"


class AwaitCommit(HaAction):
    """Waits for the transaction under way and records its result."""

    template = "waits for the result of its commit"


class RenumberOutputs(HaAction):
    """Renumbers, without an external effect, the outputs of streams that another project numbered before, to follow the newest
    committed one."""

    template = "numbers its outputs after those of another project"


class BecomeEligible(HaAction):
    """Makes a warming engine standby, as its outputs match the committed ones. No external effect."""

    template = "becomes standby: its outputs match the committed ones"


@dataclass(frozen=True, slots=True)
class Tick(HaAction):
    """Appends a tick to the inbound partition with the index `index` in `View.inbound`."""

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
    """Writes this engine's description to its group, and reads the descriptions of the other engines."""

    template = "refreshes its member record"


class CheckInbound(HaAction):
    """Starts a background check that the inbound topics have as many partitions as the group reads."""

    template = "checks the partitions of the inbound topics"


class TrimBus(HaAction):
    template = "lets the bus delete old messages"


class ReadQualities(HaAction):
    template = "reads the qualities of service"


class LiftQuarantines(HaAction):
    template = "looks for requests to lift a quarantine"


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
    """Reads the oldest unfinished persist request, and the engines that undertook it."""

    template = "reads whether a snapshot is requested"


@dataclass(frozen=True, slots=True)
class ClaimPersist(HaAction):
    """Undertakes persist request `number`, as the claim with the index `claim_index`."""

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
    """Abandons store jobs that have reported no progress for `store_wait_ms`."""

    template = "no longer waits for the store"


class Diverge(HaAction):
    """Ends this engine with the role DIVERGED, releasing the group's active role if it has it."""

    template = f"ends as diverged: {Reason.DIFFERS.value}"


@dataclass(frozen=True, slots=True)
class Leave(HaAction):
    """Ends this engine with the role STOPPED, leaving the group and releasing the active role if it has it. `detail` names what was
    refused, "" if nothing was."""

    reason: Reason
    detail: str = ""

    @property
    def sentence(self) -> str:
        return f"stops: {self.detail or self.reason.value}"


@dataclass(frozen=True, slots=True)
class Duty:
    """An action, and the time at which it falls due."""

    due_ms: int
    action: HaAction

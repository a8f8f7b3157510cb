"""Coordination in ZooKeeper, for engines on several machines (SPEC C5-C7).

**Epoch.** The role of a group is one node, and every change of it is a write that names the version it was read at. So of two
engines that campaign from one epoch one wins, whatever was lost, late or read from a server that lags. A write whose answer was
lost can still take place later, but then against that version, so at most once and never over another client's.

**Lease.** ZooKeeper has no clock that a client can read, and a session is not a lease: servers keep a killed process's session for
seconds, by default at least 4. So a lease is a length, and a holder renews it by counting in the role node. A watcher notes on its
own monotonic clock when it first saw each count; the lease is over when that is longer ago than its length. No clocks are ever
compared, so none needs to be right. The error is at most the time between two reads, and always towards waiting. Time in which the
servers did not answer the watcher does not count. After a lost connection the lease counts from the start, as the holder may have
had no way to renew. The session also bounds the lease: the holder's ephemeral node shows when its session is over. Then so is the
lease, even for a client that reads it for the first time, unless the session ended in an outage.

**Members** are ephemeral sequential nodes: the sequence is the order of joining. A lost session removes them; the next
`refresh_member` creates them again. `seen_ms` is the time of writing by the servers' clock.

No client queues behind its predecessor's node, as in an election by sequence alone. Such a node shows that a session lives, not
that an engine makes progress, and the bus needs a number that grows, not an order of arrival.

**Nodes**:

    ROOT/groups/GROUP/role                          the holder of the newest epoch (`_RoleNode`), in JSON
    ROOT/groups/GROUP/members/ENGINE-0000000007     a member as it describes itself; removed with its session
    ROOT/groups/GROUP/sessions/SESSION              a session of an engine that joined; removed when it ends
    ROOT/groups/GROUP/facts/NAME                    a fact, plain or compressed

Names of groups, engines and facts are free text; each is percent-encoded to one node's name.
"""

from __future__ import annotations

import contextlib
import json
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any
from urllib.parse import quote, unquote

from kazoo.exceptions import NodeExistsError, NoNodeError
from kazoo.protocol.states import ZnodeStat

from hotspare.base.errors import CoordinationError, CoordinationSuspended, UsageError
from hotspare.base.retry import Retry
from hotspare.coordination import record as rules
from hotspare.coordination.contract import NO_LEADER, Leader, Member, Renewed
from hotspare.coordination.record import FACT_BYTES_MAX, RoleRecord
from hotspare.coordination.zookeeper.session import NODE_STATES, ZooKeeperSession, monotonic_ms
from hotspare.coordination.zookeeper.url import ZooKeeperTarget

NODE_BYTES_MAX = 900_000
"""The maximum bytes of a node or a transaction; ZooKeeper accepts 1 MiB for a whole request unless configured otherwise."""
_FORMAT = 1
_SEQUENCE_LENGTH = 10
_PLAIN, _COMPRESSED = b"p", b"z"
_CONTENDED = Retry(tries_max=20)
"""The attempts of one call while other clients change the same node. A failed attempt means that another client succeeded, so there
is not any pause."""
_FIRST_CONTACT = 1
_REMOVED_AT_ONCE = 1_000
"""The maximum of facts removed per transaction, since the servers do nothing else meanwhile."""
_NO_NODE = -1
"""The version that denotes a missing node; passed to `set`, it matches any version."""


@dataclass(frozen=True, slots=True)
class _Sighting:
    """The time when this client first saw a renewal. `renewal` identifies the renewal by contact, epoch and count, so a new contact
    starts without sightings."""

    renewal: tuple[int, int, int]
    seen_ms: int


class ZooKeeperCoordination:
    """A `Coordination` (contract). Every call may also raise CoordinationError itself, if ZooKeeper refuses access."""

    def __init__(
        self,
        target: ZooKeeperTarget,
        clock_ms: Callable[[], int] = monotonic_ms,
        members_max: int = rules.MEMBERS_MAX,
        removed_at_once: int = _REMOVED_AT_ONCE,
    ) -> None:
        """Connects to a server. Raises CoordinationSuspended if none answers.

        A group has at most `members_max` members; a transaction removes at most `removed_at_once` nodes.
        """
        self._clock_ms, self._members_max, self._removed_at_once = clock_ms, members_max, removed_at_once
        self._root = target.root
        self._session = ZooKeeperSession(target)
        self._ensured: set[str] = set()
        self._announced: set[tuple[str, str]] = set()
        self._own_members: dict[tuple[str, str], tuple[str, str]] = {}
        """The member node of each (group, engine): its session and its path."""
        self._known: dict[str, tuple[_RoleNode, int]] = {}
        """The role node of each group as this client last wrote or read it, and its version."""
        self._sightings: dict[str, _Sighting] = {}
        self._member_names: dict[str, tuple[str, ...]] = {}
        """The names of each group's member nodes, as this client last listed them."""
        self._alive: dict[str, tuple[int, str]] = {}
        """By group: the contact in which the holder's session was last seen alive, and that session."""

    def extended_timeouts(self) -> AbstractContextManager[None]:
        return self._session.extended_timeouts()

    def refresh_member(self, group: str, member: Member) -> None:
        rules.check_group(group)
        rules.check_engine(member.engine)
        self._session.use_engine_timeouts()
        data, session, key = _encode_member(member), self._session.name, (group, member.engine)
        known_session, path = self._own_members.get(key, ("", ""))
        if known_session == session:
            with contextlib.suppress(NoNodeError):
                self._session.set(path, data, _NO_NODE)  # of any version
                return
        self._own_members[key] = session, self._write_member(GroupPaths(self._root, group), group, member.engine, data)

    def _write_member(self, paths: GroupPaths, group: str, engine: str, data: bytes) -> str:
        """Creates or refreshes the member node of this engine and session; removes those of its earlier sessions. Returns the
        node's path.

        It also announces the session, so that a later campaign saves that round trip. Raises UsageError if the group has too many
        members.
        """
        own_session = self._session.client_id[0]
        for _ in _CONTENDED.tries():
            self._ensure(paths)
            names = self._session.children(paths.members)
            own = sorted((name for name in names if _engine_of(name) == engine), key=_joining_order)
            if not own and len({_engine_of(name) for name in names}) >= self._members_max:
                raise rules.too_many_members_error(group, self._members_max)
            found = self._session.execute_or_none([self._session.get_request(f"{paths.members}/{name}") for name in own])
            kept = next((n for n, f in zip(own, found, strict=True) if f is not None and f[1].ephemeralOwner == own_session), None)
            change = self._session.transaction()
            for name in own:
                if name != kept:
                    change.delete(f"{paths.members}/{name}")
            if kept is None:
                change.create(paths.member_prefix(engine), data, ephemeral=True, sequence=True)
            else:
                change.set_data(f"{paths.members}/{kept}", data)
            with contextlib.suppress(*NODE_STATES):
                made = self._session.commit(change)[-1]
                self._announce(paths, self._session.name)
                return str(made) if kept is None else f"{paths.members}/{kept}"
            self._ensured.discard(paths.base)
        raise _contended(group)

    def remove_member(self, group: str, engine: str) -> None:
        paths = GroupPaths(self._root, group)
        self._own_members.pop((group, engine), None)
        for name in self._session.children(paths.members):
            if _engine_of(name) == engine:
                with contextlib.suppress(NoNodeError):
                    self._session.delete(f"{paths.members}/{name}")

    def members(self, group: str) -> Sequence[Member]:
        found: dict[str, Member] = {}
        for path, node in self._member_nodes(group):
            with contextlib.suppress(CoordinationError):  # of another version or program: the others count all the same
                member = _decode_member(node[0], path, node[1].mtime)
                found.pop(member.engine, None)
                found[member.engine] = member
        return tuple(found.values())

    def _member_nodes(self, group: str) -> Iterator[tuple[str, tuple[bytes, ZnodeStat]]]:
        """Yields (path, (data, status)) of each member node, in the order of joining. Nodes known from the last call are read with
        the list of names: one round trip unless a member joined."""
        session, folder = self._session, GroupPaths(self._root, group).members
        known = self._member_names.get(group, ())
        _, listed, *nodes = session.execute_or_none(
            [
                session.sync_request(folder),
                session.children_request(folder),
                *(session.get_request(f"{folder}/{name}") for name in known),
            ]
        )
        names = tuple(sorted(listed or (), key=_joining_order))
        found = dict(zip(known, nodes, strict=True))
        new = [name for name in names if name not in found]
        if new:
            found.update(zip(new, session.execute_or_none([session.get_request(f"{folder}/{name}") for name in new]), strict=True))
        self._member_names[group] = names
        for name in names:
            if found[name] is not None:
                yield f"{folder}/{name}", found[name]

    def groups(self) -> Sequence[str]:
        return tuple(sorted(_text_of(name) for name in self._session.children(f"{self._root}/groups")))

    def leader(self, group: str) -> Leader:
        paths, session = GroupPaths(self._root, group), self._session
        _, role, sessions = session.execute_or_none(
            [session.sync_request(paths.role), session.get_request(paths.role), session.children_request(paths.sessions)]
        )
        if role is None:
            return NO_LEADER
        node = _decode_role(role[0], paths.role)
        if node.record.epoch:  # such a node is never removed, so its version identifies its content
            self._known[group] = node, role[1].version
        left_ms = self._lease_left_ms(group, node)
        if self._is_over(group, node.session, sessions or ()):
            left_ms = min(left_ms, 0)
        return rules.leader_of(replace(node.record, lease_end_ms=left_ms), 0)

    def _is_over(self, group: str, session: str, sessions: Sequence[str]) -> bool:
        """Whether the holder's session is certain to have ended. After a reconnection of this client, a missing session counts only
        if the client saw it since: the holder may have lost it in the same outage."""
        contact = self._session.contact
        if session in sessions:
            self._alive[group] = contact, session
            return False
        return contact == _FIRST_CONTACT or self._alive.get(group) == (contact, session)

    def _lease_left_ms(self, group: str, node: _RoleNode) -> int:
        now_ms = self._answered_ms()
        return node.lease_ms - (now_ms - self._sighted(group, node, now_ms))

    def _answered_ms(self) -> int:
        """Returns this client's clock in milliseconds, less the time for which the servers did not answer this client."""
        return self._clock_ms() - self._session.silence_ms

    def _sighted(self, group: str, node: _RoleNode, now_ms: int) -> int:
        """Returns when this client first saw the renewal in `node`; `now_ms` if that is now, which is recorded."""
        renewal, known = (self._session.contact, node.record.epoch, node.renewals), self._sightings.get(group)
        if known is None or known.renewal != renewal:
            known = self._sightings[group] = _Sighting(renewal, now_ms)
        return known.seen_ms

    def campaign(self, group: str, expected_epoch: int, member: Member, lease_ms: int) -> int | None:
        rules.check_group(group)
        rules.check_engine(member.engine)
        rules.check_lease(lease_ms)

        def won(node: _RoleNode) -> _RoleNode | None:
            record = rules.after_campaign(node.record, expected_epoch, member, 0)
            return None if record is None else _RoleNode(record, lease_ms, 0, self._session.name)

        node = self._change_role(group, won)
        return None if node is None else node.record.epoch

    def renew(self, group: str, epoch: int, engine: str, lease_ms: int) -> Renewed | None:
        rules.check_lease(lease_ms)

        def renewed(node: _RoleNode) -> _RoleNode | None:
            record = rules.after_renewal(node.record, epoch, engine, 0)
            return None if record is None else _RoleNode(record, lease_ms, node.renewals + 1, self._session.name)

        node = self._change_role(group, renewed)
        return None if node is None else Renewed(node.record.asked)

    def release(self, group: str, epoch: int, engine: str, successor: str) -> bool:
        def released(node: _RoleNode) -> _RoleNode | None:
            record = rules.after_release(node.record, epoch, engine, successor)
            return None if record is None else _RoleNode(record)

        return self._change_role(group, released) is not None

    def request_switchover(self, group: str, successor: str) -> None:
        rules.check_group(group)
        self._change_role(group, lambda node: replace(node, record=replace(node.record, asked=successor)))

    def requested_successor(self, group: str) -> str | None:
        return self._role(GroupPaths(self._root, group))[0].record.asked

    def withdraw_switchover(self, group: str) -> None:
        def withdrawn(node: _RoleNode) -> _RoleNode | None:
            return None if node.record.asked is None else replace(node, record=replace(node.record, asked=None))

        self._change_role(group, withdrawn)

    def fact(self, group: str, name: str) -> bytes | None:
        path = GroupPaths(self._root, group).fact(name)
        try:
            return _decode_fact(self._session.get(path)[0], path)
        except NoNodeError:
            return None

    def set_fact_once(self, group: str, name: str, value: bytes) -> bytes:
        rules.check_group(group)
        rules.check_fact(name, value)
        paths, data = GroupPaths(self._root, group), _encode_fact(name, value)
        for _ in _CONTENDED.tries():
            try:
                self._ensure(paths)
                self._session.create(paths.fact(name), data)
            except NodeExistsError:
                stands = self.fact(group, name)
                if stands is not None:
                    return stands
            except NoNodeError:
                self._ensured.discard(paths.base)
            else:
                return bytes(value)
        raise _contended(group)

    def fact_names(self, group: str) -> Sequence[str]:
        return tuple(_text_of(name) for name in self._session.children(GroupPaths(self._root, group).facts))

    def remove_facts(self, group: str, names: Sequence[str]) -> None:
        paths = GroupPaths(self._root, group)
        for portion in _transaction_batches([paths.fact(name) for name in names], self._removed_at_once):
            try:
                self._remove(portion)
            except NODE_STATES:  # some are gone already
                self._session.execute_or_none([self._session.delete_request(path) for path in portion])

    def _remove(self, nodes: Sequence[str]) -> None:
        change = self._session.transaction()
        for node in nodes:
            change.delete(node)
        if nodes:
            self._session.commit(change)

    def reset_group(self, group: str, first: Sequence[str] = (), last: Sequence[str] = ()) -> None:
        paths = GroupPaths(self._root, group)
        for _ in _CONTENDED.tries():
            present = self._session.children(paths.base)
            if not present and self._session.get_or_none(paths.base) is None:
                return
            with contextlib.suppress(*NODE_STATES):
                self._shrink_group(group, paths, first, last)
                self._reset_group_once(paths, present)
                return
        raise _contended(group)

    def _shrink_group(self, group: str, paths: GroupPaths, first: Sequence[str], last: Sequence[str]) -> None:
        """Does nothing if one transaction can remove the group. Otherwise removes the facts `first` in one transaction, then all
        facts that are in neither list."""
        nodes = [f"{container}/{name}" for container in paths.containers for name in self._session.children(container)]
        if sum(map(_deletion_bytes, nodes)) <= NODE_BYTES_MAX:
            return
        names = self.fact_names(group)
        self._remove([paths.fact(name) for name in first if name in names])
        self.remove_facts(group, [name for name in names if name not in first and name not in last])

    def _reset_group_once(self, paths: GroupPaths, present: Sequence[str]) -> None:
        node, version = self._role(paths)
        change = self._session.transaction()
        removed = (paths.members, paths.facts) if node.record.epoch else paths.containers
        for container in removed:
            for name in self._session.children(container):
                change.delete(f"{container}/{name}")
        if node.record.epoch:
            change.set_data(paths.role, _encode_role(_RoleNode(rules.after_reset(node.record))), version)
        else:
            self._ensured.discard(paths.base)
            for name in present:
                change.delete(f"{paths.base}/{name}")
            change.delete(paths.base)
        self._session.commit(change)

    def close(self) -> None:
        """Ends the session, which removes the members that joined through this client."""
        self._session.close()

    def _role(self, paths: GroupPaths) -> tuple[_RoleNode, int]:
        """Returns the content of the role node, and its version; an empty content and _NO_NODE if it does not exist."""
        found = self._session.get_or_none(paths.role)
        return (_RoleNode(), _NO_NODE) if found is None else (_decode_role(found[0], paths.role), found[1].version)

    def _change_role(self, group: str, change: Callable[[_RoleNode], _RoleNode | None]) -> _RoleNode | None:
        """Writes what `change` returns for the role node and returns it. Returns None, and writes nothing, if `change` returns
        None.

        If another client wrote the node meanwhile, reads and tries again; raises CoordinationSuspended after too many attempts. The
        content that this client wrote or read last is tried first, without reading. So the holder's renewal is one round trip, and
        so is the campaign of a spare that has just read the leader.
        """
        paths, guess = GroupPaths(self._root, group), self._known.pop(group, None)
        for _ in _CONTENDED.tries():
            before, version = guess or self._role(paths)
            after = change(before)
            if after is not None:
                since_ms = self._answered_ms()
                try:
                    self._known[group] = after, self._write_role(paths, after, version)
                except NoNodeError:  # another client removed the group
                    self._ensured.discard(paths.base)
                    self._announced = {each for each in self._announced if each[0] != paths.base}
                except NODE_STATES:
                    pass  # another client changed the role
                else:
                    self._sighted(group, after, since_ms)
                    return after
            elif guess is None:
                return None
            guess = None
        raise _contended(group)

    def _write_role(self, paths: GroupPaths, node: _RoleNode, version: int) -> int:
        """Writes the role node at `version` and returns its new version. Announces the holder's session before any client can read
        that it holds the role."""
        data = _encode_role(node)
        self._ensure(paths)
        if node.session:
            self._announce(paths, node.session)
        if version == _NO_NODE:
            self._session.create(paths.role, data)
            return 0
        return int(self._session.set(paths.role, data, version).version)

    def _announce(self, paths: GroupPaths, session: str) -> None:
        if (paths.base, session) not in self._announced:
            self._session.create_for_session(paths.session(session))
            self._announced.add((paths.base, session))

    def _ensure(self, paths: GroupPaths) -> None:
        if paths.base not in self._ensured:
            for container in paths.containers:
                self._session.ensure(container, self._root)
            self._ensured.add(paths.base)


def _transaction_batches(nodes: Sequence[str], removed_at_once: int) -> Iterator[list[str]]:
    """Yields the nodes in order, in lists that each fit into one transaction: at most `removed_at_once` nodes and
    NODE_BYTES_MAX."""
    portion, size = list[str](), 0
    for node in nodes:
        if len(portion) == removed_at_once or size + _deletion_bytes(node) > NODE_BYTES_MAX:
            yield portion
            portion, size = [], 0
        portion.append(node)
        size += _deletion_bytes(node)
    if portion:
        yield portion


def _deletion_bytes(node: str) -> int:
    """Returns the bytes of a node's deletion in a transaction: header, length, path and version."""
    return 9 + 4 + len(node) + 4


def _contended(group: str) -> CoordinationSuspended:
    return CoordinationSuspended(f"too many processes change group {group[:80]} in zookeeper at once")


@dataclass(frozen=True, slots=True)
class _RoleNode:
    """The content of the role node. `renewals` counts those within the epoch, so that watchers can see every renewal.

    `session`: the name of the holder's session, which is the name of its node. `record.lease_end_ms` is unused, as it would need a
    shared clock.
    """

    record: RoleRecord = field(default_factory=RoleRecord)
    lease_ms: int = 0
    renewals: int = 0
    session: str = ""


class GroupPaths:
    """The paths of a group's nodes."""

    def __init__(self, root: str, group: str) -> None:
        self.base = f"{root}/groups/{_node_name(group)}"
        self.role = f"{self.base}/role"
        self.members = f"{self.base}/members"
        self.sessions = f"{self.base}/sessions"
        self.facts = f"{self.base}/facts"

    @property
    def containers(self) -> tuple[str, ...]:
        return self.members, self.sessions, self.facts

    def fact(self, name: str) -> str:
        return f"{self.facts}/{_node_name(name)}"

    def session(self, session: str) -> str:
        return f"{self.sessions}/{session}"

    def member_prefix(self, engine: str) -> str:
        """Returns the path to which ZooKeeper appends a number that rises in the order of joining."""
        return f"{self.members}/{_node_name(engine)}-"


def _node_name(text: str) -> str:
    """Percent-encodes text as the name of a node, dots included: `.` and `..` are special to ZooKeeper."""
    return quote(text, safe="").replace(".", "%2E")


def _text_of(name: str) -> str:
    return unquote(name)


def _engine_of(name: str) -> str:
    """Returns the engine in the name of a member node."""
    return _text_of(name[: -_SEQUENCE_LENGTH - 1])


def _joining_order(name: str) -> str:
    return name[-_SEQUENCE_LENGTH:]


def _encode_role(node: _RoleNode) -> bytes:
    values = asdict(node)
    record = values.pop("record")
    del record["lease_end_ms"]
    data = json.dumps({"format": _FORMAT, **values, **record}, separators=(",", ":")).encode()
    if len(data) > NODE_BYTES_MAX:
        raise UsageError("the role record of a group is too long for zookeeper")
    return data


def _decode_role(data: bytes, path: str) -> _RoleNode:
    """Decodes the data of a role node. Raises CoordinationError unless this version of hotspare wrote the data."""
    values = _document(data, path)
    try:
        own = {f.name: values.pop(f.name) for f in fields(_RoleNode) if f.name != "record"}
        return _RoleNode(RoleRecord(**values), **own)
    except (KeyError, TypeError) as error:
        raise _unreadable(path) from error


def _encode_member(member: Member) -> bytes:
    """Encodes a description. If it is too long, omits first the details for users, then the sequences, which only rank. Raises
    UsageError if it still is."""
    for shortened in (member, replace(member, detail={}), replace(member, detail={}, sequences={})):
        data = json.dumps({"format": _FORMAT, **asdict(shortened)}, separators=(",", ":")).encode()
        if len(data) <= NODE_BYTES_MAX:
            return data
    raise UsageError(f"the description of engine {member.engine[:40]!r} is too long for zookeeper")


def _decode_member(data: bytes, path: str, seen_ms: int) -> Member:
    """Decodes a description; `seen_ms` is when the node was written, by the servers' clock. Raises CoordinationError if the data is
    unreadable."""
    values = _document(data, path)
    try:
        return Member(**{**values, "seen_ms": seen_ms})
    except TypeError as error:
        raise _unreadable(path) from error


def _encode_fact(name: str, value: bytes) -> bytes:
    plain = _PLAIN + value
    data = plain if len(plain) <= NODE_BYTES_MAX else _COMPRESSED + zlib.compress(value, 9)
    if len(data) > NODE_BYTES_MAX:
        text = f"fact {name[:40]!r} of {len(value)} bytes is too long for zookeeper"
        raise UsageError(text, hint=f"at most {NODE_BYTES_MAX} bytes are allowed after compression")
    return data


def _decode_fact(data: bytes, path: str) -> bytes:
    kind, value = data[:1], data[1:]
    if kind == _PLAIN:
        return value
    try:
        unpacking = zlib.decompressobj()
        whole = unpacking.decompress(value, FACT_BYTES_MAX)
    except zlib.error as error:
        raise _unreadable(path) from error
    if kind != _COMPRESSED or not unpacking.eof:
        raise _unreadable(path)
    return whole


def _document(data: bytes, path: str) -> dict[str, Any]:
    try:
        values = json.loads(data)
    except ValueError as error:
        raise _unreadable(path) from error
    if not isinstance(values, dict) or values.pop("format", None) != _FORMAT:
        raise _unreadable(path)
    return values


def _unreadable(path: str) -> CoordinationError:
    text = f"zookeeper node {path} holds data that this version of hotspare did not write"
    return CoordinationError(text, hint="check whether another program or another version of hotspare uses it")

"""Which ZooKeeper nodes hotspare keeps, what they are called and what is in them: text to records and back, nothing else.

    ROOT/groups/GROUP/role                          who holds the newest epoch (`RoleNode`), in JSON
    ROOT/groups/GROUP/members/ENGINE-0000000007     a member as it describes itself; gone with its session
    ROOT/groups/GROUP/sessions/SESSION              of an engine that joined; gone with its session
    ROOT/groups/GROUP/facts/NAME                    a fact, as it is or compressed

Names of groups, engines and facts are free text; each is percent-encoded to one node's name.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any
from urllib.parse import quote, unquote

from hotspare.base.errors import CoordinationError, UsageError
from hotspare.coordination.contract import Member
from hotspare.coordination.record import FACT_BYTES_MAX, RoleRecord

NODE_BYTES_MAX = 900_000
"""ZooKeeper takes 1 MiB for a whole request unless it is told otherwise."""
FORMAT = 1
_SEQUENCE_LENGTH = 10
_PLAIN, _COMPRESSED = b"p", b"z"


@dataclass(frozen=True, slots=True)
class RoleNode:
    """What the role node says. `renewals` counts within the epoch, so that every renewal can be seen from outside.

    `session`: the holder's, as the name of its node. `record.lease_end_ms` is unused: there is no clock to which it could refer.
    """

    record: RoleRecord = field(default_factory=RoleRecord)
    lease_ms: int = 0
    renewals: int = 0
    session: str = ""


class GroupPaths:
    """Where a group's nodes stand."""

    def __init__(self, root: str, group: str) -> None:
        self.base = f"{root}/groups/{node_name(group)}"
        self.role = f"{self.base}/role"
        self.members = f"{self.base}/members"
        self.sessions = f"{self.base}/sessions"
        self.facts = f"{self.base}/facts"

    @property
    def containers(self) -> tuple[str, ...]:
        return self.members, self.sessions, self.facts

    def fact(self, name: str) -> str:
        return f"{self.facts}/{node_name(name)}"

    def session(self, session: str) -> str:
        return f"{self.sessions}/{session}"

    def member_prefix(self, engine: str) -> str:
        """ZooKeeper puts a number behind it, in order of joining."""
        return f"{self.members}/{node_name(engine)}-"


def node_name(text: str) -> str:
    """`.` and `..` mean something to ZooKeeper, so no point is left."""
    return quote(text, safe="").replace(".", "%2E")


def text_of(name: str) -> str:
    return unquote(name)


def engine_of(name: str) -> str:
    """The engine that a member node's name tells of."""
    return text_of(name[: -_SEQUENCE_LENGTH - 1])


def joining_order(name: str) -> str:
    return name[-_SEQUENCE_LENGTH:]


def encode_role(node: RoleNode) -> bytes:
    values = asdict(node)
    record = values.pop("record")
    del record["lease_end_ms"]
    data = json.dumps({"format": FORMAT, **values, **record}, separators=(",", ":")).encode()
    if len(data) > NODE_BYTES_MAX:
        raise UsageError("what is said about a group's role is too long for zookeeper")
    return data


def decode_role(data: bytes, path: str) -> RoleNode:
    """CoordinationError for what no hotspare of this version has written."""
    values = _document(data, path)
    try:
        own = {f.name: values.pop(f.name) for f in fields(RoleNode) if f.name != "record"}
        return RoleNode(RoleRecord(**values), **own)
    except (KeyError, TypeError) as error:
        raise _unreadable(path) from error


def encode_member(member: Member) -> bytes:
    """Of a description that is too long, what is for people is left out first, then the numbers that only rank."""
    for shortened in (member, replace(member, detail={}), replace(member, detail={}, sequences={})):
        data = json.dumps({"format": FORMAT, **asdict(shortened)}, separators=(",", ":")).encode()
        if len(data) <= NODE_BYTES_MAX:
            return data
    raise UsageError(f"the description of engine {member.engine[:40]!r} is too long for zookeeper")


def decode_member(data: bytes, path: str, seen_ms: int) -> Member:
    """`seen_ms`: when the node was written, by the servers' clock."""
    values = _document(data, path)
    try:
        return Member(**{**values, "seen_ms": seen_ms})
    except TypeError as error:
        raise _unreadable(path) from error


def encode_fact(name: str, value: bytes) -> bytes:
    plain = _PLAIN + value
    data = plain if len(plain) <= NODE_BYTES_MAX else _COMPRESSED + zlib.compress(value, 9)
    if len(data) > NODE_BYTES_MAX:
        text = f"fact {name[:40]!r} of {len(value)} bytes does not fit into zookeeper"
        raise UsageError(text, hint=f"{NODE_BYTES_MAX} bytes are allowed, compressed")
    return data


def decode_fact(data: bytes, path: str) -> bytes:
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
    if not isinstance(values, dict) or values.pop("format", None) != FORMAT:
        raise _unreadable(path)
    return values


def _unreadable(path: str) -> CoordinationError:
    text = f"zookeeper node {path} holds nothing that this version of hotspare wrote"
    return CoordinationError(text, hint="does another program, or another version, use it?")

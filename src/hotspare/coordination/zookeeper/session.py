"""A client's connection to ZooKeeper, adapted to an engine's thread: an answer within a bounded time, or an error.

Connection failures map to two errors of the contract. Without contact a call raises CoordinationSuspended at once. When the servers
have ended the session, the next call raises CoordinationLost, once; by then a new session is being opened.

An engine waits `call_timeout_ms` for an answer, and only once. While that answer is outstanding, every further call raises
CoordinationSuspended at once, so a server that hangs costs the engine one such time and not one per call. By default
(`use_engine_timeouts` was not called), a client is a command's: it waits longer, also for contact, and its session does not matter.
A thread of an engine's process waits likewise within `extended_timeouts`."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from kazoo.client import KazooClient, TransactionRequest
from kazoo.exceptions import (
    AuthFailedError,
    BadVersionError,
    KazooException,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
    RuntimeInconsistency,
    SessionExpiredError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KazooState, ZnodeStat
from kazoo.retry import KazooRetry
from kazoo.security import ACL, OPEN_ACL_UNSAFE, make_acl, make_digest_acl

from hotspare.base.errors import CoordinationError, CoordinationLost, CoordinationSuspended
from hotspare.coordination.zookeeper.url import ZooKeeperTarget

NODE_STATES = (BadVersionError, NodeExistsError, NoNodeError, NotEmptyError)
"""Errors that mean that a node is not in the expected state. Nothing was changed then."""
EXTENDED_TIMEOUT_MS = 5_000
HANDSHAKE_MS_MAX = 500
_LOOK_MS = 100
_CLOSE_TIMEOUT_S = 2.0
_NOT_REACHED = (RolledBackError, RuntimeInconsistency)
"""The errors of a transaction's parts before or after the one that failed."""

_SILENT = logging.getLogger("hotspare.coordination.zookeeper")
"""The client would log every refused connection to it, and its credentials at debug level: these must not appear."""
_SILENT.addHandler(logging.NullHandler())
_SILENT.setLevel(logging.CRITICAL + 1)
_SILENT.propagate = False

Pending = Any
"""A pending answer: the client library's AsyncResult."""


@dataclass(frozen=True, slots=True)
class _Wait:
    """A wait for an answer: the contact in which it was requested, when, and its deadline."""

    contact: int
    since_ms: int
    deadline_ms: int


def monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000


class ZooKeeperSession:
    """A session that is connected once it is created; otherwise raises CoordinationSuspended. Every method is thread-safe."""

    def __init__(self, target: ZooKeeperTarget) -> None:
        self._target = target
        self._is_engine = False
        self._patience = threading.local()
        self._in_contact = threading.Event()
        self._unanswered: tuple[_Wait, Pending] | None = None
        self.silence_ms = 0
        """The total time of calls without an answer in time although there was contact."""
        self._is_lost = False
        self._told_contact = 0
        """The last contact whose lost session was reported."""
        self._is_closing = False
        self.contact = 0
        """Counts the periods of contact without a gap."""
        self._acl, self._path_acl = _acls(target)
        self._client = KazooClient(
            hosts=_repeated(target.hosts, target.session_timeout_ms),
            timeout=target.session_timeout_ms / 1000,
            auth_data={("digest", target.credential)} if target.user else None,
            default_acl=self._acl,
            connection_retry=KazooRetry(max_tries=-1, delay=0.05, backoff=1.5, max_delay=0.2),
            logger=_SILENT,
        )
        self._client.add_listener(self._record_state)
        if not self._client.start_async().wait(target.connect_timeout_ms / 1000):
            self.close()
            raise CoordinationSuspended(
                "zookeeper cannot be reached", detail=f"no server of {target.hosts} answered", hint="check that the servers run"
            )

    def use_engine_timeouts(self) -> None:
        """Limits the wait for answers to that of an engine from now on."""
        self._is_engine = True

    @contextlib.contextmanager
    def extended_timeouts(self) -> Iterator[None]:
        """Lets this thread wait as a command does within the block: for a late answer, and for contact."""
        self._patience.is_asked = True
        try:
            yield
        finally:
            self._patience.is_asked = False

    @property
    def _has_extended_timeout(self) -> bool:
        return not self._is_engine or getattr(self._patience, "is_asked", False)

    @property
    def _timeout_ms(self) -> int:
        due_ms = self._target.call_timeout_ms
        return max(EXTENDED_TIMEOUT_MS, due_ms) if self._has_extended_timeout else due_ms

    @property
    def name(self) -> str:
        """A name of the session, different for every session that the servers ever had."""
        return f"{self.client_id[0] & (2**64 - 1):016x}"

    @property
    def client_id(self) -> tuple[int, bytes]:
        """The number and password of the session. Raises what a call would raise without contact."""
        self._check_contact()
        session = self._client.client_id
        if session is None:
            raise self._suspended("no session yet")
        return int(session[0]), bytes(session[1])

    def get(self, path: str) -> tuple[bytes, ZnodeStat]:
        """Returns a node as the servers have agreed on it when the call begins, whichever of them answers."""
        return self.execute_all(self.sync_request(path), self.get_request(path))[1]  # type: ignore[no-any-return]

    def get_or_none(self, path: str) -> tuple[bytes, ZnodeStat] | None:
        try:
            return self.get(path)
        except NoNodeError:
            return None

    def sync_request(self, path: str) -> Callable[[], Pending]:
        """Returns a request to send before a reading: the server that answers then knows what the others have agreed on."""
        return lambda: self._client.sync_async(path)

    def get_request(self, path: str) -> Callable[[], Pending]:
        return lambda: self._client.get_async(path)

    def children_request(self, path: str) -> Callable[[], Pending]:
        return lambda: self._client.get_children_async(path)

    def children(self, path: str) -> list[str]:
        """Returns the names of a node's children; [] if the node does not exist."""
        try:
            return list(self.execute_all(self.sync_request(path), self.children_request(path))[1])
        except NoNodeError:
            return []

    def set(self, path: str, data: bytes, version: int) -> ZnodeStat:
        return self.execute_all(lambda: self._client.set_async(path, data, version))[0]

    def delete(self, path: str) -> None:
        self.execute_all(self.delete_request(path))

    def delete_request(self, path: str) -> Callable[[], Pending]:
        return lambda: self._client.delete_async(path)

    def create(self, path: str, data: bytes = b"") -> None:
        self.execute_all(lambda: self._client.create_async(path, data))

    def create_for_session(self, path: str) -> None:
        """Creates a node that is removed when this session ends; an existing one is left as it is."""
        with contextlib.suppress(NodeExistsError):
            self.execute_all(lambda: self._client.create_async(path, b"", ephemeral=True))

    def ensure(self, path: str, root: str) -> None:
        """Creates `path` and all nodes above it. Those above `root` may be used by other programs too."""
        parts = path.strip("/").split("/")
        for depth in range(1, len(parts) + 1):
            one = "/" + "/".join(parts[:depth])
            acl = self._acl if one == root or one.startswith(f"{root}/") else self._path_acl
            with contextlib.suppress(NodeExistsError):
                if not self._exists(one):
                    self.execute_all(lambda one=one, acl=acl: self._client.create_async(one, b"", acl))  # type: ignore[misc]

    def _exists(self, path: str) -> bool:
        return self.execute_all(lambda: self._client.exists_async(path))[0] is not None

    def transaction(self) -> TransactionRequest:
        """Returns an empty transaction, to fill and pass to `commit`."""
        return self._client.transaction()

    def commit(self, transaction: TransactionRequest) -> list[Any]:
        """Commits a transaction whole, or not at all; then raises the error of the part that failed."""
        results = self.execute_all(transaction.commit_async)[0]
        failure = next((r for r in results if isinstance(r, Exception) and not isinstance(r, _NOT_REACHED)), None)
        if failure is not None:
            raise self._translated(failure)
        return list(results)

    def execute_all(self, *requests: Callable[[], Pending]) -> list[Any]:
        """Sends all requests, then waits for all: one round trip. They are executed in this order. Raises the first error."""
        pending, wait = self._sent(requests)
        return [self._answer(one, wait) for one in pending]

    def execute_or_none(self, requests: Sequence[Callable[[], Pending]]) -> list[Any]:
        """Does the same as `execute_all`, with None for each missing node."""
        pending, wait = self._sent(requests)
        found = []
        for one in pending:
            try:
                found.append(self._answer(one, wait))
            except NoNodeError:
                found.append(None)
        return found

    def _sent(self, requests: Sequence[Callable[[], Pending]]) -> tuple[list[Pending], _Wait]:
        self._check_contact()
        now_ms = monotonic_ms()
        wait = _Wait(self.contact, now_ms, now_ms + self._timeout_ms)
        return [send() for send in requests], wait

    def _answer(self, pending: Pending, wait: _Wait) -> Any:
        """Waits for an answer. The client may forget a request sent just when a session ends: no answer comes after a new
        contact."""
        while True:
            left_ms = wait.deadline_ms - monotonic_ms()
            try:
                return pending.get(timeout=min(max(left_ms, 0), _LOOK_MS) / 1000)
            except KazooTimeoutError:
                if wait.contact != self.contact:
                    raise self._suspended("connection lost before an answer") from None
                if left_ms <= 0:
                    self._unanswered = wait, pending
                    raise self._suspended(f"no answer within {self._timeout_ms} ms") from None
            except KazooException as error:
                raise self._translated(error) from error

    def _translated(self, error: Exception) -> Exception:
        """Returns the contract's error; the state of a node is the caller's concern and stays as it is."""
        if any(isinstance(error, state) for state in NODE_STATES):
            return error
        if isinstance(error, SessionExpiredError):
            return self._lost()
        if isinstance(error, NoAuthError | AuthFailedError):
            hint = "connect as the user that created the nodes: ?user=NAME&password_file=FILE"
            return CoordinationError("zookeeper refuses access", detail=f"below {self._target.root}", hint=hint)
        return self._suspended(f"{type(error).__name__} {error}".strip())

    def _check_contact(self) -> None:
        if self._has_extended_timeout:
            self._in_contact.wait(self._timeout_ms / 1000)
        elif self._is_lost:
            raise self._lost()
        if not self._client.connected:
            raise self._suspended("no connection")
        unanswered = self._unanswered
        if unanswered is not None:
            wait, pending = unanswered
            if wait.contact == self.contact and not pending.ready():
                if self._has_extended_timeout:
                    return
                raise self._suspended("no answer to an earlier call yet")
            self._unanswered = None
            self.silence_ms += monotonic_ms() - wait.since_ms

    def _suspended(self, detail: str) -> CoordinationSuspended:
        return CoordinationSuspended("zookeeper cannot be reached", detail=f"{detail} from {self._target.hosts}")

    def _lost(self) -> CoordinationError:
        """Returns CoordinationLost once per session: a server may go on answering so until the client has noticed it too."""
        self._is_lost = False
        if self._told_contact == self.contact:
            return self._suspended("no new session yet")
        self._told_contact = self.contact
        return CoordinationLost("the zookeeper session is over", detail=f"at {self._target.hosts}")

    def _record_state(self, state: str) -> None:
        """Records a change of the connection. Called in the client's own thread, which must not wait."""
        if state == KazooState.CONNECTED:
            self.contact += 1
            self._in_contact.set()
            return
        self._in_contact.clear()
        if state == KazooState.LOST and not self._is_closing:
            self._is_lost = True

    def close(self) -> None:
        """Ends the session. Without contact that takes the client a while; then it continues in the background."""
        self._is_closing = True
        closing = threading.Thread(target=self._close, name="hotspare-zookeeper-close", daemon=True)
        closing.start()
        closing.join(_CLOSE_TIMEOUT_S)

    def _close(self) -> None:
        with contextlib.suppress(Exception):  # there is nothing left to be done about it
            self._client.stop()
            self._client.close()


def _repeated(hosts: str, session_timeout_ms: int) -> str:
    """Returns the list of hosts, repeated so that a silent server costs at most HANDSHAKE_MS_MAX.

    The client gives a silent server the session's timeout, divided by the number of servers, before it tries the next one.
    """
    names = hosts.split(",")
    return ",".join(names * -(-session_timeout_ms // (HANDSHAKE_MS_MAX * len(names))))


def _acls(target: ZooKeeperTarget) -> tuple[list[ACL], list[ACL]]:
    """Returns the access rights for nodes below the root, and for those on the path to it."""
    if not target.user:
        return OPEN_ACL_UNSAFE, OPEN_ACL_UNSAFE
    own = make_digest_acl(target.user, target.password, all=True)
    return [own], [own, make_acl("world", "anyone", read=True, create=True)]

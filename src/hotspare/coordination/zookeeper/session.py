"""A client's connection to ZooKeeper, adapted to an engine's thread: every call returns an answer within a bounded time, or raises.

Connection failures map to two errors of the contract. While disconnected, a call raises CoordinationSuspended at once. When the
servers have ended the session, the next call raises CoordinationLost, once; by then a new session is being opened.

An engine waits `call_timeout_ms` for an answer, and only once. While that answer is outstanding, every further call raises
CoordinationSuspended at once, so a server that hangs costs the engine one time-out and not one per call. Before
`use_engine_timeouts` is called, the client is a command's: its calls wait longer, also for a connection, and a lost session is not
reported. A thread of an engine's process waits likewise within `extended_timeouts`.
"""

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
"""The errors that report that a node is not in the expected state; the failed request has changed nothing."""
EXTENDED_TIMEOUT_MS = 5_000
HANDSHAKE_MS_MAX = 500
_LOOK_MS = 100
_CLOSE_TIMEOUT_S = 2.0
_NOT_REACHED = (RolledBackError, RuntimeInconsistency)
"""The errors that ZooKeeper reports for the parts of a transaction before and after the one that failed."""

_SILENT = logging.getLogger("hotspare.coordination.zookeeper")
"""The logger of the client library, silenced: the library logs every refused connection, and at debug level the credentials."""
_SILENT.addHandler(logging.NullHandler())
_SILENT.setLevel(logging.CRITICAL + 1)
_SILENT.propagate = False

Pending = Any
"""A pending answer: the client library's AsyncResult."""


@dataclass(frozen=True, slots=True)
class _Wait:
    """A wait for the answers to requests: the contact (`ZooKeeperSession.contact`) and the time at which they were sent, and the
    deadline."""

    contact: int
    since_ms: int
    deadline_ms: int


def monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000


class ZooKeeperSession:
    """A session, connected when the constructor returns. Raises CoordinationSuspended if no server answers within
    `connect_timeout_ms`. Every method is thread-safe."""

    def __init__(self, target: ZooKeeperTarget) -> None:
        self._target = target
        self._is_engine = False
        self._patience = threading.local()
        self._in_contact = threading.Event()
        self._unanswered: tuple[_Wait, Pending] | None = None
        self.silence_ms = 0
        """The total milliseconds for which requests that timed out stayed unanswered, from their sending on, although the
        connection was open."""
        self._is_lost = False
        self._told_contact = 0
        """The value of `contact` under which a lost session was last reported."""
        self._is_closing = False
        self.contact = 0
        """The number of the present connection; it rises with each reconnection."""
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
        """Makes all later calls wait at most `call_timeout_ms`, as an engine has to."""
        self._is_engine = True

    @contextlib.contextmanager
    def extended_timeouts(self) -> Iterator[None]:
        """Returns a context within which calls of this thread wait as a command's do: longer for an answer, and also for a
        connection."""
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
        """The session's id as 16 hexadecimal digits, unique among all sessions of the servers. Raises as `client_id`."""
        return f"{self.client_id[0] & (2**64 - 1):016x}"

    @property
    def client_id(self) -> tuple[int, bytes]:
        """The id and the password of the session. Raises CoordinationSuspended or CoordinationLost without a connection."""
        self._check_contact()
        session = self._client.client_id
        if session is None:
            raise self._suspended("no session yet")
        return int(session[0]), bytes(session[1])

    def get(self, path: str) -> tuple[bytes, ZnodeStat]:
        """Returns (data, status) of a node, with every write that the servers had agreed on when the call began. Raises NoNodeError
        if it does not exist."""
        return self.execute_all(self.sync_request(path), self.get_request(path))[1]  # type: ignore[no-any-return]

    def get_or_none(self, path: str) -> tuple[bytes, ZnodeStat] | None:
        try:
            return self.get(path)
        except NoNodeError:
            return None

    def sync_request(self, path: str) -> Callable[[], Pending]:
        """Returns a request to send before a read: the server that answers then first catches up with what the other servers have
        agreed on."""
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
        """Creates an empty node that is removed when this session ends. An existing node stays as it is."""
        with contextlib.suppress(NodeExistsError):
            self.execute_all(lambda: self._client.create_async(path, b"", ephemeral=True))

    def ensure(self, path: str, root: str) -> None:
        """Creates `path` and its missing ancestors. Nodes above `root` stay readable for other programs, which may create nodes
        there."""
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
        """Commits a transaction: all of its parts or none. Returns the result of each part; raises the error of the part that
        failed."""
        results = self.execute_all(transaction.commit_async)[0]
        failure = next((r for r in results if isinstance(r, Exception) and not isinstance(r, _NOT_REACHED)), None)
        if failure is not None:
            raise self._translated(failure)
        return list(results)

    def execute_all(self, *requests: Callable[[], Pending]) -> list[Any]:
        """Sends all requests, then waits for all answers: one round trip. The servers execute them in this order. Returns the
        answers; raises the first error."""
        pending, wait = self._sent(requests)
        return [self._answer(one, wait) for one in pending]

    def execute_or_none(self, requests: Sequence[Callable[[], Pending]]) -> list[Any]:
        """Returns the answers as `execute_all` does, but None in place of NoNodeError for a missing node."""
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
        """Returns the answer to a request. Raises the contract's errors, CoordinationSuspended also after the deadline or a
        reconnection.

        The client library may drop a request that was sent as a session ended, so no answer can follow after a reconnection.
        """
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
        """Returns the contract's error for an error of the client library. Errors of NODE_STATES are returned unchanged: callers
        handle them."""
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
        """Returns CoordinationLost, but only once per lost session: servers report the loss until the client library notices it.
        Later calls return CoordinationSuspended."""
        self._is_lost = False
        if self._told_contact == self.contact:
            return self._suspended("no new session yet")
        self._told_contact = self.contact
        return CoordinationLost("the zookeeper session is over", detail=f"at {self._target.hosts}")

    def _record_state(self, state: str) -> None:
        """Records a change of the connection. The client library calls it in its own thread, which must not block."""
        if state == KazooState.CONNECTED:
            self.contact += 1
            self._in_contact.set()
            return
        self._in_contact.clear()
        if state == KazooState.LOST and not self._is_closing:
            self._is_lost = True

    def close(self) -> None:
        """Ends the session. Waits at most `_CLOSE_TIMEOUT_S`: without a connection closing takes longer, and continues in the
        background."""
        self._is_closing = True
        closing = threading.Thread(target=self._close, name="hotspare-zookeeper-close", daemon=True)
        closing.start()
        closing.join(_CLOSE_TIMEOUT_S)

    def _close(self) -> None:
        with contextlib.suppress(Exception):  # there is nothing left to be done about it
            self._client.stop()
            self._client.close()


def _repeated(hosts: str, session_timeout_ms: int) -> str:
    """Returns the hosts, repeated until a silent server delays a connection by at most HANDSHAKE_MS_MAX.

    The client library waits for each server for the session's time-out divided by the count of entries.
    """
    names = hosts.split(",")
    return ",".join(names * -(-session_timeout_ms // (HANDSHAKE_MS_MAX * len(names))))


def _acls(target: ZooKeeperTarget) -> tuple[list[ACL], list[ACL]]:
    """Returns (access rights of nodes from the root on, access rights of nodes above the root)."""
    if not target.user:
        return OPEN_ACL_UNSAFE, OPEN_ACL_UNSAFE
    own = make_digest_acl(target.user, target.password, all=True)
    return [own], [own, make_acl("world", "anyone", read=True, create=True)]

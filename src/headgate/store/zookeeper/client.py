"""
A connection to ZooKeeper: many reads in flight, transactions, and kazoo's errors translated.
"""

from __future__ import annotations

import contextlib
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import (
    AuthFailedError,
    BadVersionError,
    ConnectionClosedError,
    ConnectionLoss,
    KazooException,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    OperationTimeoutError,
    RolledBackError,
    RuntimeInconsistency,
    SessionExpiredError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.serialization import Create
from kazoo.protocol.states import KeeperState
from kazoo.security import ACL, CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

from headgate.config.security import ZooKeeperSecurity
from headgate.errors import ApiError, StoreError, StoreSilent
from headgate.store.deadline import left_s
from headgate.store.zookeeper import takeover
from headgate.store.zookeeper.znodes import UNSURE, Conflict, Interrupted, TransactionStep, Znode

#: How long one call may take, reconnecting included, before it is an error to try again later.
CALL_TIMEOUT_S = 30.0
#: Pause before a call whose connection was lost is made again.
RETRY_S = 0.05
#: Reads in flight at a time; more gains nothing and holds more memory.
PIPELINE = 1_000
#: Where SCRAM credentials and secrets are: readable by their creator alone when ACLs are set.
#: Source: ZkData.SensitiveRootPaths.
SENSITIVE = ("/config/users", "/config/brokers")

_CONFLICTS = (BadVersionError, NodeExistsError, NoNodeError, NotEmptyError)
_ENDED = (KeeperState.AUTH_FAILED, KeeperState.CLOSED)
_PASSING = (ConnectionLoss, SessionExpiredError, OperationTimeoutError)


class ZkClient:
    """
    A kazoo client with the calls that the store needs.

    Args:
        hosts: ``host:port,host:port/chroot``.
        security: TLS, SASL, ACLs and the session's timeout.
        on_state: called with True when connected again and False when the connection is lost,
            from kazoo's thread; must not block.
    """

    def __init__(
        self,
        hosts: str,
        security: ZooKeeperSecurity | None,
        on_state: Callable[[bool], None],
    ) -> None:
        self.hosts = hosts
        self._set_acl = security is not None and security.set_acl
        self._how = _settings(security)
        self._timeout_s = self._how["timeout"]
        self._kazoo = KazooClient(
            hosts=hosts,
            connection_retry={"max_tries": -1, "delay": 0.1, "backoff": 2, "max_delay": 1.0},
            **self._how,
        )
        with self.translated():
            try:
                # Not start(): it warns about a chroot that is missing, and we make it. The timeout
                # is Kafka's: zookeeper.connection.timeout.ms is by default the session's.
                self._kazoo.start_async().wait(timeout=self._timeout_s)
                if not self._kazoo.connected:
                    raise KazooTimeoutError("no connection")
            except BaseException:
                self.close()
                raise
        self._connected = threading.Event()
        self._connected.set()

        def changed(state: str) -> None:
            # After a refused login or a close no connection comes: kazoo's own error tells why.
            if state == "CONNECTED" or self._kazoo.client_state in _ENDED:
                self._connected.set()
            else:
                self._connected.clear()
            on_state(state == "CONNECTED")

        self._kazoo.add_listener(changed)

    def make_chroot(self) -> None:
        """Make the znode that the store's URL ends with, where it is missing."""
        servers, _, chroot = self.hosts.partition("/")
        with self.translated():
            if not chroot or self._kazoo.exists("/") is not None:
                return
            root = KazooClient(hosts=servers, **self._how)
            try:
                root.start(timeout=self._timeout_s)
                root.ensure_path("/" + chroot, acl=self.acl("/" + chroot))
            finally:
                root.stop()
                root.close()

    @contextlib.contextmanager
    def translated(self) -> Iterator[None]:
        """Turn kazoo's errors into StoreError."""
        try:
            yield
        except NoAuthError as exc:
            raise StoreError(
                f"ZooKeeper {self.hosts} refuses this (NoAuth); check the znodes' ACLs, "
                "headgate.store.zookeeper.sasl.* and zookeeper.set.acl"
            ) from exc
        except AuthFailedError as exc:
            raise StoreError(
                f"ZooKeeper {self.hosts} refuses the credentials of headgate.store.zookeeper.sasl.*"
            ) from exc
        except ConnectionClosedError as exc:
            raise StoreError(f"the connection to ZooKeeper {self.hosts} is closed") from exc
        except (*_PASSING, KazooTimeoutError) as exc:
            raise StoreSilent(
                f"ZooKeeper {self.hosts} can't be reached ({type(exc).__name__}); try again when "
                "it is up"
            ) from exc
        except (KazooException, OSError) as exc:
            raise StoreError(f"ZooKeeper {self.hosts}: {type(exc).__name__} {exc}") from exc

    def close(self) -> None:
        """End the session."""
        self._kazoo.stop()
        self._kazoo.close()

    def acl(self, path: str) -> list[ACL]:
        """Return a new znode's ACL as Kafka gives it. Source: ZkData.defaultAcls."""
        if not self._set_acl:
            return list(OPEN_ACL_UNSAFE)
        if any(path == root or path.startswith(root + "/") for root in SENSITIVE):
            return list(CREATOR_ALL_ACL)
        return [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE]

    # --- reading

    def nodes(self, paths: Iterable[str]) -> dict[str, Znode | None]:
        """Return znodes by path, None where there is none."""
        found = self._ask_each(self._kazoo.get_async, paths)
        return {path: None if told is None else _node(*told) for path, told in found.items()}

    def children(self, paths: Iterable[str]) -> dict[str, list[str]]:
        """Return the names below each path, sorted; none where there is no such znode."""
        found = self._ask_each(self._kazoo.get_children_async, paths)
        return {path: sorted(told or ()) for path, told in found.items()}

    def watch_children(self, path: str, fired: Callable[[Any], None]) -> tuple[list[str], int]:
        """Return the names below a path and its pzxid; ``fired`` is called when they change."""
        call = partial(self._kazoo.get_children_async, watch=fired, include_data=True)
        found = self._ask(call, [path])[path]
        if found is None:
            return [], -1
        names, stat = found
        return sorted(names), stat.pzxid

    def watch_data(self, path: str, fired: Callable[[Any], None]) -> None:
        """Have ``fired`` called once when a znode is made, changed or deleted."""
        self._ask(partial(self._kazoo.exists_async, watch=fired), [path])

    def pzxid(self, path: str) -> int:
        """Return the transaction that last changed which children a znode has."""
        stat = self._ask(self._kazoo.exists_async, [path])[path]
        return -1 if stat is None else int(stat.pzxid)

    def sync(self) -> None:
        """Let the server we speak to catch up with its leader."""
        self._ask(self._kazoo.sync_async, ["/"])

    # --- writing

    def commit(self, transactions: list[list[TransactionStep]]) -> list[BaseException | None]:
        """
        Commit transactions, many in flight; each all or nothing.

        Returns:
            For each: None when done, Conflict when another process changed a znode first,
            Interrupted when the connection broke or no answer came in time, so that it may have
            happened or not; ApiError when it would change what Kafka has here, though a KRaft
            controller has taken the cluster over (``takeover``).

        Raises:
            StoreSilent: there is no connection; nothing was sent.
            StoreError: refused, or closed.
        """
        theirs = list(map(takeover.is_kafkas, transactions))
        if not any(theirs):
            return self._commit(transactions)
        now = self.in_charge()
        refusal = now.refusal()
        allowed = [
            [*now.check, *steps] if kafkas else steps
            for steps, kafkas in zip(transactions, theirs, strict=True)
            if not kafkas or refusal is None
        ]
        outcomes = iter(self._commit(allowed))
        return [refusal if kafkas and refusal else next(outcomes) for kafkas in theirs]

    def in_charge(self) -> takeover.InCharge:
        """Return who is in charge of the cluster whose znodes these are."""
        return takeover.in_charge(f"zookeeper://{self.hosts}", self.nodes(takeover.PATHS))

    def _commit(self, transactions: list[list[TransactionStep]]) -> list[BaseException | None]:
        outcomes: list[BaseException | None] = []
        deadline = time.monotonic() + left_s(CALL_TIMEOUT_S)
        with self.translated():
            self._until_connected(deadline)
            answers = [self._send(steps) for steps in transactions]
            for answer in answers:
                try:
                    results = _answer(answer, deadline)
                except (*_PASSING, KazooTimeoutError) as exc:
                    outcomes.append(Interrupted(str(exc)))
                    continue
                outcomes.append(_outcome(results))
        return outcomes

    def _until_connected(self, deadline: float) -> None:
        """
        Wait for a connection: what kazoo is given without one it keeps, and sends long afterwards.

        Raises:
            KazooTimeoutError: there is none at the deadline.
        """
        if not self._connected.wait(max(0.0, deadline - time.monotonic())):
            raise KazooTimeoutError("no connection")

    def _send(self, steps: list[TransactionStep]) -> Any:
        transaction = self._kazoo.transaction()
        for verb, path, data, version in steps:
            if verb == "check":
                transaction.check(path, version)
            elif verb == "delete":
                transaction.delete(path, version)
            elif verb == "set":
                transaction.set_data(path, data or b"", version)
            else:
                # As Kafka makes parents: with no data, which kazoo's own create() doesn't allow.
                flags = 2 if verb == "sequence" else 0
                full = self._kazoo.chroot + path
                transaction._add(Create(full, data, self.acl(path), flags), None)
        return transaction.commit_async()

    def make(self, paths: Iterable[str]) -> None:
        """Make znodes without data where they are missing, one by one, in order."""
        for path in paths:
            # Folders that Kafka makes itself may be made under a KRaft controller as well.
            for outcome in self._commit([[TransactionStep("create", path)]]):
                if isinstance(outcome, Interrupted):
                    raise StoreError(f"ZooKeeper {self.hosts} was lost", retriable=True)

    def _ask_each(self, call: Callable[[str], Any], paths: Iterable[str]) -> dict[str, Any]:
        """Ask about any number of paths, ``PIPELINE`` of them at once."""
        found: dict[str, Any] = {}
        listed = list(dict.fromkeys(paths))
        for first in range(0, len(listed), PIPELINE):
            found |= self._ask(call, listed[first : first + PIPELINE])
        return found

    def _ask(self, call: Callable[[str], Any], paths: list[str]) -> dict[str, Any]:
        """
        Make calls that may be repeated, all in flight; again when the connection was lost.

        Returns:
            The answers by path, None where there is no such znode.
        """
        deadline = time.monotonic() + left_s(CALL_TIMEOUT_S)
        with self.translated():
            while True:
                try:
                    self._until_connected(deadline)
                    asked = [(path, call(path)) for path in paths]
                    return {path: _found(answer, deadline) for path, answer in asked}
                except _PASSING:
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(RETRY_S)


def settled(
    client: ZkClient, steps: list[TransactionStep], path: str, before: Znode | None
) -> BaseException | None:
    """
    Commit one transaction, and find out whether it happened even if the connection broke.

    For transactions without a history entry that would show it: one of their znodes does.

    Args:
        client: the connection.
        steps: of the transaction.
        path: a znode that they create, set or delete.
        before: that znode as it was when they were decided.

    Returns:
        None when done; Conflict when it didn't happen.

    Raises:
        ApiError: a KRaft controller has taken the cluster over.
        StoreError: the connection was lost, and the znode is neither as it was nor as it was set.
            So others changed it too, and changing it again might undo what they did.
    """
    [outcome] = client.commit([steps])
    if isinstance(outcome, ApiError):
        raise outcome
    if not isinstance(outcome, Interrupted):
        return outcome
    try:
        client.sync()  # a new connection's server may be behind
        node = client.nodes([path])[path]
    except StoreSilent as exc:
        raise StoreSilent(exc.silence, f"{path} {UNSURE}; look what it is then") from exc
    # A step that deletes has no data, and a znode that is gone has none.
    wanted = next(step.data for step in steps if step.path == path)
    if (None if node is None else node.data) == wanted:
        return None
    if (None if node is None else node.mzxid) == (None if before is None else before.mzxid):
        return Conflict(str(outcome))
    raise StoreError(
        f"ZooKeeper {client.hosts}: the connection was lost while {path} was changed, and others "
        "have changed it since; look what it is now",
        retriable=True,
    ) from outcome


def _answer(answer: Any, deadline: float) -> Any:
    return answer.get(timeout=max(0.0, deadline - time.monotonic()))


def _found(answer: Any, deadline: float) -> Any:
    try:
        return _answer(answer, deadline)
    except NoNodeError:
        return None


def _node(data: bytes | None, stat: Any) -> Znode:
    return Znode(
        data, stat.version, stat.numChildren, stat.czxid, stat.mzxid, stat.pzxid, stat.mtime
    )


def _outcome(results: list[Any]) -> BaseException | None:
    for result in results:
        if isinstance(result, (RolledBackError, RuntimeInconsistency)):
            continue
        if isinstance(result, _CONFLICTS):
            return Conflict(type(result).__name__)
        if isinstance(result, BaseException):
            raise result
    return None


def _settings(security: ZooKeeperSecurity | None) -> dict[str, Any]:
    """Return kazoo's settings; without any the session's timeout is Kafka's."""
    if security is None:
        return {"timeout": 18.0}
    found: dict[str, Any] = {"timeout": security.session_timeout_ms / 1000}
    if security.ssl_enable:
        found |= _tls(security)
    if security.sasl_username is not None:
        password = security.sasl_password
        found["sasl_options"] = {
            "mechanism": "DIGEST-MD5",
            "username": security.sasl_username,
            "password": "" if password is None else password.value,
        }
    return found


def _tls(security: ZooKeeperSecurity) -> Mapping[str, Any]:
    for location in (security.keystore_location, security.truststore_location):
        if location is not None and not Path(location).is_file():
            raise StoreError(f"zookeeper.ssl: there is no file {location}")
    password = security.keystore_password
    ca = security.truststore_location or ssl.get_default_verify_paths().cafile
    return {
        "use_ssl": True,
        "ca": ca,
        "certfile": security.keystore_location,
        "keyfile": security.keystore_location,
        "keyfile_password": None if password is None else password.value,
        "check_hostname": True,
    }

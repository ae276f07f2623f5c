"""
A ZooKeeper in memory, behind the client library's own calls, so that the whole store runs on it.

Every read and every transaction is a moment: something else may happen just before it.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from kazoo.exceptions import (
    BadVersionError,
    KazooException,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
    RuntimeInconsistency,
)

from contract.homes import Moments
from headgate.store.zookeeper import client as zk_client


class Stat(NamedTuple):
    """What ZooKeeper says about a znode beside its data."""

    version: int
    numChildren: int
    czxid: int
    mzxid: int
    pzxid: int
    mtime: int = 0


class Answer:
    """An answer that is there already."""

    def __init__(self, told: Any) -> None:
        self._told = told

    def get(self, timeout: float = 0.0) -> Any:
        if isinstance(self._told, BaseException):
            raise self._told
        return self._told

    def wait(self, timeout: float = 0.0) -> None:
        """It is there."""


Nodes = dict[str, tuple[bytes | None, Stat]]


class PlayedZooKeeper:
    """
    The server: znodes, transactions with their ids, watches.

    Attributes:
        moments: passed before each read and each transaction of any client.
    """

    def __init__(self) -> None:
        self.moments = Moments()
        self.nodes: Nodes = {"/": (b"", Stat(0, 0, 0, 0, 0))}
        self._zxid = 0
        self._sequences: defaultdict[str, itertools.count[int]] = defaultdict(itertools.count)
        self._watches: defaultdict[tuple[str, str], list[Callable[[Any], None]]] = defaultdict(list)

    def play(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Have every store that is opened from now on find this server."""
        monkeypatch.setattr(
            zk_client, "KazooClient", lambda *_args, **_more: PlayedConnection(self)
        )

    def names(self, path: str) -> list[str]:
        """Return the names of the znodes below one."""
        start = path.rstrip("/") + "/"
        below = (p[len(start) :] for p in self.nodes if p.startswith(start) and p != "/")
        return [name for name in below if "/" not in name]

    def watch(self, kind: str, path: str, fired: Callable[[Any], None] | None) -> None:
        """Have ``fired`` called once when a znode's data or children change."""
        if fired is not None:
            self._watches[kind, path].append(fired)

    def transact(self, steps: list[tuple[str, str, bytes | None, int]]) -> list[Any]:
        """Do all steps or none; return what ZooKeeper answers to each."""
        after, zxid, told = dict(self.nodes), self._zxid + 1, []
        touched: list[tuple[str, str]] = []
        for number, step in enumerate(steps):
            try:
                told.append(self._step(after, zxid, touched, *step))
            except KazooException as exc:
                left = len(steps) - number - 1
                done: list[Any] = [RolledBackError() for _ in range(number)]
                return [*done, exc, *(RuntimeInconsistency() for _ in range(left))]
        self.nodes, self._zxid = after, zxid
        for at in touched:
            for fired in self._watches.pop(at, []):
                fired(None)
        return told

    def _step(
        self,
        after: Nodes,
        zxid: int,
        touched: list[tuple[str, str]],
        verb: str,
        path: str,
        data: bytes | None,
        version: int,
    ) -> Any:
        above = path.rpartition("/")[0] or "/"
        if verb in ("create", "sequence"):
            if above not in after:
                raise NoNodeError
            if verb == "sequence":
                path = f"{path}{next(self._sequences[path]):010d}"
            if path in after:
                raise NodeExistsError
            after[path] = data, Stat(0, 0, zxid, zxid, zxid)
            self._below(after, above, zxid, 1)
            touched += [("data", path), ("children", above)]
            return path
        if path not in after:
            raise NoNodeError
        held, stat = after[path]
        if version not in (-1, stat.version):
            raise BadVersionError
        if verb == "delete":
            if stat.numChildren:
                raise NotEmptyError
            del after[path]
            self._below(after, above, zxid, -1)
            touched += [("data", path), ("children", above)]
        elif verb == "set":
            stat = stat._replace(version=stat.version + 1, mzxid=zxid)
            after[path] = data, stat
            touched.append(("data", path))
        return held if verb == "check" else stat

    def _below(self, after: Nodes, above: str, zxid: int, more: int) -> None:
        data, stat = after[above]
        after[above] = data, stat._replace(numChildren=stat.numChildren + more, pzxid=zxid)


class PlayedConnection:
    """What the store asks of ``kazoo.client.KazooClient``."""

    connected, chroot, client_state = True, "", "CONNECTED"

    def __init__(self, server: PlayedZooKeeper) -> None:
        self._server = server

    def start_async(self) -> Answer:
        return Answer(None)

    def add_listener(self, _listener: Callable[[str], None]) -> None:
        """The connection never changes."""

    def stop(self) -> None:
        """There is nothing to end."""

    def close(self) -> None:
        """There is nothing to close."""

    def _read(self, path: str) -> tuple[bytes | None, Stat] | None:
        self._server.moments.passed()
        return self._server.nodes.get(path)

    def get_async(self, path: str) -> Answer:
        return Answer(self._read(path) or NoNodeError())

    def exists_async(self, path: str, watch: Any = None) -> Answer:
        found = self._read(path)
        self._server.watch("data", path, watch)
        return Answer(None if found is None else found[1])

    def get_children_async(
        self, path: str, watch: Any = None, include_data: bool = False
    ) -> Answer:
        found = self._read(path)
        if found is None:
            return Answer(NoNodeError())
        self._server.watch("children", path, watch)
        names = self._server.names(path)
        return Answer((names, found[1]) if include_data else names)

    def sync_async(self, path: str) -> Answer:
        self._server.moments.passed()
        return Answer(path)

    def transaction(self) -> Any:
        steps: list[tuple[str, str, bytes | None, int]] = []

        def commit() -> Answer:
            self._server.moments.passed()
            return Answer(self._server.transact(steps))

        def create(made: Any, _processed: Any) -> None:
            steps.append(("sequence" if made.flags else "create", made.path, made.data, -1))

        return SimpleNamespace(
            check=lambda path, version: steps.append(("check", path, None, version)),
            delete=lambda path, version: steps.append(("delete", path, None, version)),
            set_data=lambda path, data, version: steps.append(("set", path, data, version)),
            _add=create,
            commit_async=commit,
        )

"""
Finds the brokers of a cluster and keeps a connection to each that was needed.
"""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, TypeVar

from headgate.client.connection import Connection, answering
from headgate.client.security import Security
from headgate.config.listeners import HostPort
from headgate.errors import (
    ApiError,
    ConfigError,
    HeadgateError,
    KafkaError,
    StoreError,
    Unanswered,
)
from headgate.wire import apis
from headgate.wire.messages import cluster
from headgate.wire.messages.metadata import (
    Metadata,
    build_metadata_request,
    read_metadata_response,
)

T = TypeVar("T")

_ADDRESS: Final = re.compile(r"(?:.*://)?(?:\[([0-9a-fA-F:%.]+)\]|([^\[\]:/\s]+)):(\d{1,5})")


def parse_bootstrap(text: str) -> list[HostPort]:
    """
    Read ``host:port,[::1]:port``.

    Raises:
        ConfigError: every address that isn't ``host:port``.
    """
    found: list[HostPort] = []
    problems = []
    parts = [piece.strip() for piece in text.split(",")] if text.strip() else []
    if not all(parts):
        raise ConfigError("Configuration 'bootstrap.servers' values must not be empty.")
    for part in parts:
        match = _ADDRESS.fullmatch(part)
        if match is None or not 0 < int(match[3]) < 65536:
            problems.append(f"Invalid url in bootstrap.servers: {part}")
        else:
            found.append(HostPort(match[1] or match[2], int(match[3])))
    if not found and not problems:
        problems.append("No bootstrap urls given in bootstrap.servers")
    if problems:
        raise ConfigError(problems)
    return found


def is_controller(connection: Connection) -> bool:
    """Whether the peer is a KRaft controller: it knows the cluster, but no topics."""
    return apis.METADATA not in connection.versions and apis.DESCRIBE_CLUSTER in connection.versions


class Nodes:
    """
    The brokers that an admin client may need.

    Args:
        bootstrap: addresses to begin with, tried in order.
        security: how to connect.
        first: a connection that is open already.
        connect: connects to some bootstrap address; None: greets, and waits for ``ANSWER_S``.
    """

    def __init__(
        self,
        bootstrap: Sequence[HostPort],
        security: Security,
        first: Connection | None = None,
        connect: Callable[[], Awaitable[Connection]] | None = None,
    ) -> None:
        self._rotation = Rotation(bootstrap)
        self._connect = connect or self._greeted
        self._has_metadata = None if first is None else apis.METADATA in first.versions
        self.bootstrap = tuple(bootstrap)
        self.security = security
        # By a broker's id; None: to some bootstrap address; by address: see ``bare``.
        self._open: dict[int | HostPort | None, Connection] = {}
        if first is not None:
            self._open[None] = first
        # Calls run side by side; only one of them connects to a node.
        self._connecting: defaultdict[int | HostPort | None, asyncio.Lock] = defaultdict(
            asyncio.Lock
        )

    async def any(self) -> Connection:
        """
        Return a connection to some bootstrap address.

        Raises:
            StoreError: none can be reached; says why for each. ``Unanswered`` if some took the
                connection.
            ApiError: one refused the credentials.
        """
        return await self._kept(None, self._connect)

    async def _greeted(self) -> Connection:
        async def connect(address: HostPort) -> Connection:
            async with answering(str(address)):
                connection = await Connection.open(address, self.security, greet=True)
            # Who calls has chosen its requests by the first server's APIs. An admin listener, which
            # has no Metadata, takes others under the same keys.
            has_metadata = apis.METADATA in connection.versions
            if self._has_metadata not in (None, has_metadata):
                await connection.close()
                raise StoreError(f"{address} has other APIs than the server that was asked first")
            self._has_metadata = has_metadata
            return connection

        try:
            # One that refuses the credentials: the others would refuse them too.
            return await self._rotation.connect(connect, lambda e: not isinstance(e, ApiError))
        except NoServer as none:
            silent = any(isinstance(error, Unanswered) for _, error in none.problems)
            raise (Unanswered if silent else StoreError)(str(none), retriable=True) from None

    async def _metadata(self, *, topics: bool = False) -> Metadata:
        connection = await self.any()
        version = connection.version(apis.METADATA, 12, 8)
        asked = None if topics else ()
        frame = await connection.swap(
            lambda cid: build_metadata_request(version, cid, connection.client_id, asked)
        )
        return read_metadata_response(version, frame)

    async def brokers(self) -> dict[int, HostPort]:
        """
        Return every live broker's address by id; from a controller, every controller's.

        Raises:
            Unanswered: the server that is asked doesn't answer in time.
        """
        connection = await self.any()
        async with answering(connection.address):
            if not is_controller(connection):
                found = (await self._metadata()).brokers
            else:
                request = cluster.DescribeClusterRequest(endpoint_type=cluster.CONTROLLERS)
                found = (await connection.call(apis.DESCRIBE_CLUSTER, (1, 1), request)).brokers
        return {broker.node_id: HostPort(broker.host, broker.port) for broker in found}

    async def topics(self) -> list[str]:
        """Return every topic's name."""
        return sorted(topic.name or "" for topic in (await self._metadata(topics=True)).topics)

    async def node(self, node_id: int) -> Connection:
        """
        Return a connection to one broker.

        Raises:
            StoreError: there is no such broker, or it can't be reached.
        """
        brokers = await self.brokers()
        if node_id not in brokers:
            known = ", ".join(map(str, sorted(brokers)))
            raise StoreError(f"there is no broker {node_id}; the brokers are {known}")
        return await self.at(node_id, brokers[node_id])

    async def at(self, node_id: int, where: HostPort) -> Connection:
        """
        Return a connection to a broker, whose address is known.

        Raises:
            StoreError: it can't be reached.
        """
        opening = partial(Connection.open, where, self.security, greet=True)
        return await self._kept(node_id, opening)

    async def bare(self, where: HostPort) -> Connection:
        """
        Return a connection whose server wasn't asked for its API versions.

        A gateway answers its own calls there although the broker behind it doesn't answer, unless
        the broker has to check a login.

        Raises:
            StoreError: it can't be reached.
            Unanswered: a login isn't answered in time.
        """

        async def connect() -> Connection:
            async with answering(str(where)):
                return await Connection.open(where, self.security)

        return await self._kept(where, connect)

    async def _kept(
        self, node_id: int | HostPort | None, connect: Callable[[], Awaitable[Connection]]
    ) -> Connection:
        """Return the connection that was made before, or another one if that broke."""
        async with self._connecting[node_id]:
            before = self._open.get(node_id)
            if before is not None:
                if before.usable:
                    return before
                await before.close()
            made = self._open[node_id] = await connect()
            return made

    async def controlling(self, action: Callable[[Connection], Awaitable[T]]) -> T:
        """
        Do something that a ZooKeeper-mode cluster lets only its controller do.

        KRaft brokers forward it. Others answer NOT_CONTROLLER; then the controller is asked.
        """
        try:
            return await action(await self.any())
        except ApiError as exc:
            if exc.code != KafkaError.NOT_CONTROLLER:
                raise
        controller = (await self._metadata()).controller_id
        return await action(await self.node(controller))

    async def close(self) -> None:
        """Close every connection."""
        for connection in tuple(self._open.values()):
            await connection.close()


class Rotation:
    """
    Bootstrap servers in turn: each attempt begins after the server that was tried last.

    Args:
        servers: their addresses.
    """

    def __init__(self, servers: Sequence[HostPort]) -> None:
        self._servers = deque(servers)

    async def connect(
        self,
        connect: Callable[[HostPort], Awaitable[Connection]],
        passing: Callable[[HeadgateError], bool],
    ) -> Connection:
        """
        Connect to the first server that answers.

        Args:
            connect: opens a connection.
            passing: whether another server may answer after this error; else it is raised.

        Raises:
            NoServer: none answers.
        """
        problems: list[tuple[HostPort, HeadgateError]] = []
        for server in tuple(self._servers):
            self._servers.rotate(-1)
            try:
                return await connect(server)
            except HeadgateError as exc:
                if not passing(exc):
                    raise
                problems.append((server, exc))
        raise NoServer(problems)


class NoServer(Exception):  # its callers say it in words of their own
    """
    None of the bootstrap servers answers.

    Args:
        problems: each server, and its error.
    """

    def __init__(self, problems: Sequence[tuple[HostPort, HeadgateError]]) -> None:
        super().__init__("; ".join(str(error) for _, error in problems))
        self.problems = problems

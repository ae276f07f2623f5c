"""
The gateway's own questions to the upstream cluster: which brokers there are, topics' partitions.

One short-lived connection per question, with ``headgate.upstream.admin.*``; these credentials are
never lent to a client. Off the hot path: asyncio streams and kio's codec are good enough here.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import ssl
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from kio.schema.metadata.v8.request import MetadataRequest, MetadataRequestTopic
from kio.schema.metadata.v8.response import MetadataResponse
from kio.schema.metadata.v12.request import MetadataRequest as TopicsRequest
from kio.schema.metadata.v12.request import MetadataRequestTopic as TopicsRequestTopic
from kio.schema.metadata.v12.response import MetadataResponse as TopicsResponse
from kio.serial import entity_reader, entity_writer

from headgate.config.listeners import HostPort
from headgate.config.settings import ClientSecurity
from headgate.errors import HeadgateError, RemoteProtocolError
from headgate.wire import apis
from headgate.wire.header import build_request
from headgate.wire.messages import sasl
from headgate.wire.sasl_client import HASHES, plain, scram

CLIENT_ID: Final = "headgate"
_METADATA_VERSION: Final = 8
"""The newest not flexible version; every broker since 2.3 has it."""
_TOPICS_VERSION: Final = 12
"""Has topic ids; every broker since 3.1 has it."""
_ASK_AGAIN_S: Final = 0.1
_MOST_ANSWER_BYTES: Final = 268_435_456


class UpstreamError(HeadgateError):
    """The upstream can't be reached, or refused the gateway; says which address and why."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """
    What the upstream says of itself on one listener.

    Args:
        cluster_id: its id.
        brokers: broker id to the address this listener has there.
        controller_id: -1 if none is known.
    """

    cluster_id: str
    brokers: dict[int, HostPort]
    controller_id: int


class AdminConnection:
    """One authenticated connection to a broker; requests one after another."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, where: HostPort
    ) -> None:
        self._reader, self._writer, self._where = reader, writer, where

    async def ask(self, key: int, version: int, body: bytes) -> bytes:
        """Send a request and return the whole answer frame."""
        return await self._send(build_request(key, version, 1, CLIENT_ID, body))

    async def _send(self, frame: bytes) -> bytes:
        self._writer.write(frame)
        await self._writer.drain()
        head = await self._reader.readexactly(4)
        size = int.from_bytes(head, "big")
        if size > _MOST_ANSWER_BYTES:
            raise UpstreamError(f"{self._where}: an answer of {size} bytes; is it a Kafka broker?")
        return head + await self._reader.readexactly(size)

    async def authenticate(self, security: ClientSecurity) -> None:
        """Log in by PLAIN or SCRAM."""
        mechanism = security.sasl_mechanism
        name, password = security.sasl_username, security.sasl_password
        if name is None or password is None:
            raise UpstreamError(
                f"{self._where}: the upstream listener wants SASL and no user is given; set "
                "headgate.upstream.admin.sasl.username and .password"
            )
        frame = await self.ask(apis.SASL_HANDSHAKE, 1, sasl.build_handshake(mechanism))
        error, offered = sasl.handshake_response(frame)
        if error:
            raise UpstreamError(
                f"{self._where}: SASL {mechanism} isn't offered; there is {', '.join(offered)}"
            )
        if mechanism == "PLAIN":
            exchange = plain(name, password.value)
        elif mechanism in HASHES:
            exchange = scram(mechanism, name, password.value)
        else:
            raise UpstreamError(
                f"{self._where}: SASL mechanism {mechanism} isn't spoken by the gateway itself; "
                f"use PLAIN, {' or '.join(HASHES)}"
            )
        try:
            token = next(exchange)
            while True:
                token = exchange.send(await self._token(token))
        except StopIteration:
            return
        except RemoteProtocolError as distrusted:
            raise UpstreamError(f"{self._where}: {distrusted}") from distrusted

    async def _token(self, token: bytes) -> bytes:
        frame = await self.ask(apis.SASL_AUTHENTICATE, 0, sasl.build_authenticate(token, 0))
        error, message, answer, _ = sasl.authenticate_response(frame, 0)
        if error:
            raise UpstreamError(f"{self._where}: login refused: {message or error}")
        return answer

    def detach(self) -> asyncio.WriteTransport:
        """Hand the authenticated transport over; nothing more is asked here."""
        return self._writer.transport

    async def close(self) -> None:
        """Hang up."""
        self._writer.close()
        with contextlib.suppress(Exception):
            await self._writer.wait_closed()


async def connect(
    where: HostPort, security: ClientSecurity, tls: ssl.SSLContext | None, timeout_ms: int
) -> AdminConnection:
    """
    Open one authenticated connection.

    Raises:
        UpstreamError: it can't be reached or refuses us.
    """
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            reader, writer = await asyncio.open_connection(
                where.host or "127.0.0.1",
                where.port,
                ssl=tls,
                server_hostname=where.host if tls is not None else None,
            )
            connection = AdminConnection(reader, writer, where)
            try:
                if security.security_protocol.sasl:
                    await connection.authenticate(security)
            except BaseException:
                await connection.close()
                raise
            return connection
    except TimeoutError:
        raise UpstreamError(f"{where} didn't answer within {timeout_ms} ms") from None
    except (OSError, asyncio.IncompleteReadError) as error:
        raise UpstreamError(f"{where} can't be reached: {error}") from error


async def metadata(connection: AdminConnection, topics: Sequence[str] | None) -> Any:
    """
    Ask for brokers, and for some topics' partitions.

    Args:
        connection: to any broker.
        topics: names; empty: brokers only; None: every topic.

    Returns:
        kio's MetadataResponse v8.
    """
    request = MetadataRequest(
        topics=None if topics is None else tuple(MetadataRequestTopic(name=t) for t in topics),
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )
    buffer = io.BytesIO()
    entity_writer(MetadataRequest)(buffer, request)
    frame = await connection.ask(apis.METADATA, _METADATA_VERSION, buffer.getvalue())
    response, _ = entity_reader(MetadataResponse)(frame, 8)
    return response


async def topic_partitions(
    connection: AdminConnection, names: Sequence[str] | None
) -> list[tuple[str, uuid.UUID, int]]:
    """
    Ask how many partitions topics have.

    Args:
        connection: to any broker.
        names: topics; None: all.

    Returns:
        Name, id and partitions of each that exists.
    """
    request = TopicsRequest(
        topics=None
        if names is None
        else tuple(TopicsRequestTopic(name=name, topic_id=None) for name in names),
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
    )
    buffer = io.BytesIO()
    entity_writer(TopicsRequest)(buffer, request)
    frame = await connection.ask(apis.METADATA, _TOPICS_VERSION, buffer.getvalue())
    response, _ = entity_reader(TopicsResponse)(frame, 9)
    return [
        (topic.name, topic.topic_id or uuid.UUID(int=0), len(topic.partitions))
        for topic in response.topics
        if not topic.error_code
    ]


async def discover(
    bootstrap: Sequence[HostPort],
    security: ClientSecurity,
    tls: ssl.SSLContext | None,
    timeout_ms: int,
) -> Cluster:
    """
    Ask the first bootstrap server that answers for all brokers.

    Raises:
        UpstreamError: none answers; names each and why.
    """
    problems: list[str] = []
    for where in bootstrap:
        try:
            connection = await connect(where, security, tls, timeout_ms)
        except UpstreamError as error:
            problems.append(str(error))
            continue
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                answer = await metadata(connection, ())
                while not answer.brokers:  # it has just started, and will know itself soon
                    await asyncio.sleep(_ASK_AGAIN_S)
                    answer = await metadata(connection, ())
        except TimeoutError:
            problems.append(f"{where} doesn't say within {timeout_ms} ms which brokers there are")
            continue
        except (OSError, asyncio.IncompleteReadError, ValueError) as error:
            problems.append(f"{where} doesn't answer like a Kafka broker ({error!r})")
            continue
        finally:
            await connection.close()
        brokers = {int(b.node_id): HostPort(b.host, int(b.port)) for b in answer.brokers}
        return Cluster(answer.cluster_id or "", brokers, int(answer.controller_id))
    raise UpstreamError("; ".join(problems) or "no upstream is given")

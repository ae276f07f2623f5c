"""
The gateway's own questions to the upstream cluster: which brokers there are, topics' partitions.

One short-lived connection per question, with ``headgate.upstream.admin.*``; these credentials are
never lent to a client. Off the hot path: asyncio streams are good enough here.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from headgate.config.listeners import HostPort
from headgate.config.security import ClientSecurity
from headgate.config.wrong_protocol import Spoken
from headgate.errors import HeadgateError, KafkaError, RemoteProtocolError
from headgate.wire import apis
from headgate.wire.header import build_request
from headgate.wire.messages import api_versions as versions_message
from headgate.wire.messages import configs, decode_response, encode_request, sasl
from headgate.wire.messages.delegation import DescribeDelegationTokenRequest, DescribedToken
from headgate.wire.messages.metadata import (
    NO_ID,
    AskedTopic,
    Metadata,
    build_metadata_request,
    read_metadata_response,
)
from headgate.wire.sasl_client import HASHES, plain, scram

CLIENT_ID: Final = "headgate"
_METADATA_VERSION: Final = 8
"""The newest not flexible version; every broker since 2.3 has it."""
_TOPIC_VERSIONS: Final = (12, 10, 8)
"""What topics are asked with."""
_ASKS_IDS: Final = 12
"""Metadata takes topic ids in its request; before, all topics are asked for."""
_HAS_IDS: Final = 10
"""Metadata answers with topic ids; DeleteTopics takes them since the same Kafka (2.8)."""
_CONFIGS_VERSION: Final = 1
"""Every broker from 1.1 to 4.x has it."""
_TOKENS_VERSION: Final = 1
"""Every broker from 1.1 to 4.x has it."""
_TOKEN_ERRORS: Final = {
    61: "the broker has no delegation tokens: its delegation.token.secret.key isn't set",
    64: "the broker tells of delegation tokens only to who has logged in, not by a token itself",
    65: "the gateway's own user isn't authorized to describe delegation tokens",
}
_ABSENT: Final = frozenset({3, 17, 100})
"""UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION, UNKNOWN_TOPIC_ID: there is no such topic."""
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
        kraft: any broker takes what is the controller's, and hands it on.
    """

    cluster_id: str
    brokers: dict[int, HostPort]
    controller_id: int
    kraft: bool = False


class AdminConnection:
    """One authenticated connection to a broker; requests one after another."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        where: HostPort,
        spoken: Spoken,
    ) -> None:
        self._reader, self._writer, self._where = reader, writer, where
        self._spoken = spoken
        self._answered = False

    async def ask(self, key: int, version: int, body: bytes) -> bytes:
        """Send a request and return the whole answer frame."""
        return await self.send(build_request(key, version, 1, CLIENT_ID, body))

    async def send(self, frame: bytes) -> bytes:
        """Send a whole request frame and return the whole answer frame."""
        try:
            self._writer.write(frame)
            await self._writer.drain()
            head = await self._reader.readexactly(4)
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            told = None if self._answered else self._spoken.hung_up(logged_in=False)
            if told is None:
                raise
            raise UpstreamError(f"{self._where}: {told}") from error
        told = self._spoken.answered(head)
        if told is not None:
            raise UpstreamError(f"{self._where}: {told}")
        self._answered = True
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
        if error == KafkaError.ILLEGAL_SASL_STATE:
            raise UpstreamError(f"{self._where}: {self._spoken.no_sasl()}")
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
        """
        Hand the authenticated transport over; nothing more is asked here.

        Raises:
            UpstreamError: the broker has hung up: whoever takes the transport won't be told again.
        """
        transport = self._writer.transport
        if transport.is_closing() or self._reader.at_eof():
            transport.abort()
            raise UpstreamError(f"{self._where}: the broker hung up after the login")
        return transport

    async def close(self) -> None:
        """Hang up."""
        self._writer.close()
        with contextlib.suppress(Exception):
            await self._writer.wait_closed()


async def connect(
    where: HostPort,
    security: ClientSecurity,
    tls: ssl.SSLContext | None,
    timeout_ms: int,
    setting: str = "headgate.upstream.security.protocol",
) -> AdminConnection:
    """
    Open one authenticated connection.

    Args:
        where: a broker.
        security: protocol and credentials.
        tls: for TLS.
        timeout_ms: for connection and login together.
        setting: where the protocol is set, for messages.

    Raises:
        UpstreamError: it can't be reached or refuses us.
    """
    spoken = Spoken(setting, security.security_protocol)
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            reader, writer = await asyncio.open_connection(
                where.host or "127.0.0.1",
                where.port,
                ssl=tls,
                server_hostname=where.host if tls is not None else None,
            )
            connection = AdminConnection(reader, writer, where, spoken)
            try:
                if security.security_protocol.sasl:
                    await connection.authenticate(security)
            except BaseException:
                await connection.close()
                raise
            return connection
    except TimeoutError:
        raise UpstreamError(f"{where} didn't answer within {timeout_ms} ms") from None
    except (OSError, asyncio.IncompleteReadError, UnicodeError) as error:
        told = spoken.handshake_failed(error) if isinstance(error, OSError) else None
        raise UpstreamError(f"{where} can't be reached: {told or error}") from error
    except RemoteProtocolError as error:
        raise UpstreamError(f"{where} doesn't answer like a Kafka broker: {error}") from error


async def metadata(
    connection: AdminConnection, asked: Sequence[AskedTopic] | None, version: int
) -> Metadata:
    """
    Ask for brokers, and for some topics' partitions.

    Args:
        connection: to any broker.
        asked: the topics; empty: brokers only; None: every topic.
        version: of the question.
    """
    frame = build_metadata_request(version, 1, CLIENT_ID, asked)
    return read_metadata_response(version, await connection.send(frame))


TopicRef = str | uuid.UUID
"""A topic by name, or by id as DeleteTopics 6 may call it."""


async def topic_partitions(
    connection: AdminConnection, refs: Collection[TopicRef]
) -> dict[TopicRef, int]:
    """
    Ask how many partitions topics have, in the newest way the broker knows.

    Args:
        connection: to any broker.
        refs: topics by name or id.

    Returns:
        Partitions by whatever each topic was called, and by its name and id; 0 where there is no
        such topic; nothing for topics the cluster wouldn't tell of.

    Raises:
        UpstreamError: the broker has no version of Metadata that answers this.
    """
    newest = (await api_versions(connection)).get(apis.METADATA, (0, 0))[1]
    by_id = any(isinstance(ref, uuid.UUID) for ref in refs)
    version = next(
        (v for v in _TOPIC_VERSIONS if v <= newest and (v >= _HAS_IDS or not by_id)), None
    )
    if version is None:
        raise UpstreamError(f"Metadata up to version {newest} knows no topic ids")
    asked = None if by_id and version < _ASKS_IDS else [_asked(ref) for ref in refs]
    response = await metadata(connection, asked, version)
    counts: dict[TopicRef, int] = {}
    for topic in response.topics:
        refs_of: tuple[TopicRef | None, ...] = (topic.name, topic.topic_id)
        for ref in refs_of:
            if ref is None or ref == NO_ID:
                continue
            if not topic.error_code:
                counts[ref] = topic.partitions
            elif topic.error_code in _ABSENT:
                counts[ref] = 0
    return counts


def _asked(ref: TopicRef) -> AskedTopic:
    return AskedTopic(ref) if isinstance(ref, str) else AskedTopic(None, ref)


async def api_versions(connection: AdminConnection) -> Mapping[int, tuple[int, int]]:
    """Ask which versions of each API a broker has."""
    frame = await connection.ask(apis.API_VERSIONS, 0, b"")
    return versions_message.parse_response(frame, 0).ranges


async def delegation_tokens(connection: AdminConnection) -> tuple[DescribedToken, ...]:
    """
    Ask for every delegation token that one may see, secrets included.

    Raises:
        UpstreamError: the broker doesn't tell; says why and the way out.
    """
    request = DescribeDelegationTokenRequest()
    frame = encode_request(apis.DESCRIBE_DELEGATION_TOKEN, _TOKENS_VERSION, 1, CLIENT_ID, request)
    answer = decode_response(
        apis.DESCRIBE_DELEGATION_TOKEN, _TOKENS_VERSION, await connection.send(frame)
    )
    if answer.error_code:
        raise UpstreamError(_TOKEN_ERRORS.get(answer.error_code, f"error {answer.error_code}"))
    tokens: tuple[DescribedToken, ...] = answer.tokens
    return tokens


async def broker_config(connection: AdminConnection, broker_id: int, name: str) -> str | None:
    """
    Ask for one setting of the broker at the other end.

    Returns:
        Its value; None where it has none or wouldn't tell.
    """
    resource = configs.DescribeResource(configs.BROKER, str(broker_id), (name,))
    request = configs.DescribeConfigsRequest((resource,))
    frame = encode_request(apis.DESCRIBE_CONFIGS, _CONFIGS_VERSION, 1, CLIENT_ID, request)
    answer = decode_response(apis.DESCRIBE_CONFIGS, _CONFIGS_VERSION, await connection.send(frame))
    found = (c.value for result in answer.results for c in result.configs if c.name == name)
    return next(found, None)


async def discover(
    bootstrap: Sequence[HostPort],
    security: ClientSecurity,
    tls: ssl.SSLContext | None,
    timeout_ms: int,
    setting: str = "headgate.upstream.security.protocol",
) -> Cluster:
    """
    Ask the first bootstrap server that answers for all brokers.

    Raises:
        UpstreamError: none answers; names each and why.
    """
    problems: list[str] = []
    for where in bootstrap:
        try:
            connection = await connect(where, security, tls, timeout_ms, setting)
        except UpstreamError as error:
            problems.append(str(error))
            continue
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                answer = await metadata(connection, (), _METADATA_VERSION)
                while not answer.brokers:  # it has just started, and will know itself soon
                    await asyncio.sleep(_ASK_AGAIN_S)
                    answer = await metadata(connection, (), _METADATA_VERSION)
                kraft = apis.DESCRIBE_QUORUM in await api_versions(connection)
        except TimeoutError:
            problems.append(f"{where} doesn't say within {timeout_ms} ms which brokers there are")
            continue
        except UpstreamError as error:
            problems.append(str(error))
            continue
        except (OSError, asyncio.IncompleteReadError, ValueError, HeadgateError) as no:
            problems.append(f"{where} doesn't answer like a Kafka broker ({no!r})")
            continue
        finally:
            await connection.close()
        brokers = {b.node_id: HostPort(b.host, b.port) for b in answer.brokers}
        return Cluster(answer.cluster_id or "", brokers, answer.controller_id, kraft)
    raise UpstreamError("; ".join(problems) or "no upstream is given")

"""
The gateway's own requests to the upstream cluster: its brokers, and topics' partitions.

One short-lived connection per question, with ``headgate.upstream.admin.*``; these credentials are
never lent to a client. Off the hot path: asyncio streams are good enough here.
"""

from __future__ import annotations

import asyncio
import ssl
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from headgate.client.connection import Connection, Unreachable
from headgate.client.security import Security
from headgate.config.listeners import HostPort
from headgate.config.security import ClientSecurity
from headgate.errors import (
    ApiError,
    ConfigError,
    HeadgateError,
    KafkaError,
    RemoteProtocolError,
    StoreError,
)
from headgate.steps import FEW, Work, finish, taken
from headgate.wire import apis
from headgate.wire.messages import configs
from headgate.wire.messages.delegation import DescribeDelegationTokenRequest, DescribedToken
from headgate.wire.messages.metadata import (
    NO_ID,
    AskedTopic,
    Metadata,
    TopicMetadata,
    build_metadata_request,
    read_metadata_steps,
)

CLIENT_ID: Final = "headgate"
_METADATA_VERSION: Final = 8
"""The newest not flexible version; every broker since 2.3 has it."""
_TOPIC_VERSIONS: Final = (12, 10, 8)
"""Versions of Metadata that ask for topics, the best first."""
_ASKS_IDS: Final = 12
"""From this version on a Metadata request can name topic ids; before, it asks for all topics."""
_HAS_IDS: Final = 10
"""From this version on (Kafka 2.8) Metadata answers with topic ids; DeleteTopics takes them."""
_CONFIGS_VERSION: Final = 1
"""Every broker from 1.1 to 4.x has it."""
_TOKENS_VERSION: Final = 1
"""Every broker from 1.1 to 4.x has it."""
_TOKEN_ERRORS: Final = {
    61: "the broker has no delegation tokens: its delegation.token.secret.key isn't set",
    64: "the broker describes delegation tokens only to clients that log in without a token",
    65: "the gateway's own user isn't authorized to describe delegation tokens",
}
_ABSENT: Final = frozenset({3, 17, 100})
"""UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION, UNKNOWN_TOPIC_ID: there is no such topic."""
_ASK_AGAIN_S: Final = 0.1
MOST_ASKED: Final = 250
"""Topics of one question: a broker holds up others too while it answers, and so do we while we
write the question and take in the answer, which describes every partition."""

Run = Callable[[Work[Any]], Awaitable[Any]]
"""Does work and returns what that returns, as ``TimeSlices.run`` does."""


async def at_once(work: Work[Any]) -> Any:
    """Do work that is known to be short."""
    return finish(work)


class UpstreamError(HeadgateError):
    """The upstream can't be reached, or refused the gateway; says which address and why."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """
    What the upstream says about its cluster on one listener.

    Args:
        cluster_id: its id.
        brokers: broker id to the address this listener has there.
        controller_id: -1 if none is known.
        kraft: any broker takes the controller's requests, and passes them on to it.
    """

    cluster_id: str
    brokers: dict[int, HostPort]
    controller_id: int
    kraft: bool = False


NO_USER: Final = (
    "the upstream listener wants SASL and no user is given; set "
    "headgate.upstream.admin.sasl.username and .password"
)


def without_user(security: ClientSecurity) -> bool:
    """Whether it logs in by SASL and has no user or no password."""
    sasl = security.security_protocol.sasl
    return sasl and None in (security.sasl_username, security.sasl_password)


async def connect(
    where: HostPort,
    security: ClientSecurity,
    tls: ssl.SSLContext | None,
    timeout_ms: int,
    setting: str = "headgate.upstream.security.protocol",
) -> Connection:
    """
    Open one authenticated connection.

    Args:
        where: a broker.
        security: protocol and credentials.
        tls: for TLS.
        timeout_ms: for connection and login together.
        setting: where the protocol is set, for messages.

    Raises:
        UpstreamError: it can't be reached, or refuses the gateway.
    """
    if without_user(security):
        raise UpstreamError(f"{where}: {NO_USER}")
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            return await Connection.open(where, Security.own(security, tls, CLIENT_ID, setting))
    except TimeoutError as error:
        raise UpstreamError(f"{where} didn't answer within {timeout_ms} ms") from error
    except Unreachable as error:
        raise UpstreamError(f"{where} can't be reached: {error.reason}") from error
    except RemoteProtocolError as error:
        raise UpstreamError(f"{where} doesn't answer like a Kafka broker: {error}") from error
    except ApiError as error:
        if error.code == KafkaError.SASL_AUTHENTICATION_FAILED:
            raise UpstreamError(f"{where}: login refused: {error}") from error
        raise UpstreamError(str(error)) from error
    except StoreError as error:
        raise UpstreamError(str(error)) from error
    except ConfigError as error:
        raise UpstreamError(f"{where}: {error}") from error


async def metadata(
    connection: Connection,
    asked: Sequence[AskedTopic] | None,
    version: int,
    run: Run = at_once,
) -> Metadata:
    """
    Ask for brokers, and for some topics' partitions.

    Args:
        connection: to any broker.
        asked: the topics; empty: brokers only; None: every topic.
        version: of Metadata.
        run: reads the answer.
    """
    frame = await connection.swap(
        lambda cid: build_metadata_request(version, cid, CLIENT_ID, asked)
    )
    found: Metadata = await run(read_metadata_steps(version, frame))
    return found


TopicRef = str | uuid.UUID
"""A topic by name, or by id as DeleteTopics 6 may call it."""


async def topic_partitions(
    connection: Connection,
    left: list[TopicRef],
    counts: dict[TopicRef, int],
    run: Run = at_once,
) -> None:
    """
    Ask how many partitions topics have: one question, in the newest way the broker knows.

    Args:
        connection: to any broker.
        left: topics by name or id, none twice; those that were asked for, at most ``MOST_ASKED``,
            are taken from its end.
        counts: takes partitions by the name or id that was asked for, and by the topic's name and
            id; 0 where there is no such topic; nothing for topics that the cluster didn't describe.
        run: reads the answer.

    Raises:
        UpstreamError: the broker has no version of Metadata that answers this.
    """
    refs = left[-MOST_ASKED:]
    newest = (connection.versions or await api_versions(connection)).get(apis.METADATA, (0, 0))[1]
    by_id = any(isinstance(ref, uuid.UUID) for ref in refs)
    version = next(
        (v for v in _TOPIC_VERSIONS if v <= newest and (v >= _HAS_IDS or not by_id)), None
    )
    if version is None:
        raise UpstreamError(f"Metadata up to version {newest} knows no topic ids")
    every = by_id and version < _ASKS_IDS
    asked = None if every else [_asked(ref) for ref in refs]
    response = await metadata(connection, asked, version, run)
    topics = list(response.topics)
    del response  # so that its topics are freed one by one
    await run(_counted(topics, counts))
    del left[0 if every else -MOST_ASKED :]


def _counted(topics: list[TopicMetadata], counts: dict[TopicRef, int]) -> Work[None]:
    """Note how many partitions topics have; the list is emptied."""
    for number, topic in enumerate(taken(topics)):
        if number % FEW == FEW - 1:
            yield
        refs_of: tuple[TopicRef | None, ...] = (topic.name, topic.topic_id)
        for ref in refs_of:
            if ref is None or ref == NO_ID:
                continue
            if not topic.error_code:
                counts[ref] = topic.partitions
            elif topic.error_code in _ABSENT:
                counts[ref] = 0


def _asked(ref: TopicRef) -> AskedTopic:
    return AskedTopic(ref) if isinstance(ref, str) else AskedTopic(None, ref)


async def api_versions(connection: Connection) -> Mapping[int, tuple[int, int]]:
    """Ask which versions of each API a broker has."""
    await connection.greet()
    return connection.versions


async def delegation_tokens(connection: Connection) -> tuple[DescribedToken, ...]:
    """
    Ask for every delegation token that the gateway's own user may see, secrets included.

    Raises:
        UpstreamError: the broker refuses; says why.
    """
    request = DescribeDelegationTokenRequest()
    answer = await connection.ask(apis.DESCRIBE_DELEGATION_TOKEN, _TOKENS_VERSION, request)
    if answer.error_code:
        raise UpstreamError(_TOKEN_ERRORS.get(answer.error_code, f"error {answer.error_code}"))
    tokens: tuple[DescribedToken, ...] = answer.tokens
    return tokens


async def broker_config(connection: Connection, broker_id: int, name: str) -> str | None:
    """
    Ask for one setting of the broker at the other end.

    Returns:
        Its value; None if it has none, or the broker doesn't say.
    """
    resource = configs.DescribeResource(configs.BROKER, str(broker_id), (name,))
    request = configs.DescribeConfigsRequest((resource,))
    answer = await connection.ask(apis.DESCRIBE_CONFIGS, _CONFIGS_VERSION, request)
    found = (c.value for result in answer.results for c in result.configs if c.name == name)
    return next(found, None)


async def answers(
    where: HostPort,
    security: ClientSecurity,
    tls: ssl.SSLContext | None,
    timeout_ms: int,
    setting: str = "headgate.upstream.security.protocol",
) -> None:
    """
    See whether a broker answers a question for brokers, on a connection of its own.

    Args:
        where: the broker.
        security: protocol and credentials.
        tls: for TLS.
        timeout_ms: for the connection with its login, and for the answer.
        setting: where the protocol is set, for messages.

    Raises:
        UpstreamError: it doesn't.
    """
    connection = await connect(where, security, tls, timeout_ms, setting)
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            await metadata(connection, (), _METADATA_VERSION)
    except TimeoutError as error:
        raise UpstreamError(
            f"{where} takes connections and doesn't answer within {timeout_ms} ms"
        ) from error
    except (ValueError, HeadgateError) as error:
        raise UpstreamError(f"{where} doesn't answer like a Kafka broker ({error})") from error
    finally:
        await connection.close()


async def discover(
    bootstrap: Sequence[HostPort],
    security: ClientSecurity,
    tls: ssl.SSLContext | None,
    timeout_ms: int,
    setting: str = "headgate.upstream.security.protocol",
) -> Cluster:
    """
    Ask the bootstrap servers, one after the other until one answers, which brokers there are.

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
                while not answer.brokers:  # it has just started, and names itself soon
                    await asyncio.sleep(_ASK_AGAIN_S)
                    answer = await metadata(connection, (), _METADATA_VERSION)
                kraft = apis.DESCRIBE_QUORUM in await api_versions(connection)
        except TimeoutError:
            problems.append(f"{where} doesn't say within {timeout_ms} ms which brokers there are")
            continue
        except StoreError as error:
            problems.append(str(error))
            continue
        except (ValueError, HeadgateError) as no:
            problems.append(f"{where} doesn't answer like a Kafka broker ({no!r})")
            continue
        finally:
            await connection.close()
        brokers = {b.node_id: HostPort(b.host, b.port) for b in answer.brokers}
        return Cluster(answer.cluster_id or "", brokers, answer.controller_id, kraft)
    raise UpstreamError("; ".join(problems) or "no upstream is given")

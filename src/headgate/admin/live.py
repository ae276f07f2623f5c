"""
Ask gateways what goes on now (``wire.messages.live``), and join the answers for all brokers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from headgate.client.connection import Connection, raise_error
from headgate.client.nodes import Nodes
from headgate.client.security import Security
from headgate.config.listeners import HostPort
from headgate.errors import (
    ApiError,
    HeadgateError,
    RemoteProtocolError,
    StoreError,
    Unanswered,
)
from headgate.live.picture import Picture, decode, joined
from headgate.wire.messages.live import LIVE, LiveRequest, LiveResponse


async def ask_brokers(nodes: Nodes, request: LiveRequest) -> Picture:
    """
    Ask about every broker of a cluster, at the gateway in front of it.

    Returns:
        What they answered; ``note`` names brokers that couldn't be asked.

    Raises:
        ApiError: CLUSTER_AUTHORIZATION_FAILED.
        StoreError: no server answers, or no broker has a gateway in front of it.
        Unanswered: the server that knows the brokers doesn't answer.
    """
    brokers = await nodes.brokers()
    return await _ask_each(nodes, [where for _, where in sorted(brokers.items())], request)


async def ask_unanswered(
    addresses: Sequence[HostPort], security: Security, request: LiveRequest
) -> Picture:
    """
    Do so where no server says which brokers there are: ask each bootstrap address.

    A gateway passes that question on to a broker; it answers this one in the broker's place.

    Raises:
        Unanswered: credentials are given, and no broker checks them.
    """
    nodes = Nodes(addresses, security)
    try:
        return await _ask_each(nodes, addresses, request)
    finally:
        await nodes.close()


async def _ask_each(nodes: Nodes, addresses: Iterable[HostPort], request: LiveRequest) -> Picture:
    async def ask(where: HostPort) -> Picture | HeadgateError:
        try:
            return await ask_one(await nodes.bare(where), request)
        except HeadgateError as error:
            return error  # so that gather waits for the others before connections are closed

    answers = await asyncio.gather(*map(ask, addresses))
    for answer in answers:
        if isinstance(answer, ApiError):
            raise answer
    pictures = tuple(answer for answer in answers if isinstance(answer, Picture))
    troubles = [str(answer) for answer in answers if isinstance(answer, HeadgateError)]
    if not pictures:
        silent = any(isinstance(answer, Unanswered) for answer in answers)
        error = Unanswered if silent else StoreError
        raise error("\n".join(troubles) or "the cluster names no broker")
    note = f"Some brokers couldn't be asked: {'; '.join(troubles)}." if troubles else ""
    return joined(pictures, note)


async def ask_one(connection: Connection, request: LiveRequest) -> Picture:
    """
    Ask one gateway.

    Raises:
        ApiError: CLUSTER_AUTHORIZATION_FAILED.
        StoreError: it isn't a gateway, or it closed the connection.
        RemoteProtocolError: its answer can't be read.
    """
    try:
        answer: LiveResponse = await connection.ask(LIVE, 0, request)
    except StoreError as error:
        raise StoreError(
            f"{connection.address} isn't a Headgate gateway, or it can't say what goes on now "
            f"({error}). Give the address of a gateway's listener"
        ) from error
    raise_error(answer.error_code, answer.error_message)
    try:
        return decode(answer.picture or b"")
    except ValueError as error:
        raise RemoteProtocolError(f"{connection.address}: no picture: {error}") from error

"""
The one caller of APIs 48 and 49 (DescribeClientQuotas, AlterClientQuotas), through any broker.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Final

from headgate.client.connection import Connection
from headgate.client.nodes import Nodes
from headgate.client.quota_messages import alter_request, describe_request
from headgate.errors import KafkaError, RemoteProtocolError, StoreError
from headgate.quota.alteration import QuotaAlteration
from headgate.quota.filter import FilterComponent
from headgate.wire.apis import ALTER_CLIENT_QUOTAS, DESCRIBE_CLIENT_QUOTAS
from headgate.wire.header import response_body_offset
from headgate.wire.messages import decode_response, encode_request
from headgate.wire.messages.quotas import (
    AlterClientQuotasResponse,
    AlteredEntry,
    DescribeClientQuotasResponse,
)

NEWEST: Final = 1
"""Both APIs have version 1, flexible, since Kafka 2.8; a server that wasn't asked is sent this."""
RETRIABLE: Final = frozenset(
    {
        KafkaError.NOT_CONTROLLER,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
    }
)
"""Errors that go away: a controller moved, a broker starts (RetriableException in Kafka)."""
_AGAIN_S: Final = 0.2
_RECONNECT_S: Final = 0.1
Turn = Callable[[float | None], AbstractAsyncContextManager[None]]


class QuotaCalls:
    """
    Describes and alters client quotas. Both may be repeated: altering sets values, it doesn't add.

    Args:
        nodes: finds and keeps connections.
        answer_s: how long one answer is waited for, in seconds; None: as long as the caller waits.
        turn: entered for each request and its answer, with ``until``; left between two tries, so
            that a call which is repeated keeps no other waiting. None: requests go side by side.
    """

    def __init__(
        self, nodes: Nodes, answer_s: float | None = None, turn: Turn | None = None
    ) -> None:
        self._nodes = nodes
        self._answer_s = answer_s
        self._turn = turn or (lambda until: nullcontext())
        self._described: tuple[bytes, DescribeClientQuotasResponse] | None = None

    async def describe(
        self,
        components: Sequence[FilterComponent] = (),
        *,
        strict: bool = False,
        until: float | None = None,
    ) -> DescribeClientQuotasResponse:
        """
        Ask for quotas; for all of them without components.

        Args:
            components: the filter.
            strict: whether entities may have no further types.
            until: the moment of the monotonic clock until which what goes away is tried again;
                None: nothing is tried again.

        Returns:
            The answer, which may be a refusal.

        Raises:
            StoreError, RemoteProtocolError, TimeoutError: no server answers.
            ApiError: a server refuses the credentials, or lacks the API.
        """
        request = describe_request(components, strict=strict)
        while True:
            version, frame = await self._swap(DESCRIBE_CLIENT_QUOTAS, request, until)
            answer = self._decoded(version, frame, remember=not components)
            if answer.error_code not in RETRIABLE or _is_over(until):
                return answer
            await asyncio.sleep(_AGAIN_S)

    def _decoded(
        self, version: int, frame: bytes, *, remember: bool
    ) -> DescribeClientQuotasResponse:
        """Return the answer; one with the same bytes as the remembered one isn't read again."""
        # The throttle time is the body's first field and nothing we look at.
        body = memoryview(frame)[response_body_offset(DESCRIBE_CLIENT_QUOTAS, version, frame) + 4 :]
        digest = hashlib.blake2b(body, digest_size=16, salt=bytes([version])).digest()
        if self._described is not None and self._described[0] == digest:
            return self._described[1]
        answer: DescribeClientQuotasResponse = decode_response(
            DESCRIBE_CLIENT_QUOTAS, version, frame
        )
        if remember and answer.error_code == 0:
            self._described = (digest, answer)
        return answer

    async def alter(
        self,
        alterations: Sequence[QuotaAlteration],
        *,
        validate_only: bool,
        until: float | None = None,
        over: Connection | None = None,
    ) -> tuple[AlteredEntry, ...]:
        """
        Set and remove quotas.

        Args:
            alterations: what to set and remove.
            validate_only: check, and change nothing.
            until: as for ``describe``; nothing is sent later than this.
            over: the connection to use; None: to any server.

        Returns:
            Kafka's answer, an entry per entity.

        Raises:
            StoreError, RemoteProtocolError, TimeoutError, ApiError: as ``describe``.
        """
        request = alter_request(alterations, validate_only=validate_only)
        while True:
            version, frame = await self._swap(ALTER_CLIENT_QUOTAS, request, until, over)
            answer: AlterClientQuotasResponse = decode_response(ALTER_CLIENT_QUOTAS, version, frame)
            if not {e.error_code for e in answer.entries} & RETRIABLE or _is_over(until):
                return answer.entries
            await asyncio.sleep(_AGAIN_S)

    async def _swap(
        self, api_key: int, message: object, until: float | None, over: Connection | None = None
    ) -> tuple[int, bytes]:
        """Return the version and the answer's frame, over another connection if one broke."""
        async with self._turn(until):
            while True:
                try:
                    async with asyncio.timeout(self._wait_s(until)):
                        return await self._swap_once(api_key, message, over)
                except (StoreError, RemoteProtocolError, TimeoutError) as exc:
                    lasting = isinstance(exc, StoreError) and not exc.retriable
                    if lasting or _is_over(until):
                        raise
                    await asyncio.sleep(_RECONNECT_S)

    async def _swap_once(
        self, api_key: int, message: object, over: Connection | None
    ) -> tuple[int, bytes]:
        connection = over or await self._nodes.any()
        version = connection.version(api_key, NEWEST) if connection.versions else NEWEST
        frame = await connection.swap(
            lambda cid: encode_request(api_key, version, cid, connection.client_id, message)
        )
        return version, frame

    def _wait_s(self, until: float | None) -> float | None:
        if until is None:
            return self._answer_s
        left_s = max(0.1, until - time.monotonic())
        return left_s if self._answer_s is None else min(self._answer_s, left_s)


def _is_over(until: float | None) -> bool:
    return until is None or time.monotonic() > until

"""
A small synchronous Kafka client: client quotas described and altered through any broker.

One connection at a time, to whichever bootstrap server answers; a call that met a broken one is
made again on the next server. Both calls may be repeated: altering sets values, it doesn't add.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Final

from headgate.client.connection import Connection, Unreachable
from headgate.client.quota_messages import alter_request, describe_request
from headgate.client.security import Security
from headgate.client.thread import LoopThread
from headgate.client.tls import client_context
from headgate.config.listeners import HostPort
from headgate.config.security import ClientSecurity
from headgate.errors import (
    ApiError,
    ConfigError,
    KafkaError,
    RemoteProtocolError,
    StoreError,
    StoreSilent,
)
from headgate.quota.alteration import QuotaAlteration
from headgate.quota.filter import FilterComponent
from headgate.store.deadline import left_s
from headgate.wire.apis import ALTER_CLIENT_QUOTAS, DESCRIBE_CLIENT_QUOTAS
from headgate.wire.header import response_body_offset
from headgate.wire.messages import decode_response, encode_request
from headgate.wire.messages.quotas import (
    AlterClientQuotasResponse,
    AlteredEntry,
    DescribeClientQuotasResponse,
    DescribedEntry,
)

CLIENT_ID: Final = "headgate-store"
#: Time for one answer; the admin client's default.api.timeout.ms is 60 s for all tries.
ANSWER_TIMEOUT_S = 30.0
#: Time for all tries of a call.
CALL_TIMEOUT_S = 60.0
#: Both APIs have version 1, flexible, since Kafka 2.8.
VERSION: Final = 1
_PREFIX: Final = "headgate.store.kafka."
#: Errors that go away: a controller moved, a broker starts. Source: RetriableException in Kafka.
RETRIABLE: Final = frozenset(
    {
        KafkaError.NOT_CONTROLLER,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
    }
)


class KafkaClient:
    """
    Calls Kafka's APIs 48 and 49 (DescribeClientQuotas, AlterClientQuotas).

    Args:
        bootstrap: ``host:port,host:port``.
        security: TLS and SASL; None for a plaintext listener.

    Raises:
        StoreError: an address or the settings make no sense.
    """

    def __init__(self, bootstrap: str, security: ClientSecurity | None) -> None:
        self.bootstrap = bootstrap
        self._servers = [_address(text) for text in bootstrap.split(",")]
        random.shuffle(self._servers)
        self._user = None if security is None else security.sasl_username
        self._security = _security(security)
        self._thread = LoopThread("headgate-store-client")
        self._turn = asyncio.Lock()
        self._connection: Connection | None = None
        self._described: tuple[bytes, DescribeClientQuotasResponse] | None = None

    # --- the two calls

    def describe(
        self, components: Sequence[FilterComponent] = (), *, strict: bool = False
    ) -> tuple[DescribedEntry, ...]:
        """
        Return quotas; all of them without components.

        Raises:
            StoreError: refused, or no broker can be reached, or errors that go away didn't.
        """
        deadline = time.monotonic() + left_s(CALL_TIMEOUT_S)
        request = describe_request(components, strict=strict)
        while True:
            frame = self._thread.run(self._swap(DESCRIBE_CLIENT_QUOTAS, request, deadline))
            answer = self._decoded(frame, remember=not components)
            if answer.error_code == 0:
                return answer.entries or ()
            if answer.error_code not in RETRIABLE or time.monotonic() > deadline:
                raise self._refusal(answer.error_code, answer.error_message)
            time.sleep(0.2)

    def _decoded(self, frame: bytes, *, remember: bool) -> DescribeClientQuotasResponse:
        """Return the answer; one with the same bytes as the remembered one isn't read again."""
        # The throttle time is the body's first field and nothing we look at.
        body = memoryview(frame)[response_body_offset(DESCRIBE_CLIENT_QUOTAS, VERSION, frame) + 4 :]
        digest = hashlib.blake2b(body, digest_size=16).digest()
        if self._described is not None and self._described[0] == digest:
            return self._described[1]
        answer: DescribeClientQuotasResponse = decode_response(
            DESCRIBE_CLIENT_QUOTAS, VERSION, frame
        )
        if remember and answer.error_code == 0:
            self._described = (digest, answer)
        return answer

    def alter(
        self,
        alterations: Sequence[QuotaAlteration],
        *,
        validate_only: bool,
        within_s: float = CALL_TIMEOUT_S,
    ) -> tuple[AlteredEntry, ...]:
        """
        Set and remove quotas.

        Args:
            alterations: what to set and remove.
            validate_only: check, and change nothing.
            within_s: nothing is sent later than this, seconds.

        Returns:
            Kafka's answer, an entry per entity; after errors that go away it was tried again.
        """
        deadline = time.monotonic() + left_s(within_s)
        request = alter_request(alterations, validate_only=validate_only)
        while True:
            frame = self._thread.run(self._swap(ALTER_CLIENT_QUOTAS, request, deadline))
            answer: AlterClientQuotasResponse = decode_response(ALTER_CLIENT_QUOTAS, VERSION, frame)
            codes = {entry.error_code for entry in answer.entries}
            if not codes & RETRIABLE or time.monotonic() > deadline:
                return answer.entries
            time.sleep(0.2)

    def _refusal(self, code: int, message: str | None) -> StoreError:
        """Return the error for one of a whole answer."""
        name = KafkaError(code).name if code in KafkaError._value2member_map_ else str(code)
        hint = ""
        if code == KafkaError.CLUSTER_AUTHORIZATION_FAILED:
            hint = "; headgate.store.kafka.* needs a user who may describe and alter the cluster"
        return StoreError(
            f"Kafka {self.bootstrap} refuses to describe client quotas: {message or name}{hint}",
            retriable=code in RETRIABLE,
        )

    # --- connection

    async def _swap(self, api_key: int, message: object, deadline: float) -> bytes:
        """
        Return the answer's frame, over another connection where one broke.

        Args:
            api_key: 48 or 49.
            message: the request.
            deadline: the moment of the monotonic clock after which nothing is tried again.
        """
        async with self._in_turn(deadline):
            while True:
                left_s = max(0.1, deadline - time.monotonic())
                try:
                    async with asyncio.timeout(min(ANSWER_TIMEOUT_S, left_s)):
                        if self._connection is None:
                            self._connection = await self._connect()
                        return await self._connection.swap(
                            lambda cid: encode_request(api_key, VERSION, cid, CLIENT_ID, message)
                        )
                except ApiError as exc:
                    raise self._login_refused(exc) from exc
                except (StoreError, RemoteProtocolError, TimeoutError) as exc:
                    await self._drop()
                    if isinstance(exc, StoreError) and not exc.retriable:
                        raise StoreError(f"Kafka {self.bootstrap}: {exc}") from exc
                    if time.monotonic() > deadline:
                        why = str(exc) or "no answer in time"
                        raise StoreSilent(
                            f"Kafka {self.bootstrap} can't be reached: {why}"
                        ) from exc
                    await asyncio.sleep(0.1)

    @asynccontextmanager
    async def _in_turn(self, deadline: float) -> AsyncIterator[None]:
        """Wait for the calls before this one."""
        try:
            async with asyncio.timeout(max(0.1, deadline - time.monotonic())):
                await self._turn.acquire()
        except TimeoutError as exc:
            raise StoreSilent(
                f"Kafka {self.bootstrap} can't be reached: earlier calls still wait for its answer"
            ) from exc
        try:
            yield
        finally:
            self._turn.release()

    async def _connect(self) -> Connection:
        failures: list[str] = []
        for _ in self._servers:
            server = self._servers[0]
            self._servers = self._servers[1:] + self._servers[:1]
            try:
                return await Connection.open(server, self._security)
            except Unreachable as exc:
                failures.append(f"{server} {exc.reason}")
        raise StoreError("; ".join(failures), retriable=True)

    def _login_refused(self, error: ApiError) -> StoreError:
        if error.code == KafkaError.SASL_AUTHENTICATION_FAILED:
            return StoreError(f"Kafka {self.bootstrap} refuses {self._user!r}: {error}")
        return StoreError(f"Kafka {self.bootstrap}: {error}")

    async def _drop(self) -> None:
        if self._connection is not None:
            connection, self._connection = self._connection, None
            await connection.close()

    def close(self) -> None:
        """Close the connection. Called once."""
        self._thread.run(self._end())
        self._thread.close()

    async def _end(self) -> None:
        async with self._turn:
            await self._drop()


def _security(given: ClientSecurity | None) -> Security:
    if given is None:
        return Security(client_id=CLIENT_ID)
    with as_store_error():
        tls = client_context(given.ssl) if given.security_protocol.tls else None
        return Security.own(given, tls, CLIENT_ID, f"{_PREFIX}security.protocol")


@contextmanager
def as_store_error() -> Iterator[None]:
    """Name the whole setting in what is wrong with one of ``headgate.store.kafka.*``."""
    try:
        yield
    except ConfigError as exc:
        raise StoreError(f"{_PREFIX}{exc}") from exc


def _address(text: str) -> HostPort:
    try:
        found = HostPort.parse(text)
    except ValueError:
        found = HostPort("", 0)
    if not found.host:
        raise StoreError(f"headgate.store: {text!r} isn't of the form host:port")
    return found

"""
A small synchronous Kafka client: client quotas described and altered through any broker.

One connection at a time, to whichever bootstrap server answers; a call that met a broken one is
made again on the next server.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final, TypeVar

from headgate.client.connection import Connection, Unreachable
from headgate.client.nodes import Nodes, NoServer, Rotation
from headgate.client.quota_calls import RETRIABLE, QuotaCalls
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
from headgate.wire.messages.quotas import AlteredEntry, DescribedEntry

T = TypeVar("T")

CLIENT_ID: Final = "headgate-store"
#: Time for one answer; the admin client's default.api.timeout.ms is 60 s for all tries.
ANSWER_TIMEOUT_S = 30.0
#: Time for all tries of a call.
CALL_TIMEOUT_S = 60.0
_PREFIX: Final = "headgate.store.kafka."


class KafkaClient:
    """
    Describes and alters client quotas for a store, with the store's errors.

    Args:
        bootstrap: ``host:port,host:port``.
        security: TLS and SASL; None for a plaintext listener.

    Raises:
        StoreError: an address or the settings make no sense.
    """

    def __init__(self, bootstrap: str, security: ClientSecurity | None) -> None:
        self.bootstrap = bootstrap
        servers = [_address(text) for text in bootstrap.split(",")]
        random.shuffle(servers)
        self._rotation = Rotation(servers)
        self._user = None if security is None else security.sasl_username
        self._security = _security(security)
        self._thread = LoopThread("headgate-store-client")
        self._turn = asyncio.Lock()
        self._nodes = Nodes(servers, self._security, connect=self._connect)
        self._calls = QuotaCalls(self._nodes, ANSWER_TIMEOUT_S, self._in_turn)

    # --- the two calls

    def describe(
        self, components: Sequence[FilterComponent] = (), *, strict: bool = False
    ) -> tuple[DescribedEntry, ...]:
        """
        Return quotas; all of them without components.

        Raises:
            StoreError: refused, or no broker can be reached, or errors that go away didn't.
        """
        until = time.monotonic() + left_s(CALL_TIMEOUT_S)
        answer = self._run(self._calls.describe(components, strict=strict, until=until))
        if answer.error_code == 0:
            return answer.entries or ()
        raise self._refusal(answer.error_code, answer.error_message)

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
        until = time.monotonic() + left_s(within_s)
        return self._run(self._calls.alter(alterations, validate_only=validate_only, until=until))

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

    def _run(self, call: Coroutine[Any, Any, T]) -> T:
        """Make a call; name this Kafka in what goes wrong."""
        try:
            return self._thread.run(call)
        except StoreSilent:
            raise
        except ApiError as exc:
            raise self._login_refused(exc) from exc
        except (StoreError, RemoteProtocolError, TimeoutError) as exc:
            if isinstance(exc, StoreError) and not exc.retriable:
                raise StoreError(f"Kafka {self.bootstrap}: {exc}") from exc
            why = str(exc) or "no answer in time"
            raise StoreSilent(f"Kafka {self.bootstrap} can't be reached: {why}") from exc

    @asynccontextmanager
    async def _in_turn(self, until: float | None) -> AsyncIterator[None]:
        """Wait for the requests before this one; if that takes too long, it isn't sent."""
        assert until is not None
        try:
            async with asyncio.timeout(max(0.1, until - time.monotonic())):
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
        try:
            return await self._rotation.connect(
                lambda server: Connection.open(server, self._security),
                lambda error: isinstance(error, Unreachable),
            )
        except NoServer as none:
            told = [
                f"{server} {error.reason}"
                for server, error in none.problems
                if isinstance(error, Unreachable)
            ]
            raise StoreError("; ".join(told), retriable=True) from None

    def _login_refused(self, error: ApiError) -> StoreError:
        if error.code == KafkaError.SASL_AUTHENTICATION_FAILED:
            return StoreError(f"Kafka {self.bootstrap} refuses {self._user!r}: {error}")
        return StoreError(f"Kafka {self.bootstrap}: {error}")

    def close(self) -> None:
        """Close the connection. Called once."""
        self._thread.run(self._end())
        self._thread.close()

    async def _end(self) -> None:
        async with self._turn:
            await self._nodes.close()


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

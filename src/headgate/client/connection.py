"""
One connection to a Kafka broker or a gateway: TLS, SASL, requests and answers.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Final, TypeVar

from headgate.client.security import Security
from headgate.config.listeners import HostPort
from headgate.errors import ApiError, HeadgateError, StoreError, Unanswered
from headgate.wire.dialogue import Dialogue, Question

T = TypeVar("T")

ANSWER_S: Final = 10.0
"""Seconds in which a server answers who connects, or questions for its brokers."""


class Unreachable(StoreError):
    """
    No server answers at an address, or it uses another protocol.

    Args:
        message: the whole sentence.
        reason: why, without the address.
        retriable: trying again later may help.
    """

    def __init__(self, message: str, reason: str, *, retriable: bool = False) -> None:
        super().__init__(message, retriable=retriable)
        self.reason = reason


@contextlib.asynccontextmanager
async def answering(where: str) -> AsyncIterator[None]:
    """
    Bound the time that a server may take.

    Args:
        where: ``host:port``, for messages.

    Raises:
        Unanswered: it took longer than ``ANSWER_S``.
    """
    limit = asyncio.timeout(ANSWER_S)
    try:
        async with limit:
            yield
    except TimeoutError:
        if not limit.expired():
            raise
        raise Unanswered(
            f"{where} takes connections and doesn't answer within {ANSWER_S:g} s; if it is a "
            "gateway, its /readyz names brokers that don't answer",
            retriable=True,
        ) from None


class Connection:
    """
    An open, authenticated connection. One request at a time.

    Args:
        reader, writer: asyncio's pair.
        address: ``host:port``, for messages.
        security: how it was opened.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        address: str,
        security: Security,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._security = security
        self._dialogue = Dialogue(address, security.client_id)
        self._settled = False
        """Whether it answered more than ApiVersions, so that the security protocol is right."""
        self._lock = asyncio.Lock()
        self._broken = False

    @classmethod
    async def open(cls, where: HostPort, security: Security, *, greet: bool = False) -> Connection:
        """
        Connect and authenticate.

        Args:
            where: the broker; without a host, this machine.
            security: how.
            greet: ask for the broker's API versions first (``versions``).

        Raises:
            Unreachable: no server is there (retriable), or TLS failed.
            StoreError: it closed the connection (retriable), or uses another protocol.
            ApiError: SASL_AUTHENTICATION_FAILED, UNSUPPORTED_SASL_MECHANISM, ILLEGAL_SASL_STATE.
            RemoteProtocolError: it isn't a broker.
        """
        tls, spoken = security.tls, security.spoken
        try:
            reader, writer = await asyncio.open_connection(
                where.host or "127.0.0.1",
                where.port,
                ssl=tls,
                server_hostname=where.host if tls is not None else None,
            )
        except (OSError, UnicodeError) as exc:
            told = spoken.handshake_failed(exc) if isinstance(exc, OSError) else None
            if told is not None or isinstance(exc, ssl.SSLError):
                reason = told or str(exc)
                raise Unreachable(f"TLS with {where} failed: {reason}", reason) from exc
            raise Unreachable(f"can't reach {where}: {exc}", str(exc), retriable=True) from exc
        connection = cls(reader, writer, str(where), security)
        try:
            if greet:
                await connection.greet()
            if security.login is not None:
                login = security.login()
                question = connection._dialogue.login(security.mechanism, login, spoken.no_sasl())
                await connection._put(question)
                connection._settled = True
        except BaseException:
            await connection.close()
            raise
        return connection

    @property
    def address(self) -> str:
        """``host:port``."""
        return self._dialogue.address

    @property
    def client_id(self) -> str:
        """The client-id of requests."""
        return self._dialogue.client_id

    @property
    def versions(self) -> Mapping[int, tuple[int, int]]:
        """The oldest and newest version of each API; empty if it wasn't greeted."""
        return self._dialogue.versions

    @property
    def usable(self) -> bool:
        """Whether requests can still be sent: the peer may have closed an idle connection."""
        return not (self._broken or self._writer.is_closing() or self._reader.at_eof())

    def version(self, api_key: int, newest: int, oldest: int = 0) -> int:
        """Return the newest version of an API that both sides speak (``Dialogue.version``)."""
        return self._dialogue.version(api_key, newest, oldest)

    async def greet(self) -> None:
        """Ask for the broker's ``versions``."""
        await self._put(self._dialogue.greet())

    async def swap(self, make_frame: Callable[[int], bytes]) -> bytes:
        """Send a frame and return the frame of its answer (``Dialogue.swap``)."""
        frame = await self._put(self._dialogue.swap(make_frame))
        self._settled = True
        return frame

    async def ask(self, api_key: int, version: int, message: object) -> Any:
        """Send a message and return that of the answer (``Dialogue.ask``)."""
        answer = await self._put(self._dialogue.ask(api_key, version, message))
        self._settled = True
        return answer

    async def call(self, api_key: int, versions: tuple[int, int], message: object) -> Any:
        """
        Send a message in the newest version that both sides speak and return the answer's.

        Args:
            api_key: as for ``ask``.
            versions: the oldest and the newest that this side speaks.
            message: its request dataclass.

        Raises:
            ApiError: UNSUPPORTED_VERSION, when there is none.
        """
        oldest, newest = versions
        return await self.ask(api_key, self.version(api_key, newest, oldest), message)

    async def _put(self, question: Question[T]) -> T:
        """
        Send the frames of a ``Dialogue`` generator, give it the answers, and return its result.

        Raises:
            StoreError: the connection broke (retriable), or the peer speaks another protocol.
            RemoteProtocolError: what came back isn't an answer to it.
        """
        async with self._lock:
            if self._broken or self._writer.is_closing():
                raise StoreError(f"the connection to {self.address} is closed", retriable=True)
            # After an answer that was read in part (a timeout, say) the connection is unusable: the
            # next request would read the rest. Calls made meanwhile wait for the lock.
            whole = False
            try:
                frame = next(question)
                while True:
                    frame = question.send(await self._exchange(frame))
            except StopIteration as end:
                whole = True
                return end.value  # type: ignore[no-any-return]
            finally:
                self._broken = self._broken or not whole

    async def _exchange(self, request: bytes) -> bytes:
        try:
            self._writer.write(request)
            await self._writer.drain()
            prefix = await self._reader.readexactly(4)
            told = self._security.spoken.answered(prefix)
            if told is not None:
                raise StoreError(f"{self.address}: {told}")
            return prefix + await self._reader.readexactly(self._dialogue.size(prefix))
        except (OSError, EOFError) as exc:
            reason = "it closed the connection" if isinstance(exc, EOFError) else str(exc)
            if not self._settled:
                reason = self._security.spoken.hung_up(logged_in=False) or reason
            raise StoreError(f"{self.address}: {reason}", retriable=True) from exc

    def detach(self) -> asyncio.WriteTransport:
        """
        Hand the authenticated transport over to the caller; this object sends nothing more.

        Raises:
            StoreError: the broker has closed the connection. Nobody else would notice, since the
                transport tells its end only once.
        """
        transport = self._writer.transport
        if transport.is_closing() or self._reader.at_eof():
            transport.abort()
            raise StoreError(f"{self.address}: the broker hung up after the login")
        return transport

    async def close(self) -> None:
        """Close it, and ignore errors of closing."""
        self._broken = True
        self._writer.close()
        with contextlib.suppress(OSError, HeadgateError, asyncio.TimeoutError):
            await asyncio.wait_for(self._writer.wait_closed(), 5)


def api_error(code: int, message: str | None) -> ApiError | None:
    """Return an answer's error with Kafka's own text where it sent none; None for code 0."""
    if code == 0:
        return None
    return ApiError.generic(code) if message is None else ApiError(code, message)


def raise_error(code: int, message: str | None) -> None:
    """Raise an answer's error, if it has one."""
    error = api_error(code, message)
    if error is not None:
        raise error

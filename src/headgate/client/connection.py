"""
One connection to a Kafka broker or a gateway: TLS, SASL, what it can do, requests and answers.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable, Mapping
from typing import Any, Final

from headgate.client.security import Security
from headgate.config.wrong_protocol import Spoken
from headgate.errors import (
    ApiError,
    HeadgateError,
    KafkaError,
    RemoteProtocolError,
    StoreError,
)
from headgate.wire import apis
from headgate.wire.header import build_request, correlation_id, is_flexible, response_body_offset
from headgate.wire.messages import admin as p
from headgate.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from headgate.wire.messages.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from headgate.wire.sasl_client import Exchange

# 100,000 entities with long names are some 20 MB; more is no answer to what we ask.
MAX_RESPONSE_BYTES: Final = 256 * 1024 * 1024


class Connection:
    """
    An open, authenticated connection. One request at a time.

    Args:
        reader, writer: asyncio's pair.
        address: ``host:port``, for messages.
        client_id: what requests call their sender.
        spoken: the security protocol, for messages.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        address: str,
        client_id: str,
        spoken: Spoken,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self.address = address
        self.client_id = client_id
        self._spoken = spoken
        self._answers = 0
        self._logged_in = False
        self.versions: Mapping[int, tuple[int, int]] = {}
        self._correlation_id = 0
        self._lock = asyncio.Lock()
        self._broken = False

    @classmethod
    async def open(cls, host: str, port: int, security: Security) -> Connection:
        """
        Connect, authenticate, and ask which APIs there are.

        Raises:
            StoreError: nobody there (retriable).
            ApiError: SASL_AUTHENTICATION_FAILED, UNSUPPORTED_SASL_MECHANISM.
        """
        address = f"{host}:{port}"
        spoken = Spoken("security.protocol", security.protocol)
        name = host if security.check_hostname else ""
        try:
            reader, writer = await asyncio.open_connection(
                host,
                port,
                ssl=security.tls,
                server_hostname=name if security.tls is not None else None,
            )
        except OSError as exc:
            told = spoken.handshake_failed(exc)
            if told is not None:
                raise StoreError(f"TLS with {address} failed: {told}") from exc
            if isinstance(exc, ssl.SSLError):
                raise StoreError(f"TLS with {address} failed: {exc}") from exc
            raise StoreError(f"can't reach {address}: {exc}", retriable=True) from exc
        connection = cls(reader, writer, address, security.client_id, spoken)
        try:
            await connection._greet()
            if security.login is not None:
                await connection._authenticate(security.mechanism, security.login())
        except BaseException:
            await connection.close()
            raise
        return connection

    @property
    def usable(self) -> bool:
        """Whether requests can still be sent."""
        return not self._broken and not self._writer.is_closing()

    def version(self, api_key: int, newest: int, oldest: int = 0) -> int:
        """
        Return the newest version of an API that both sides speak.

        Raises:
            ApiError: UNSUPPORTED_VERSION, when there is none.
        """
        low, high = self.versions.get(api_key, (0, -1))
        best = min(newest, high)
        if best < max(low, oldest):
            raise ApiError(
                KafkaError.UNSUPPORTED_VERSION,
                f"{self.address} doesn't offer API {api_key} in a version between {oldest} and "
                f"{newest}",
            )
        return best

    async def exchange(self, make_frame: Callable[[int], bytes]) -> bytes:
        """
        Send a request frame and return the frame of its answer.

        Args:
            make_frame: builds the request for a correlation id.

        Raises:
            StoreError: the connection broke (retriable).
            RemoteProtocolError: what came back is no answer to it.
        """
        async with self._lock:
            if not self.usable:
                raise StoreError(f"the connection to {self.address} is closed", retriable=True)
            self._correlation_id += 1
            expected = self._correlation_id
            request = make_frame(expected)
            # A stream left in the middle of an answer (a timeout, say) is no use to anybody: the
            # next request would read the rest. Being asked meanwhile is no harm: calls queue.
            whole = False
            try:
                self._writer.write(request)
                await self._writer.drain()
                prefix = await self._reader.readexactly(4)
                told = self._spoken.answered(prefix)
                if told is not None:
                    raise StoreError(f"{self.address}: {told}")
                size = int.from_bytes(prefix, "big", signed=True)
                if not 4 <= size <= MAX_RESPONSE_BYTES:
                    raise RemoteProtocolError(f"{self.address} sent a frame of {size} bytes")
                frame = prefix + await self._reader.readexactly(size)
                if correlation_id(frame) != expected:
                    raise RemoteProtocolError(
                        f"{self.address} answered request {correlation_id(frame)}, not {expected}"
                    )
                whole = True
                self._answers += 1
            except (OSError, EOFError) as exc:
                reason = "it closed the connection" if isinstance(exc, EOFError) else str(exc)
                if self._answers <= 1:  # a SASL port tells its versions before the login
                    reason = self._spoken.hung_up(logged_in=self._logged_in) or reason
                raise StoreError(f"{self.address}: {reason}", retriable=True) from exc
            finally:
                self._broken = self._broken or not whole
        return frame

    async def ask(self, api_key: int, version: int, message: object) -> Any:
        """
        Send a message and return the answer's.

        Args:
            api_key: an API that :mod:`headgate.wire.messages.admin` describes.
            version: one that both sides speak.
            message: its request dataclass.
        """
        flexible = is_flexible(api_key, version)
        body = p.REQUESTS[api_key].encode(message, version, flexible)
        frame = await self.exchange(
            lambda cid: build_request(api_key, version, cid, self.client_id, body)
        )
        at = response_body_offset(api_key, version, frame)
        return p.RESPONSES[api_key].decode(frame, version, flexible, at)

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

    async def _greet(self) -> None:
        # Version 0 is understood by every broker there is.
        found: ApiVersionsResponse = await self.ask(apis.API_VERSIONS, 0, ApiVersionsRequest())
        if found.error_code:
            raise ApiError(found.error_code, f"{self.address} refuses ApiVersions")
        self.versions = {key.api_key: (key.min_version, key.max_version) for key in found.api_keys}

    async def _authenticate(self, mechanism: str, exchange: Exchange) -> None:
        handshake: SaslHandshakeResponse = await self.ask(
            apis.SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism)
        )
        if handshake.error_code == KafkaError.ILLEGAL_SASL_STATE:
            raise ApiError(handshake.error_code, f"{self.address}: {self._spoken.no_sasl()}")
        if handshake.error_code:
            raise ApiError(
                handshake.error_code,
                f"{self.address} doesn't take SASL {mechanism}; it offers "
                f"{', '.join(handshake.mechanisms) or 'none'}",
            )
        message = next(exchange)
        while True:
            answer: SaslAuthenticateResponse = await self.ask(
                apis.SASL_AUTHENTICATE, 0, SaslAuthenticateRequest(message)
            )
            if answer.error_code:
                raise ApiError(answer.error_code, answer.error_message or "authentication failed")
            try:
                message = exchange.send(answer.auth_bytes)
            except StopIteration:
                self._logged_in = True
                return

    async def close(self) -> None:
        """Close it; errors on the way out are nobody's news."""
        self._broken = True
        self._writer.close()
        with contextlib.suppress(OSError, HeadgateError, asyncio.TimeoutError):
            await asyncio.wait_for(self._writer.wait_closed(), 5)


def api_error(code: int, message: str | None) -> ApiError | None:
    """Return an answer's error with Kafka's own text where it sent none; None for code 0."""
    if code == 0:
        return None
    error = ApiError(code, message)
    if message is None and isinstance(error.code, KafkaError):
        return ApiError(error.code, error.code.generic_message)
    return error


def raise_error(code: int, message: str | None) -> None:
    """Raise an answer's error, if it has one."""
    error = api_error(code, message)
    if error is not None:
        raise error

"""
A client's side of a conversation with a broker: requests are numbered, answers checked and read.

Pure: each question is a generator that yields request frames, is sent the frames of their answers,
and returns what was asked for. The owner of the connection sends and receives the frames.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any, Final, TypeVar

from headgate.errors import ApiError, KafkaError, RemoteProtocolError
from headgate.wire.apis import (
    ALTER_CLIENT_QUOTAS,
    API_VERSIONS,
    DESCRIBE_CLIENT_QUOTAS,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
)
from headgate.wire.header import correlation_id
from headgate.wire.messages import decode_response, encode_request
from headgate.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from headgate.wire.messages.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from headgate.wire.sasl_client import Exchange

T = TypeVar("T")
Question = Generator[bytes, bytes, T]
"""Yields request frames, is sent the frames of their answers, returns what was asked for."""

# 100,000 entities with long names are some 20 MB; no answer that we ask for is longer than this.
MAX_RESPONSE_BYTES: Final = 256 * 1024 * 1024
_BEFORE_2_6: Final = (
    "; Kafka has it since 2.6: for an older one use `kafka-configs --zookeeper HOST:PORT`"
)
_WAYS: Final = {DESCRIBE_CLIENT_QUOTAS: _BEFORE_2_6, ALTER_CLIENT_QUOTAS: _BEFORE_2_6}


class Dialogue:
    """
    What one connection's questions share.

    Args:
        address: ``host:port`` of the broker, for messages.
        client_id: what requests call their sender.
    """

    def __init__(self, address: str, client_id: str) -> None:
        self.address = address
        self.client_id = client_id
        self.versions: Mapping[int, tuple[int, int]] = {}
        self._asked = 0

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
                f"{newest}{_WAYS.get(api_key, '')}",
            )
        return best

    def size(self, prefix: bytes) -> int:
        """
        Return how many bytes follow an answer's first four.

        Raises:
            RemoteProtocolError: no answer can have that many.
        """
        if prefix == b"HTTP":
            raise RemoteProtocolError(
                f"{self.address} answers in HTTP: give the port of a Kafka listener"
            )
        size = int.from_bytes(prefix, "big", signed=True)
        if not 4 <= size <= MAX_RESPONSE_BYTES:
            raise RemoteProtocolError(f"{self.address} sent a frame of {size} bytes")
        return size

    def swap(self, make_frame: Callable[[int], bytes]) -> Question[bytes]:
        """
        Ask with a frame, and return the frame of the answer.

        Args:
            make_frame: builds the request for a correlation id.

        Raises:
            RemoteProtocolError: the answer is one to another request.
        """
        self._asked = expected = (self._asked + 1) & 0x7FFFFFFF
        frame = yield make_frame(expected)
        if correlation_id(frame) != expected:
            raise RemoteProtocolError(
                f"{self.address} answered request {correlation_id(frame)}, not {expected}"
            )
        return frame

    def ask(self, api_key: int, version: int, message: object) -> Question[Any]:
        """
        Ask with a message and return the answer's.

        Args:
            api_key: an API that :mod:`headgate.wire.messages` describes.
            version: one that both sides speak.
            message: its request dataclass.
        """
        frame = yield from self.swap(
            lambda cid: encode_request(api_key, version, cid, self.client_id, message)
        )
        return decode_response(api_key, version, frame)

    def greet(self) -> Question[None]:
        """Ask which APIs there are. Version 0 is understood by every broker."""
        found: ApiVersionsResponse = yield from self.ask(API_VERSIONS, 0, ApiVersionsRequest())
        if found.error_code:
            raise ApiError(found.error_code, f"{self.address} refuses ApiVersions")
        self.versions = {key.api_key: (key.min_version, key.max_version) for key in found.api_keys}

    def login(self, mechanism: str, exchange: Exchange, no_sasl: str) -> Question[None]:
        """
        Log in.

        Args:
            mechanism: the SASL mechanism.
            exchange: the client's side of it.
            no_sasl: the error text for a port that takes no SASL.

        Raises:
            ApiError: ILLEGAL_SASL_STATE, UNSUPPORTED_SASL_MECHANISM; and with the broker's text
                SASL_AUTHENTICATION_FAILED.
            RemoteProtocolError: the broker can't be trusted.
        """
        handshake: SaslHandshakeResponse = yield from self.ask(
            SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism)
        )
        code = handshake.error_code
        if code == KafkaError.ILLEGAL_SASL_STATE:
            raise ApiError(code, f"{self.address}: {no_sasl}")
        if code:
            offered = ", ".join(handshake.mechanisms) or "none"
            raise ApiError(
                code, f"{self.address} doesn't take SASL {mechanism}; it offers {offered}"
            )
        token = next(exchange)
        while True:
            answer: SaslAuthenticateResponse = yield from self.ask(
                SASL_AUTHENTICATE, 0, SaslAuthenticateRequest(token)
            )
            if answer.error_code:
                raise ApiError(answer.error_code, answer.error_message or "authentication failed")
            try:
                token = exchange.send(answer.auth_bytes)
            except StopIteration:
                return

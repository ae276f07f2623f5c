"""
A small synchronous Kafka client: client quotas described and altered through any broker.

One connection at a time, to whichever bootstrap server answers; a call that met a broken one is
made again on the next server. Both calls may be repeated: altering sets values, it doesn't add.
"""

from __future__ import annotations

import hashlib
import random
import socket
import threading
import time
from collections.abc import Sequence
from typing import Any

from headgate.config.security import ClientSecurity
from headgate.config.wrong_protocol import Spoken
from headgate.errors import KafkaError, RemoteProtocolError, StoreError
from headgate.store.kafka.security import sasl_exchange, tls_context
from headgate.wire.apis import (
    ALTER_CLIENT_QUOTAS,
    DESCRIBE_CLIENT_QUOTAS,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
)
from headgate.wire.header import MAX_FRAME_BYTES, response_body_offset
from headgate.wire.messages import decode_response, encode_request
from headgate.wire.messages.quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    Component,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    DescribedEntry,
)
from headgate.wire.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

CLIENT_ID = "headgate-store"
#: Time for one answer; the admin client's default.api.timeout.ms is 60 s for all tries.
ANSWER_TIMEOUT_S = 30.0
#: Time for all tries of a call.
CALL_TIMEOUT_S = 60.0
#: Both APIs have version 1, flexible, since Kafka 2.8.
VERSION = 1
#: Errors that pass: a controller moved, a broker starts. Source: RetriableException in Kafka.
RETRIABLE = frozenset(
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
    Calls 48 and 49.

    Args:
        bootstrap: ``host:port,host:port``.
        security: TLS and SASL; None for a plaintext listener.
    """

    def __init__(self, bootstrap: str, security: ClientSecurity | None) -> None:
        self.bootstrap = bootstrap
        self._servers = [_address(text) for text in bootstrap.split(",")]
        random.shuffle(self._servers)
        self._security = security
        self._tls = tls_context(security)
        self._spoken = Spoken(
            "headgate.store.kafka.security.protocol",
            "PLAINTEXT" if security is None else security.security_protocol,
        )
        self._answered = False
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._correlation = 0
        self._described: tuple[bytes, DescribeClientQuotasResponse] | None = None

    # --- the two calls

    def describe(
        self, components: Sequence[Component] = (), *, strict: bool = False
    ) -> tuple[DescribedEntry, ...]:
        """
        Return quotas; all of them without components.

        Raises:
            StoreError: refused, or no broker can be reached.
        """
        request = DescribeClientQuotasRequest(tuple(components), strict)
        while True:
            frame = self._call(DESCRIBE_CLIENT_QUOTAS, request)
            answer = self._decoded(frame, remember=not components)
            if answer.error_code == 0:
                return answer.entries or ()
            self._refuse(answer.error_code, answer.error_message, "describe")

    def _decoded(self, frame: bytes, *, remember: bool) -> DescribeClientQuotasResponse:
        """Return the answer; one with the same bytes as the last isn't read again."""
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

    def alter(self, request: AlterClientQuotasRequest) -> AlterClientQuotasResponse:
        """
        Set and remove quotas.

        Returns:
            Kafka's answer, an entry per entity; errors that pass have been tried again.
        """
        deadline = time.monotonic() + CALL_TIMEOUT_S
        while True:
            frame = self._call(ALTER_CLIENT_QUOTAS, request)
            answer: AlterClientQuotasResponse = decode_response(ALTER_CLIENT_QUOTAS, VERSION, frame)
            codes = {entry.error_code for entry in answer.entries}
            if not codes & RETRIABLE or time.monotonic() > deadline:
                return answer
            time.sleep(0.2)

    def _refuse(self, code: int, message: str | None, verb: str) -> None:
        """Raise for an error of a whole answer, or return to try again."""
        if code in RETRIABLE:
            time.sleep(0.2)
            return
        name = KafkaError(code).name if code in KafkaError._value2member_map_ else str(code)
        hint = ""
        if code == KafkaError.CLUSTER_AUTHORIZATION_FAILED:
            hint = "; headgate.store.kafka.* needs a user who may describe and alter the cluster"
        raise StoreError(
            f"Kafka {self.bootstrap} refuses to {verb} client quotas: {message or name}{hint}"
        )

    # --- connection

    def _call(self, api_key: int, message: Any) -> bytes:
        """Return the answer's frame, over another connection where one broke."""
        deadline = time.monotonic() + CALL_TIMEOUT_S
        with self._lock:
            while True:
                try:
                    if self._socket is None:
                        self._connect()
                    return self._exchange(api_key, VERSION, message)
                except (OSError, RemoteProtocolError) as exc:
                    self._drop()
                    if time.monotonic() > deadline:
                        raise StoreError(
                            f"Kafka {self.bootstrap} can't be reached: {exc}", retriable=True
                        ) from exc
                    time.sleep(0.1)

    def _connect(self) -> None:
        failures: list[str] = []
        for _ in self._servers:
            host, port = self._servers[0]
            self._servers = self._servers[1:] + self._servers[:1]
            try:
                plain = socket.create_connection((host, port), timeout=ANSWER_TIMEOUT_S)
                plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._socket = plain
                self._answered = False
                if self._tls is not None:
                    self._socket = self._tls.wrap_socket(plain, server_hostname=host)
                self._authenticate()
                return
            except OSError as exc:
                self._drop()
                told = self._spoken.handshake_failed(exc)
                failures.append(f"{host}:{port} {told or exc}")
        raise ConnectionError("; ".join(failures))

    def _authenticate(self) -> None:
        security = self._security
        if security is None or not security.security_protocol.sasl:
            return
        exchange = sasl_exchange(security)
        handshake = self._message(SASL_HANDSHAKE, 1, SaslHandshakeRequest(security.sasl_mechanism))
        if handshake.error_code == KafkaError.ILLEGAL_SASL_STATE:
            raise StoreError(f"Kafka {self.bootstrap}: {self._spoken.no_sasl()}")
        if handshake.error_code:
            offered = ", ".join(handshake.mechanisms)
            raise StoreError(
                f"Kafka {self.bootstrap} doesn't take {security.sasl_mechanism}, but: {offered}"
            )
        token = next(exchange)
        while True:
            answer = self._message(SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(token))
            if answer.error_code:
                raise StoreError(
                    f"Kafka {self.bootstrap} refuses {security.sasl_username!r}: "
                    f"{answer.error_message or 'authentication failed'}"
                )
            try:
                token = exchange.send(answer.auth_bytes)
            except StopIteration:
                return

    def _message(self, api_key: int, version: int, message: Any) -> Any:
        return decode_response(api_key, version, self._exchange(api_key, version, message))

    def _exchange(self, api_key: int, version: int, message: Any) -> bytes:
        connection = self._socket
        assert connection is not None
        self._correlation = (self._correlation + 1) & 0x7FFFFFFF
        frame = encode_request(api_key, version, self._correlation, CLIENT_ID, message)
        connection.settimeout(ANSWER_TIMEOUT_S)
        connection.sendall(frame)
        try:
            head = _read(connection, 8)
        except ConnectionError as exc:
            told = None if self._answered else self._spoken.hung_up(logged_in=False)
            raise ConnectionError(told or str(exc)) from exc
        told = self._spoken.answered(head)
        if told is not None:
            raise StoreError(f"Kafka {self.bootstrap}: {told}")
        self._answered = True
        size = int.from_bytes(head[:4], "big")
        if not 4 <= size <= MAX_FRAME_BYTES:
            raise RemoteProtocolError(f"an answer of {size} bytes can't be")
        if int.from_bytes(head[4:], "big") != self._correlation:
            raise RemoteProtocolError("an answer to another request")
        return head + _read(connection, size - 4)

    def _drop(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            self._drop()


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.strip().rpartition(":")
    if not host or not port.isdigit():
        raise StoreError(f"headgate.store: {text!r} isn't of the form host:port")
    return host.strip("[]"), int(port)


def _read(connection: socket.socket, size: int) -> bytes:
    parts: list[bytes] = []
    while size:
        part = connection.recv(min(size, 1 << 20))
        if not part:
            raise ConnectionError("the broker closed the connection")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)

"""
An upstream that only knows which brokers there are: for tests of `headgate serve` without Kafka.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterable

from headgate.errors import HeadgateError
from headgate.wire.header import parse_request_header


class Upstream:
    """
    Answers Metadata v8 with some brokers, all of them at its own address, and ApiVersions v0 with
    these two APIs. Any other request closes the connection.

    Args:
        brokers: their ids; may be changed while it runs.
        ports: those of brokers that are elsewhere, by id.
        answers: API key to a function from (version, correlation id, frame) to an answer's frame,
            or None for silence.
    """

    def __init__(
        self,
        brokers: Iterable[int],
        answers: dict[int, Callable[[int, int, bytes], bytes | None]] | None = None,
        ports: dict[int, int] | None = None,
    ) -> None:
        self.ports = ports or {}
        self.brokers = list(brokers)
        self.answers = answers or {}
        self._sock = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._sock.getsockname()[1]
        self._open: list[socket.socket] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> Upstream:
        return self

    def __exit__(self, *_: object) -> None:
        self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()
        for sock in self._open:
            sock.close()
        self._thread.join()

    def _run(self) -> None:
        while True:
            try:
                sock, _ = self._sock.accept()
            except OSError:
                return
            self._open.append(sock)
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        try:
            with sock.makefile("rb") as stream:
                while prefix := stream.read(4):
                    frame = prefix + stream.read(int.from_bytes(prefix, "big"))
                    key, version, correlation, _, _ = parse_request_header(frame)
                    if key in self.answers:
                        answer = self.answers[key](version, correlation, frame)
                    elif (key, version) == (3, 8):
                        answer = self._metadata(correlation)
                    elif (key, version) == (18, 0):
                        body = struct.pack(">ihihhh", correlation, 0, 1, 18, 0, 3)
                        answer = struct.pack(">i", len(body)) + body
                    else:
                        break
                    if answer is not None:
                        sock.sendall(answer)
        except (OSError, ValueError, HeadgateError):  # half a frame at its end, too
            pass
        sock.close()

    def _metadata(self, correlation: int) -> bytes:
        """Metadata v8: throttle time, brokers, cluster id, controller, no topics, operations."""
        brokers = list(self.brokers)  # a test may add one meanwhile
        body = struct.pack(">iii", correlation, 0, len(brokers))
        for broker in brokers:
            body += struct.pack(">i", broker) + _string("127.0.0.1")
            body += struct.pack(">ih", self.ports.get(broker, self.port), -1)
        body += _string("kit") + struct.pack(">iii", brokers[0], 0, 0)
        return struct.pack(">i", len(body)) + body


def _string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()

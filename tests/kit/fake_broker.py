"""
A peer on loopback that answers what a test tells it to, with the wire's own messages.

Not a mock of Kafka: it holds no state and knows no rules. What a real Kafka answers is tested
against a real Kafka.
"""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Callable, Mapping
from typing import Any

from headgate.wire import messages
from headgate.wire.header import build_response, parse_request_header
from headgate.wire.messages import draft
from headgate.wire.messages.api_versions import ApiVersion, ApiVersionsResponse

RELEASED = {3: (0, 13), 17: (0, 1), 18: (0, 4), 36: (0, 2), 48: (0, 1), 49: (0, 1)}
ADMIN_LISTENER = {17: (0, 1), 18: (0, 4), 36: (0, 2), 48: (0, 0), 49: (0, 0), 50: (0, 0)}
Handler = Callable[[Any], Any]


class Hangup(Exception):
    """Raised by a handler: close the connection instead of answering."""


class FakeBroker:
    """
    A listening peer.

    Args:
        versions: what ApiVersions tells.
        handlers: API key to a function from the decoded request to the response message, to raw
            frame bytes, or to None for silence.
        tls: a server's context.
    """

    def __init__(
        self,
        versions: Mapping[int, tuple[int, int]],
        handlers: Mapping[int, Handler],
        *,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.versions = dict(versions)
        self.handlers = dict(handlers)
        self.requests: list[tuple[int, Any]] = []
        self.frames: list[bytes] = []
        self.connections = 0
        self._tls = tls
        self._loop = asyncio.new_event_loop()
        self._started = threading.Event()
        self._writers: set[asyncio.StreamWriter] = set()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> FakeBroker:
        self._thread.start()
        self._started.wait()
        return self

    def __exit__(self, *_exc: object) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def address(self) -> str:
        return f"localhost:{self.port}"

    def asked(self, api_key: int) -> list[Any]:
        """Return the requests of one API, decoded, in order."""
        return [request for key, request in self.requests if key == api_key]

    def _run(self) -> None:
        self._loop.run_until_complete(self._start())
        self._loop.run_forever()

    async def _start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]
        self._started.set()

    async def _stop(self) -> None:
        self._server.close()
        for writer in list(self._writers):
            writer.close()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        try:
            while True:
                prefix = await reader.readexactly(4)
                frame = prefix + await reader.readexactly(int.from_bytes(prefix, "big"))
                self.frames.append(frame)
                answer = self._answer(frame)
                if answer is not None:
                    writer.write(answer)
                    await writer.drain()
        except (EOFError, OSError, Hangup):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    def _answer(self, frame: bytes) -> bytes | None:
        drafty = 3 not in self.versions
        if drafty and frame[5] == 50:
            # The draft's 50 has a plain header; the released 50 hasn't.
            as_48 = frame[:5] + b"\x30" + frame[6:]
            _, version, correlation_id, _, at = parse_request_header(as_48)
            key = 50
        else:
            key, version, correlation_id, _, at = parse_request_header(frame)
        if key == 18:
            ranges = tuple(ApiVersion(k, *v) for k, v in self.versions.items())
            message: Any = ApiVersionsResponse(ranges)
            return messages.encode_response(18, version, correlation_id, message)
        drafted = drafty and key in draft.REQUESTS
        if drafted:
            request = draft.decode_request(key, frame, at)
        else:
            request = messages.decode_request(key, version, frame, at)
        self.requests.append((key, request))
        message = self.handlers[key](request)
        if message is None or isinstance(message, bytes):
            return message
        if drafted:
            return draft.encode_response(key, correlation_id, message)
        return messages.encode_response(key, version, correlation_id, message)


__all__ = ["ADMIN_LISTENER", "RELEASED", "FakeBroker", "Hangup", "build_response"]

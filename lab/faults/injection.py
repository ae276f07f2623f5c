"""
Faults: kills and pauses of processes, and a proxy that parts a store from its server.

The proxy stands on loopback between writers and one server. Each writer of a run goes through one
of several proxies, so that a partition takes some of them and not the others.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from typing import Literal

from headgate.client.thread import LoopThread

Mode = Literal["pass", "drop", "late", "silent", "deaf", "mute"]


class Proxy:
    """
    A TCP proxy whose connections can be broken.

    - ``pass``: bytes go through.
    - ``drop``: connections are reset, new ones too.
    - ``late``: nothing goes through until ``pass`` comes again; then all of it, even what a client
      sent that has hung up since.
    - ``silent``: nothing goes through, both ways; nothing is closed.
    - ``deaf``: what clients send doesn't arrive, what servers send does.
    - ``mute``: what servers answer doesn't arrive, what clients send does.

    What was held back in the last three is lost. When ``pass`` comes again, those connections are
    reset.

    Args:
        host: the server's.
        port: the server's.
        own_port: to listen at; 0: any free one.
    """

    def __init__(self, host: str, port: int, own_port: int = 0) -> None:
        self._server = host, port
        self._mode: Mode = "pass"
        self._held: set[asyncio.StreamWriter] = set()
        self._open: set[asyncio.StreamWriter] = set()
        self._pairs: set[asyncio.Task[None]] = set()
        self._thread = LoopThread("proxy")
        self._listening = self._thread.run(self._listen(own_port))
        self.port: int = self._listening.sockets[0].getsockname()[1]

    async def _listen(self, own_port: int) -> asyncio.Server:
        self._passing = asyncio.Event()
        self._passing.set()
        return await asyncio.start_server(self._begin, "127.0.0.1", own_port)

    def _begin(self, reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        pair = asyncio.get_running_loop().create_task(self._serve(reader, client))
        self._pairs.add(pair)
        pair.add_done_callback(self._pairs.discard)

    async def _serve(self, reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        if self._mode == "drop":
            client.transport.abort()
            return
        try:
            answers, server = await asyncio.open_connection(*self._server)
        except OSError:
            client.transport.abort()
            return
        self._open |= {client, server}
        try:
            await asyncio.gather(
                self._copy(reader, server, ("silent", "deaf")),
                self._copy(answers, client, ("silent", "mute")),
            )
        finally:
            for end in (client, server):
                self._open.discard(end)
                self._held.discard(end)
                end.transport.abort()

    async def _copy(
        self, source: asyncio.StreamReader, to: asyncio.StreamWriter, held_in: Sequence[Mode]
    ) -> None:
        with suppress(OSError):
            while data := await source.read(65_536):
                if self._mode in held_in or to in self._held:
                    self._held.add(to)
                    continue
                await self._passing.wait()
                to.write(data)
                await to.drain()
        # What was handed over still goes out before the end.
        with suppress(OSError):
            to.close()

    def set(self, mode: Mode) -> None:
        """Break connections, or let them pass again."""
        self._thread.run(self._set(mode))

    async def _set(self, mode: Mode) -> None:
        self._mode = mode
        self._passing.clear() if mode == "late" else self._passing.set()
        for end in list(self._open if mode == "drop" else self._held if mode == "pass" else ()):
            end.transport.abort()

    def close(self) -> None:
        """Stop."""
        self._thread.run(self._end())
        self._thread.close()

    async def _end(self) -> None:
        self._listening.close()
        self._passing.set()
        for end in list(self._open):
            end.transport.abort()
        await asyncio.gather(*self._pairs)


class Frozen:
    """
    A process that stands still for a while.

    Args:
        pid: the process, started by the test.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def __enter__(self) -> None:
        os.kill(self._pid, signal.SIGSTOP)

    def __exit__(self, *_exc: object) -> None:
        with suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGCONT)

"""
asyncio's transports and epoll over simulated sockets, as uvloop has them.

What a write can't hand to the kernel stays where the caller has it, as uvloop keeps views, so a
buffer that is used again too early is sent wrong here as well. ``test_stand_ins.py`` holds the
order of callbacks against asyncio's and uvloop's own.
"""

from __future__ import annotations

import asyncio
import errno
from collections import deque
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from simulation.loop import Process, SimLoop
    from simulation.network import End

READ_BYTES: Final = 262_144
"""Most bytes that one read gives a plain protocol."""


class SimTransport(asyncio.Transport):
    """
    One side of a connection, as the loop gives it to a protocol.

    Args:
        loop: the loop.
        process: whose it is.
        end: the socket.
        protocol: plain or buffered.
        waiter: told when the protocol has its transport.
    """

    def __init__(
        self, loop: SimLoop, process: Process, end: End, protocol: Any, waiter: Any
    ) -> None:
        super().__init__()
        self._loop = loop
        self._process = process
        self.end = end
        self._protocol = protocol
        self._buffered = isinstance(protocol, asyncio.BufferedProtocol)
        self._closing = False
        self._lost = False
        self._connected = False
        self._reading = False
        self._paused = False
        self._eof = False
        self._writes: deque[memoryview] = deque()
        self._size = 0
        self._high, self._low = 65_536, 16_384
        self._held_back = False  # the protocol was told to pause
        self._read_due = self._write_due = self._flush_due = False
        self.on_write: Any = None  # a tap: what the protocol wrote
        self.on_leave: Any = None  # a tap: the protocol ends the connection
        self.ready_ns = self.drained_ns = loop.now_ns
        loop.network.ends[end] = None
        process.run(loop.call_soon, self._begin, waiter)

    def _begin(self, waiter: Any) -> None:
        if self._closing:
            self._wake(waiter)
            return
        self._connected = True
        try:
            self._protocol.connection_made(self)
        except Exception as error:
            self._fail(error, "connection_made failed")
            self._wake(waiter)
            return
        if not self._closing:
            self.end.on_readable, self.end.on_writable = self._readable, self._writable
            if not self._paused:
                self._reading = True
            self._look()
        self._wake(waiter)

    @staticmethod
    def _wake(waiter: Any) -> None:
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    # --- what is asked ----------------------------------------------------------------------

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "socket":
            return self.end
        if name == "peername":
            return self.end.getpeername()
        if name == "sockname":
            return self.end.getsockname()
        return default

    def is_closing(self) -> bool:
        return self._closing

    def set_protocol(self, protocol: Any) -> None:
        self._protocol = protocol
        self._buffered = isinstance(protocol, asyncio.BufferedProtocol)

    def get_protocol(self) -> Any:
        return self._protocol

    # --- reading ----------------------------------------------------------------------------

    def is_reading(self) -> bool:
        return self._reading and not self._closing

    def pause_reading(self) -> None:
        self._paused = True
        self._reading = False

    def resume_reading(self) -> None:
        self._paused = False
        if self._closing or self._reading or not self._connected:
            return
        self._reading = True
        self._look()

    def _look(self) -> None:
        if self._reading and self.end.is_readable():
            self._readable()

    def _readable(self) -> None:
        if not self._reading or self._read_due or self._closing:
            return
        self._read_due = True
        process = self._process
        self._loop.arrive(process, asyncio.Handle(self._read, (), self._loop, process.context()))

    def _read(self) -> None:
        self._read_due = False
        if not self._reading or self._closing or not self.end.is_readable():
            return
        try:
            if self._buffered:
                buffer = self._protocol.get_buffer(-1)
                data = self.end.recv(len(buffer))
            else:
                data = self.end.recv(READ_BYTES)
        except OSError as error:
            self._fail(error, None)
            return
        if data is None:
            return
        if not data:
            self._ended()
            return
        try:
            if self._buffered:
                buffer[: len(data)] = data
                self._protocol.buffer_updated(len(data))
            else:
                self._protocol.data_received(data)
        except Exception as error:
            self._fail(error, "a protocol's callback failed")
            return
        self._look()

    def _ended(self) -> None:
        self._reading = False
        self._paused = True
        keep_open = self._protocol.eof_received()
        if not keep_open:
            self.close()

    # --- writing ----------------------------------------------------------------------------

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if high is None:
            high = 65_536 if low is None else 4 * low
        self._high = high
        self._low = high // 4 if low is None else low

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def get_write_buffer_size(self) -> int:
        return self._size

    @property
    def unsent(self) -> int:
        """Bytes that wait to be sent."""
        return self._size

    @property
    def on_read(self) -> Any:
        """A tap: what is read."""
        return self.end.on_read

    @on_read.setter
    def on_read(self, tap: Any) -> None:
        self.end.on_read = tap

    def write(self, data: Any) -> None:
        self.writelines([data])

    def writelines(self, list_of_data: Any) -> None:
        if self._eof:
            raise RuntimeError("Cannot call write() after write_eof()")
        for data in list_of_data:
            if len(data):
                if self.on_write is not None:
                    self.on_write(bytes(data))
                if not self._closing:
                    self._writes.append(memoryview(data).cast("B"))
                    self._size += len(data)
        if self._closing or not self._size:
            return
        if not self._held_back and self._size > self._high and not self._write_due:
            self._flush()
        else:
            self._flush_soon()
        self._hold_back()

    def _hold_back(self) -> None:
        if not self._held_back and self._size > self._high and not self._closing:
            self._held_back = True
            self._protocol.pause_writing()

    def _flush_soon(self) -> None:
        if not self._flush_due:
            self._flush_due = True
            self._process.run(self._loop.call_soon, self._flush_now)

    def _flush_now(self) -> None:
        self._flush_due = False
        self._flush()

    def _flush(self) -> None:
        """Hand the kernel what it takes."""
        while self._writes:
            piece = self._writes[0]
            try:
                count = self.end.send(piece)
            except OSError as error:
                self._fail(error, None)
                return
            self._size -= count
            if count < len(piece):
                self._writes[0] = piece[count:]
                break
            self._writes.popleft()
        self._let_go()

    def _let_go(self) -> None:
        if self._held_back and self._size <= self._low and self._connected and not self._lost:
            self._held_back = False
            self._protocol.resume_writing()
        if not self._writes:
            self.drained_ns = self._loop.now_ns
            if self._closing:
                self._lose(None)
            elif self._eof:
                self.end.shutdown()

    def _writable(self) -> None:
        if self._lost or self._write_due or not (self._writes or self.end.error is not None):
            return
        if not self._writes and not self._closing:
            return  # an error is told by reading
        self._write_due = True
        process = self._process
        self._loop.arrive(
            process, asyncio.Handle(self._write_on, (), self._loop, process.context())
        )

    def _write_on(self) -> None:
        self._write_due = False
        if not self._lost:
            self._flush()

    def write_eof(self) -> None:
        if self._eof or self._closing:
            return
        self._eof = True
        if not self._writes:
            self.end.shutdown()

    @property
    def said_goodbye(self) -> bool:
        """Whether it said that nothing more comes."""
        return self._eof or self._closing

    def can_write_eof(self) -> bool:
        return True

    # --- the end ----------------------------------------------------------------------------

    def close(self) -> None:
        if self._closing:
            return
        self._leave()
        self._closing = True
        self._reading = False
        if not self._writes:
            self._lose(None)
        else:
            self._flush_soon()

    def abort(self) -> None:
        if not self._closing:
            self._leave()
        self._force(None)

    def _leave(self) -> None:
        if self.on_leave is not None:
            self.on_leave()

    def _force_close(self, error: BaseException | None) -> None:
        """End as ``SSLProtocol`` asks a transport of asyncio's to."""
        self._force(error)

    def _fail(self, error: BaseException, what: str | None) -> None:
        if what is not None:
            self._loop.call_exception_handler(
                {"message": what, "exception": error, "transport": self}
            )
        self._force(error)

    def _force(self, error: BaseException | None) -> None:
        if self._lost:
            return
        self._writes.clear()
        self._size = 0
        self._closing = True
        self._reading = False
        self._lose(error)

    def _lose(self, error: BaseException | None) -> None:
        if self._lost:
            return
        self._lost = True
        self._process.run(self._loop.call_soon, self._gone, error)

    def _gone(self, error: BaseException | None) -> None:
        try:
            if self._connected:
                self._protocol.connection_lost(error)
        finally:
            self.end.close()


class SimEpoll:
    """``select.epoll``, as the watch for clients that hang up uses it: EPOLLRDHUP, one shot."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop
        self._ends: dict[int, Any] = {}
        self._armed: dict[int, None] = {}
        self.closed = False
        self.fd = loop.network.new_fd(self)
        loop.watchable(self)

    def fileno(self) -> int:
        """Return the descriptor."""
        return self.fd

    def register(self, fd: int, _events: int) -> None:
        """Watch a socket."""
        end = self._loop.network.by_fd.get(fd)
        if end is None:
            raise OSError(errno.EBADF, "Bad file descriptor")
        if fd in self._ends:
            raise FileExistsError(errno.EEXIST, "File exists")
        self._ends[fd] = end
        self._armed[fd] = None
        end.watchers[self] = None
        self.look()

    def unregister(self, fd: int) -> None:
        """Watch it no more."""
        end = self._ends.pop(fd, None)
        if end is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory")
        self._armed.pop(fd, None)
        end.watchers.pop(self, None)

    def _due(self) -> list[int]:
        return [
            fd
            for fd in self._armed
            if not self._ends[fd].closed
            and (self._ends[fd].ended or self._ends[fd].error is not None)
        ]

    def is_readable(self) -> bool:
        """Whether ``poll`` would return something."""
        return not self.closed and bool(self._due())

    def look(self) -> None:
        """Something happened to a socket that is watched."""
        self._loop.poll(self.fd)

    def poll(self, _timeout: float = 0) -> list[tuple[int, int]]:
        """Return what has happened, once."""
        found = self._due()
        for fd in found:
            del self._armed[fd]
        return [(fd, 0x2000) for fd in found]

    def close(self) -> None:
        """Watch nothing more."""
        self.closed = True
        for fd in list(self._ends):
            self.unregister(fd)

"""
TLS over simulated sockets, as the loop gives it to the gateway's protocols.

It is asyncio's own ``SSLProtocol``, on a simulated transport, with the differences of uvloop's,
which the gateway runs on: uvloop takes the end of a connection for a broken one, and drops what
comes for a protocol that has closed. What protocols read and write is tapped where it is plain, so
the laws see the same on the gateway's wires as without TLS. ``test_stand_ins_tls.py`` holds
it against uvloop's own.
"""

from __future__ import annotations

import asyncio
import asyncio.sslproto
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from simulation.transports import SimTransport

if TYPE_CHECKING:
    from simulation.loop import Process, SimLoop
    from simulation.network import End

THEIRS: Final[Any] = asyncio.sslproto
AT_ONCE: Final = 262_144
"""Most bytes of one read."""
STATES: Final[Any] = THEIRS.SSLProtocolState
WRAPPED, FLUSHING = STATES.WRAPPED, STATES.FLUSHING
SHUTDOWN, UNWRAPPED = STATES.SHUTDOWN, STATES.UNWRAPPED
AGAIN: Final = (ssl.SSLWantReadError, ssl.SSLSyscallError)


class TlsTransport(THEIRS._SSLProtocolTransport):  # type: ignore[misc]
    """
    The transport that a protocol over TLS has.

    Attributes:
        on_read, on_write: taps: called with what the protocol reads, or wrote, not encrypted.
        on_leave: likewise, when the protocol ends the connection.
        ready_ns: when the handshake was over; -1 before.
        peer_ended: the other side said that it sends no more (``close_notify``); what is written
            from then on goes nowhere.
    """

    def __init__(self, loop: SimLoop, protocol: Any) -> None:
        super().__init__(loop, protocol)
        self.on_read: Callable[[bytes], None] | None = None
        self.on_write: Callable[[bytes], None] | None = None
        self.on_leave: Callable[[], None] | None = None
        self.below: SimTransport
        self.ready_ns = -1
        self.peer_ended = False

    def __del__(self) -> None:
        """Say nothing of transports that a crash or the end of a life cuts off."""

    @property
    def end(self) -> End:
        """The socket."""
        return self.below.end

    @property
    def drained_ns(self) -> int:
        """When all was sent last."""
        return self.below.drained_ns

    @property
    def said_goodbye(self) -> bool:
        """Whether it said that nothing more comes."""
        return bool(self._closed)

    @property
    def unsent(self) -> int:
        """Bytes that wait to be sent, here and below."""
        protocol = self._ssl_protocol
        own: int = 0 if protocol is None else protocol._get_write_buffer_size()
        return own + self.below.unsent

    def write(self, data: Any) -> None:
        """Write, and tell the tap."""
        if self.on_write is not None and len(data):
            self.on_write(bytes(data))
        super().write(data)

    def writelines(self, list_of_data: Any) -> None:
        """Write one after the other."""
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        """Say goodbye once all is sent, and close when the other side has said it too."""
        self._leave()
        self._closed = True
        self._ssl_protocol._start_shutdown()

    def abort(self) -> None:
        """Close at once."""
        self._leave()
        self._force_close(None)

    def _leave(self) -> None:
        if not self._closed and self.on_leave is not None:
            self.on_leave()


class _Protocol(THEIRS.SSLProtocol):  # type: ignore[misc]
    """asyncio's with uvloop's differences, and a tap where a protocol gets what was decrypted."""

    _app_transport: Any
    _app_reading_paused: bool
    _shutdown_timeout_handle: Any
    _state: Any
    _filled: Any = b""  # the protocol's buffer
    _told = False  # that the handshake is over

    def _get_app_transport(self) -> TlsTransport:
        if self._app_transport is None:
            self._app_transport = TlsTransport(self._loop, self)
        made: TlsTransport = self._app_transport
        return made

    def _tell(self, count: int) -> None:
        transport = self._app_transport
        if transport is not None and transport.on_read is not None:
            transport.on_read(bytes(self._filled[:count]))
        self._app_protocol_buffer_updated(count)

    # --- the handshake ----------------------------------------------------------------------

    def _on_handshake_complete(self, handshake_exc: Any) -> None:
        if handshake_exc is None:
            self._app_transport.ready_ns = self._loop.now_ns
        super()._on_handshake_complete(handshake_exc)

    # --- reading ----------------------------------------------------------------------------

    def _do_read(self) -> None:
        if self._state is not WRAPPED:
            return
        if not self._told:  # who waits for the handshake learns of it first
            self._told = True
            self._loop.call_soon(self._do_read)
            return
        try:
            if not self._app_reading_paused:
                if self._app_protocol_is_buffer:
                    self._do_read__buffered()
                else:
                    self._do_read__copied()
                if self._write_backlog:
                    self._do_write()
                self._process_outgoing()
                self._control_app_writing()
            self._control_ssl_reading()
        except Exception as error:
            self._fatal_error(error, "Fatal error on SSL protocol")

    def _do_read__buffered(self) -> None:
        left = self._incoming.pending + self._sslobj.pending()
        buffer = self._filled = memoryview(self._app_protocol_get_buffer(left + 256))
        count, had = -1, 0
        try:
            while left > 0:
                count = self._sslobj.read(len(buffer) - had, buffer[had:])
                had += count
                if not count:
                    break
                if had == len(buffer):
                    self._loop.call_soon(self._do_read)
                    break
                left = self._incoming.pending + self._sslobj.pending()
        except AGAIN:
            pass
        if had:
            self._tell(had)
        if not count:
            self._call_eof_received()
            self._start_shutdown()

    def _call_eof_received(self) -> None:
        self._app_transport.peer_ended = True
        super()._call_eof_received()

    def _resume_reading(self) -> None:
        if self._app_reading_paused:
            self._app_reading_paused = False
            if self._state is WRAPPED:
                self._loop.call_soon(self._do_read)

    def eof_received(self) -> None:
        if self._state is STATES.DO_HANDSHAKE:
            self._on_handshake_complete(ConnectionResetError)
        elif self._state is not UNWRAPPED:
            self._state = SHUTDOWN
            self._on_shutdown_complete(None)

    # --- writing ----------------------------------------------------------------------------

    def _process_outgoing(self) -> None:
        if not self._ssl_writing_paused:
            data = self._outgoing.read()
            if data:
                self._transport.write(data)

    def _do_write(self) -> None:
        super()._do_write()
        if self._state is WRAPPED:
            self._control_app_writing()

    def resume_writing(self) -> None:
        self._ssl_writing_paused = False
        if self._state is WRAPPED:
            self._process_outgoing()
            self._control_app_writing()
        elif self._state is FLUSHING:
            self._do_flush()
        elif self._state is SHUTDOWN:
            self._do_shutdown()

    # --- the end ----------------------------------------------------------------------------

    def _do_read_into_void(self) -> None:
        """Drop what comes for a protocol that has closed."""
        try:
            while self._sslobj.read(AT_ONCE):
                continue
        except AGAIN:
            return
        except ssl.SSLZeroReturnError:
            pass
        if self._app_state is THEIRS.AppProtocolState.STATE_CON_MADE:
            self._call_eof_received()

    def _do_flush(self) -> None:
        try:
            self._do_read_into_void()
            self._do_write()
            self._process_outgoing()
            self._control_ssl_reading()
        except Exception as error:
            self._on_shutdown_complete(error)
        else:
            if not self._get_write_buffer_size():
                self._set_state(SHUTDOWN)
                self._do_shutdown()

    def _do_shutdown(self) -> None:
        try:
            self._do_read_into_void()
            try:
                self._sslobj.unwrap()
            except AGAIN:
                self._process_outgoing()
            else:
                self._process_outgoing()
                if not self._get_write_buffer_size():
                    self._on_shutdown_complete(None)
        except Exception as error:
            self._on_shutdown_complete(error)

    def _on_shutdown_complete(self, shutdown_exc: Any) -> None:
        if self._shutdown_timeout_handle is not None:
            self._shutdown_timeout_handle.cancel()
            self._shutdown_timeout_handle = None
        if shutdown_exc:
            self._fatal_error(shutdown_exc, "Error occurred during shutdown")
        else:
            self._transport.close()

    def _abort(self, error: Any = None) -> None:
        self._set_state(UNWRAPPED)
        if self._transport is not None:
            self._transport._force_close(error)

    def _fatal_error(self, exc: Any, message: str = "Fatal error on transport") -> None:
        if self._app_transport is not None:
            self._app_transport._force_close(exc)
        super()._fatal_error(exc, message)


def over_tls(
    loop: SimLoop,
    process: Process,
    end: End,
    protocol: Any,
    waiter: asyncio.Future[None],
    context: ssl.SSLContext,
    **more: Any,
) -> TlsTransport:
    """
    Give a protocol a transport over TLS, as the loop does.

    Args:
        loop: the loop.
        process: whose it is.
        end: the socket.
        protocol: plain or buffered.
        waiter: told when the handshake is over.
        context: of TLS.
        more: what else asyncio's ``SSLProtocol`` takes.
    """
    between = _Protocol(loop, protocol, context, waiter, **more)
    transport: TlsTransport = between._app_transport
    transport.below = SimTransport(loop, process, end, between, None)
    return transport

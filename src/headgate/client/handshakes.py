"""
The bytes that a client may send in a TLS handshake.

OpenSSL takes a chain of a hundred certificates, and looks at all of them in one call. Java takes
ten; Python's ``ssl`` has no setting for it. So the bytes are bounded.
"""

from __future__ import annotations

import ssl
from typing import Any, Final, Self

MOST_BYTES: Final = 20_480
"""Of all messages of a handshake. Ten certificates of RSA-4096 take less, fifty of P-256 more."""
_PIECE_BYTES: Final = 2_048
NO_RX_CERTIFICATE_COMPRESSION: Final = 1 << 33
"""OpenSSL's option of 3.2 and later, for which ``ssl`` has no name: RFC 8879 is not for a server
that bounds bytes, as 100 kB of certificates are compressed to 1 kB."""


class _Bounded(ssl.SSLObject):
    """
    One connection's TLS.

    Attributes:
        incoming: what came, encrypted.
        taken: bytes of the handshake so far.
    """

    incoming: ssl.MemoryBIO
    taken = 0

    def do_handshake(self) -> None:
        """
        Go on with what came, piece by piece: what follows the handshake doesn't count.

        Raises:
            ssl.SSLError: it is too long; as ``SSLObject.do_handshake`` else.
        """
        if not self.incoming.pending:
            super().do_handshake()
            return
        waiting = memoryview(self.incoming.read())
        while True:
            piece, waiting = waiting[:_PIECE_BYTES], waiting[_PIECE_BYTES:]
            self.taken += len(piece)
            # Differs: a handshake is bounded by its bytes; Java bounds its certificates, at ten.
            if self.taken > MOST_BYTES:
                raise ssl.SSLError(
                    ssl.SSL_ERROR_SSL,
                    f"the handshake takes more than {MOST_BYTES} bytes: too many certificates",
                )
            self.incoming.write(piece)
            try:
                super().do_handshake()
            except ssl.SSLWantReadError:
                if not waiting:
                    raise
            else:
                self.incoming.write(waiting)
                return


class ServerContext(ssl.SSLContext):
    """A server's context, under which a handshake of more than ``MOST_BYTES`` fails."""

    sslobject_class = _Bounded

    def __new__(cls, protocol: int, *args: Any, **more: Any) -> Self:
        """Return a context that takes no compressed certificates."""
        made = super().__new__(cls, protocol, *args, **more)
        if ssl.OPENSSL_VERSION_INFO >= (3, 2):
            made.options |= NO_RX_CERTIFICATE_COMPRESSION
        return made

    def wrap_bio(self, incoming: ssl.MemoryBIO, *args: Any, **more: Any) -> ssl.SSLObject:
        """Return one connection's TLS; asyncio and uvloop make it so."""
        made = super().wrap_bio(incoming, *args, **more)
        assert isinstance(made, _Bounded)
        made.incoming = incoming
        return made

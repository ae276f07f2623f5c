"""
The error to report when a port uses another security protocol than the client.

Neither side names the mistake. A plaintext port ends a TLS handshake, a TLS port answers plaintext
with an alert, and a SASL port closes the connection of a client that sends a request before it logs
in (tried on 4.3.1). A port whose limit of connections by address is reached does the same.
"""

from __future__ import annotations

import ssl
from typing import Final, NamedTuple

_TLS_RECORDS: Final = (b"\x15\x03", b"\x16\x03")
"""How an alert and a handshake begin (RFC 8446, section 5.1): type, and 3 as major version."""
_OTHER_SPEECH: Final = frozenset(
    {"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG", "HTTP_REQUEST"}
)


class Spoken(NamedTuple):
    """
    The security protocol that this side uses with a port.

    Args:
        setting: where it is set, such as ``security.protocol``.
        protocol: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.
    """

    setting: str
    protocol: str

    def _set(self, *, tls: bool, sasl: bool | None = None) -> str:
        """Return what to set; ``sasl`` is None if it isn't known."""
        end = "SSL" if tls else "PLAINTEXT"
        fit = f"{end} or SASL_{end}" if sasl is None else f"SASL_{end}" if sasl else end
        return f"set {self.setting}={fit} (it is {self.protocol})"

    @property
    def _tls(self) -> bool:
        return self.protocol.endswith("SSL")

    @property
    def _sasl(self) -> bool:
        return self.protocol.startswith("SASL")

    def answered(self, begin: bytes) -> str | None:
        """Return what is wrong when an answer begins with these bytes, or None."""
        if self._tls or begin[:2] not in _TLS_RECORDS:
            return None
        return f"it speaks TLS and was spoken to without: {self._set(tls=True)}"

    def handshake_failed(self, error: OSError) -> str | None:
        """Return what may be wrong when a TLS handshake ended in this error, or None."""
        if isinstance(error, ssl.SSLCertVerificationError):
            return None
        other = isinstance(error, ssl.SSLError) and getattr(error, "reason", "") in _OTHER_SPEECH
        cut_off = isinstance(error, ssl.SSLEOFError | ConnectionResetError)
        if not self._tls or not (other or cut_off):
            return None
        return "it cut the TLS handshake off, as a port does that speaks no TLS: " + self._set(
            tls=False
        )

    def hung_up(self, *, logged_in: bool) -> str | None:
        """
        Return what may be wrong when the port closes on a request that Kafka answers, or None.
        """
        if logged_in or self._sasl:
            return None
        wants = self._set(tls=self._tls, sasl=True)
        return (
            "it hung up on the first question, as a port does that wants SASL, and as one that has "
            "all the connections from this address that it takes (max.connections.per.ip and its "
            f"overrides). If it wants SASL, {wants}"
        )

    def no_sasl(self) -> str:
        """Return what is wrong when a port answers that it takes no SASL."""
        return f"it takes no SASL: {self._set(tls=self._tls, sasl=False)}"

"""Say what a listener is: a name, its security protocol, and where it listens."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

WILDCARDS = frozenset({"", "0.0.0.0", "::", "0:0:0:0:0:0:0:0"})
"""Hosts that mean every interface of this machine; "" is Kafka's spelling."""


class SecurityProtocol(StrEnum):
    """Kafka's four security protocols (org.apache.kafka.common.security.auth.SecurityProtocol)."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def tls(self) -> bool:
        """True where bytes are encrypted."""
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def sasl(self) -> bool:
        """True where clients authenticate by SASL."""
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


@dataclass(frozen=True, slots=True)
class HostPort:
    """
    An address: ``host:port``, ``[v6]:port`` or ``:port``.

    Args:
        host: a name or address without brackets; "" is every interface.
        port: 0..65535; 0 lets the system choose.
    """

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @classmethod
    def parse(cls, text: str) -> HostPort:
        """
        Read ``host:port``.

        Raises:
            ValueError: if it isn't an address; says what is wrong.
        """
        match = re.fullmatch(r"(?:\[([0-9A-Fa-f:.%]+)\]|([^:\[\]/\s]*)):(\d{1,9})", text.strip())
        if match is None:
            raise ValueError(f"{text!r} isn't host:port")
        port = int(match[3])
        if port > 65535:
            raise ValueError(f"port {port} in {text!r} is above 65535")
        return cls(match[1] or match[2] or "", port)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One ``NAME://host:port`` of a list, before its protocol is known."""

    name: str
    address: HostPort

    def __str__(self) -> str:
        return f"{self.name}://{self.address}"

    @classmethod
    def parse(cls, text: str) -> Endpoint:
        """
        Read ``NAME://host:port``.

        Raises:
            ValueError: if it isn't one; says what is wrong.
        """
        name, separator, address = text.strip().partition("://")
        if not separator or not re.fullmatch(r"[A-Za-z0-9_.-]+", name):
            raise ValueError(f"{text.strip()!r} isn't NAME://host:port")
        return cls(name.upper(), HostPort.parse(address))


@dataclass(frozen=True, slots=True)
class Listener:
    """
    One listener of the gateway.

    Args:
        name: upper case, as Kafka keeps it.
        protocol: what its clients speak.
        bind: where it listens; the port is the one of broker ``headgate.broker.id.min``.
        advertised: what clients are told; the port moves with the broker id in the same way, and
            ``{id}`` in the host stands for it.
    """

    name: str
    protocol: SecurityProtocol
    bind: HostPort
    advertised: HostPort

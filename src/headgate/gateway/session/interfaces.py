"""
What a session is given besides its rules: who its client is, and what its listener tells clients.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from headgate.gateway.session.rewrite import AddressBook
    from headgate.wire.fields import Buffer


class ClusterView(Protocol):
    """The cluster as the clients of one listener see it; ``broker.listener`` has the one used."""

    @property
    def addresses(self) -> AddressBook:
        """Broker id to the address that leads through the gateway, as of now."""

    def unknown_brokers(self, broker_ids: tuple[int, ...]) -> None:
        """The upstream named brokers that have no address here yet."""


class ClientIdentity(Protocol):
    """Who a client is; ``identity.Identity`` is the one that is used."""

    principal: str
    """The name of the principal, raw; ANONYMOUS until a broker has said yes."""
    authenticated: bool
    """Whether requests other than those of authentication are allowed."""
    close_reason: str | None
    """Why the connection is to be closed after a refusal; None if it needn't be."""
    close_text: str

    @property
    def raw(self) -> bool:
        """Whether what comes next on either side is a bare SASL token."""

    def raw_request(self, frame: Buffer) -> None:
        """See a bare token."""

    def unknown_token(self, key: int, version: int, frame: Buffer, body: int) -> str | None:
        """Return the id of the delegation token in a request, if its owner is to be found."""

    def raw_response(self, frame: Buffer) -> None:
        """See the broker's answer to it."""

    def request(self, key: int, version: int, frame: bytes, body: int) -> bytes | None:
        """See a SASL request; returns our own answer if it mustn't go to the broker."""

    def response(self, key: int, version: int, frame: bytes) -> None:
        """See the broker's answer to it."""

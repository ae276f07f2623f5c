"""
What a session and its shell, the code with the sockets, say to each other.

The session asks by commands, as data. Bytes to send aren't commands: they lie in
``Session.to_broker`` and ``Session.to_client``. The shell gives a session two objects: who its
client is, and what its listener tells clients.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from headgate.gateway.charging.plans import RequestPlan
from headgate.gateway.session.rewrite import Rewrite

if TYPE_CHECKING:
    from headgate.gateway.session.rewrite import AddressBook
    from headgate.wire.fields import Buffer


@dataclass(frozen=True, slots=True)
class WakeAt:
    """Call ``Session.wake`` when the clock reaches ``t_ms`` (milliseconds of the epoch)."""

    t_ms: int


@dataclass(frozen=True, slots=True)
class PauseClient:
    """Read nothing more from the client: what is held has reached its bound."""


@dataclass(frozen=True, slots=True)
class ResumeClient:
    """Read from the client again."""


@dataclass(frozen=True, slots=True)
class PauseBroker:
    """Read nothing more from the broker: an answer waits for its turn."""


@dataclass(frozen=True, slots=True)
class ResumeBroker:
    """Read from the broker again."""


@dataclass(frozen=True, slots=True)
class Continue:
    """
    Call ``Session.go_on`` in a later callback, and read from neither side before.

    What came holds so much work that others shall be served meanwhile.
    """


@dataclass(frozen=True, slots=True)
class Close:
    """Close both sides; ``reason`` is a label of the metrics, ``detail`` goes to the log."""

    reason: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Ask:
    """
    A request that isn't simply relayed: answer it or say what to forward.

    The session takes nothing more from its client until the shell has called, with this very
    object, ``Session.answer`` or ``Session.forward``. If the ``merge`` of a ``forward`` gives the
    object back, ``Session.answer`` is due as well. Where ``token_id`` is set, the shell looks up
    that delegation token's owner and calls ``Session.resume`` instead.
    """

    plan: RequestPlan
    correlation_id: int
    client_id: str | None
    body_offset: int
    frame: bytes
    principal: str
    token_id: str | None = None
    client_ip: str = ""


Command = (
    WakeAt
    | PauseClient
    | ResumeClient
    | PauseBroker
    | ResumeBroker
    | Continue
    | Close
    | Ask
    | Rewrite
)


class ClusterView(Protocol):
    """The cluster as the clients of one listener see it; ``broker.dialing`` has the one used."""

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

"""
What a session asks of its shell, the code with the sockets: commands, as data.

Bytes to send aren't commands: they lie in ``Session.to_broker`` and ``Session.to_client``.
"""

from __future__ import annotations

from dataclasses import dataclass

from headgate.gateway.charging.fetch_hold import FetchHold
from headgate.gateway.charging.lanes import Debts
from headgate.gateway.charging.plans import RequestPlan
from headgate.gateway.session.rewrite import Rewrite


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
class AwaitTurn:
    """Set ``waits.nudge`` to a function that has ``Session.nudged`` called in a later callback."""

    waits: FetchHold | Debts


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
    | AwaitTurn
    | Close
    | Ask
    | Rewrite
)

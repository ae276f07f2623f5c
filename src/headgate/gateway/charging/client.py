"""
A client's connection, as charging sees it: what a session shows to the code that charges requests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from headgate.gateway.charging.fetch_hold import FetchHold
    from headgate.gateway.charging.headroom import Headroom
    from headgate.gateway.charging.lanes import Lane, LaneKey
    from headgate.gateway.charging.plans import RequestPlan
    from headgate.gateway.charging.told import Told


class ClientConnection(Protocol):
    """
    A client's connection to one broker; ``session.session.Session`` is the one that is used.

    Attributes:
        spent_ns: thread time that its next charge has to count; the charge sets it to 0.
        asked_ms: when a broker begins with its oldest request in flight, epoch ms.
        told: the last wait that was told to it; a decision that throttles sets it.
        repays: kinds of requests (``RequestPlan.bit``) whose charge it has to be told (``repaid``).
        early_in: the headroom in which it may have requests that aren't charged yet.
        client_ip: for the journal.
        listener: for the journal.
        connection: for the journal; unique within the worker.
        origins: the journal's own, kept for as long as the connection is open.
        origin_seen: the one that the journal used last, by quota type.
    """

    spent_ns: int
    asked_ms: int
    told: Told | None
    repays: int
    early_in: Headroom | None
    client_ip: str
    listener: str
    connection: str
    origins: dict[Any, Any]
    origin_seen: dict[str, tuple[Any, ...]]

    @property
    def broker_id(self) -> int:
        """The upstream broker's id."""

    @property
    def hold(self) -> FetchHold | None:
        """Its fetch; None before the first."""

    def note_debt(self, key: LaneKey, lane: Lane) -> None:
        """Note a throttle, to be left behind if the connection closes before it is over."""

    def repaid(self, plan: RequestPlan, now_ms: int) -> None:
        """Note that a request is charged of a kind that may have waited for a debt."""

    def charge_early(self, now_ms: int) -> None:
        """Charge the requests that went early (``headroom``), answered or not."""

"""
Who waits at one broker for what a quota made: they are called when another quota applies, or none.

Who waits for what a closed connection left, for a gate or in a line, waits for one quota-id. An
entity that appears or goes, or who is exempt or throttled at all, may change which that is. Then
those concerned look again, as they looked first. Another value changes nobody's quota-id, so it
calls nobody here: gates and lines call their own first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol

from headgate.quota.entity import DEFAULT
from headgate.steps import one_by_one
from headgate.throttle.java import UNLIMITED

if TYPE_CHECKING:
    from headgate.gateway.charging.contexts import Context
    from headgate.quota.entity import QuotaEntity
    from headgate.quota.key import QuotaKey
    from headgate.steps import Work


class Waits(Protocol):
    """
    A connection whose client may wait; ``session.session.Session`` is the one that is used.

    Attributes:
        context: who is charged for what waits.
    """

    context: Context

    @property
    def waits_for_quota(self) -> bool:
        """Whether it waits now."""

    def call(self) -> None:
        """Have it look again soon."""


class Change(NamedTuple):
    """
    A quota that changes.

    Attributes:
        entity: the quota's.
        key: the quota's.
        old: its value before; None: there was none.
        new: its value; None: it is removed.
    """

    entity: QuotaEntity
    key: QuotaKey
    old: float | None
    new: float | None

    @property
    def only_value(self) -> bool:
        """Whether it stays the quota that applies: it limits, and did so before."""
        if self.old is None or self.new is None:
            return self.old is self.new
        return (self.old < UNLIMITED) is (self.new < UNLIMITED)

    def concerns(self, context: Context) -> bool:
        """Whether the quota is one of those that may apply to a principal with a client-id."""
        user, client_id = self.entity.user, self.entity.client_id
        return (user is None or user is DEFAULT or user == context.principal) and (
            client_id is None or client_id is DEFAULT or client_id == context.client_id
        )


class Waiting:
    """Connections that may wait, of one broker. They are in it until it has found them passed."""

    def __init__(self) -> None:
        self._waits: dict[Waits, None] = {}

    def __len__(self) -> int:
        return len(self._waits)

    def add(self, one: Waits) -> None:
        """Have it called from now on."""
        self._waits[one] = None

    def discard(self, one: Waits) -> None:
        """It closes."""
        self._waits.pop(one, None)

    def calling(self, concerns: Callable[[Context], bool] | None = None) -> Work[None]:
        """
        Call those that wait, one in each step.

        Args:
            concerns: whether those are called that are charged so; None: all are.
        """
        for one in one_by_one(self._waits):
            if not one.waits_for_quota:
                self.discard(one)
            elif concerns is None or concerns(one.context):
                one.call()
            yield

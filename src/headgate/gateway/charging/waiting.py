"""
Who waits at one broker for what a quota made: they are called when another quota applies, or none.

Who waits for what a closed connection left, or at a gate, waits for one quota-id. An
entity that appears or goes, or who is exempt or throttled at all, may change which that is. Then
those concerned look again, as they looked first. Another value changes nobody's quota-id, so it
calls nobody here: gates call their own first.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import TYPE_CHECKING, Protocol

from headgate.quota.entity import DEFAULT
from headgate.steps import one_by_one
from headgate.throttle.java import UNLIMITED

if TYPE_CHECKING:
    from headgate.gateway.charging.contexts import Context
    from headgate.quota.entity import EntityName
    from headgate.quota.table import TableChange
    from headgate.steps import Work


class Waiter(Protocol):
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


def only_value(change: TableChange) -> bool:
    """Whether it stays the quota that applies: it limits, and did so before."""
    if change.old is None or change.new is None:
        return change.old is change.new
    return (change.old < UNLIMITED) is (change.new < UNLIMITED)


class Payers:
    """
    Those that changed quotas may apply to.

    Args:
        changes: of these quotas.
    """

    def __init__(self, changes: Iterable[TableChange]) -> None:
        entities = {change.entity for change in changes}
        self._named: Container[tuple[str | None, str | None]] = {
            (_name(entity.user), _name(entity.client_id)) for entity in entities
        }

    def __contains__(self, who: Context) -> bool:
        return any(
            (user, client_id) in self._named
            for user in (who.principal, None)
            for client_id in (who.client_id, who.charged_id, None)
        )


def _name(part: EntityName | None) -> str | None:
    """Return a name; None where a quota applies to any."""
    return None if part is DEFAULT else part


class Waiting:
    """Connections that may wait, of one broker. They are in it until it has found them passed."""

    def __init__(self) -> None:
        self._waits: dict[Waiter, None] = {}

    def __len__(self) -> int:
        return len(self._waits)

    def add(self, one: Waiter) -> None:
        """Have it called from now on."""
        self._waits[one] = None

    def discard(self, one: Waiter) -> None:
        """It closes."""
        self._waits.pop(one, None)

    def calling(self, payers: Payers | None = None) -> Work[None]:
        """
        Call those that wait, one in each step.

        Args:
            payers: those that are called; None: all are.
        """
        for one in one_by_one(self._waits):
            if not one.waits_for_quota:
                self.discard(one)
            elif payers is None or one.context in payers:
                one.call()
            yield

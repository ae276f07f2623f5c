"""
Clients that the gateway itself refuses wait for their answer, so that they don't come back at once.

As a broker does it (KIP-306): the answer to a failed authentication, and the closing of its
connection, wait for ``connection.failed.authentication.delay.ms``. A refusal by the broker has been
delayed there, so it passes at once; the gateway delays what it refuses in the broker's place
(``DELAYED``). As in Kafka neither a failed TLS handshake nor a request that doesn't parse is
delayed: a delay would keep no determined client away.

A refused client's connection to the broker is closed at once. The client's own counts as a
connection as long as it waits. If more than ``MOST`` wait, the one that has waited longest is told
and closed early.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final

DELAYED: Final = frozenset(
    {
        # SaslServerAuthenticator's AuthenticationExceptions, answered or not.
        "authzid",
        "mechanism",
        "reauthentication",
        "sasl-state",
        "unauthenticated",
        "unreadable",
        # Only a gateway refuses these; to the client it looks like a broker's refusal.
        "delegation-token",
        "gssapi",
        "name",
        "no-upstream-credentials",
        "opaque-token",
        # Differs: a principal builder's refusal after SASL waits as well; a broker closes at once.
        "principal",
    }
)
"""A close for one of these reasons waits."""
MOST: Final = 1_000
"""Waiting connections of one broker: at the default delay 10,000 refusals a second."""


class Refusals:
    """
    Connections that were refused and wait to be told, oldest first.

    Args:
        delay_ms: ``connection.failed.authentication.delay.ms``; 0: no connection waits.
        most: how many may wait.
        clock: monotonic, in seconds.
        later: the loop's ``call_later``; by default the running one's.
    """

    def __init__(
        self,
        delay_ms: int,
        most: int = MOST,
        clock: Callable[[], float] = time.monotonic,
        later: Callable[[float, Callable[[], None]], Any] | None = None,
    ) -> None:
        self._delay_s = delay_ms / 1000
        self._most = most
        self._clock = clock
        self._later = later
        self._waiting: dict[Any, tuple[float, Callable[[], None]]] = {}
        self._timer: Any = None

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def hold(self, connection: Any, let_go: Callable[[], None]) -> bool:
        """
        Make a connection wait.

        Args:
            connection: the connection; hashable.
            let_go: called once when the time has come, and only if ``forget`` wasn't.

        Returns:
            False: there is no delay.
        """
        if not self._delay_s:
            return False
        self._waiting[connection] = (self._clock() + self._delay_s, let_go)
        if len(self._waiting) > self._most:
            first = next(iter(self._waiting))
            self._waiting.pop(first)[1]()
        self._wind()
        return True

    def forget(self, connection: Any) -> None:
        """A connection needn't wait any more."""
        self._waiting.pop(connection, None)
        if not self._waiting and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wind(self) -> None:
        """Set the timer if a connection waits and none is set."""
        if self._timer is None and self._waiting:
            end, _ = next(iter(self._waiting.values()))
            later = self._later or asyncio.get_running_loop().call_later
            self._timer = later(max(end - self._clock(), 0.001), self._due)

    def _due(self) -> None:
        self._timer = None
        now = self._clock()
        # All wait equally long: they are due in the order in which they came.
        due = []
        for connection, (end, let_go) in self._waiting.items():
            if end > now:
                break
            due.append((connection, let_go))
        try:
            for connection, let_go in due:
                if self._waiting.pop(connection, None) is not None:
                    let_go()
        finally:
            self._wind()

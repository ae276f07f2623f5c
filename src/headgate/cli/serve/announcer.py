"""
Log that ``headgate serve`` is ready, and the addresses it listens at.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headgate.gateway.server import Gateway


class Announcer:
    """
    Say when a gateway begins to serve: at its start, or when a standby has taken over.

    The gateway itself logs, for each broker, the lease that it waits for.

    Args:
        gateway: started.
        log: where to.
    """

    def __init__(self, gateway: Gateway, log: Any) -> None:
        self._gateway = gateway
        self._log = log
        self._said: str | None = ""

    def say(self) -> None:
        """
        Log whether the gateway serves, if that has changed since the last call.

        Whether brokers answer is another matter, which is logged when it changes.
        """
        gateway = self._gateway
        why = gateway.health.unready()
        if why == self._said:
            return
        self._said = why
        if why is None:
            for listener in gateway.settings.listener_list:
                at = gateway.fronted_at(listener.name)
                if at:
                    self._log.info("serving", listener=listener.name, at=at)
            self._log.info("ready", pid=os.getpid(), brokers=sorted(gateway.brokers))
        elif gateway.ready:
            self._log.warning("nothing is served yet", why=why, pid=os.getpid())

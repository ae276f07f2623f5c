"""
Which user owns a delegation token (KIP-48): a client shows only its id, a broker knows its owner.

The gateway asks the broker that the client connects to, with its own credentials, while the
client's first message waits. An owner never changes, so it is remembered as long as its token
lives. Any client may show any id, so a broker is asked once a second at most. One answer serves all
clients that came before the question.

The answer holds the tokens' secrets; only ids and owners are kept.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from headgate.clock import now_ms
from headgate.config.listeners import HostPort, SecurityProtocol
from headgate.errors import HeadgateError
from headgate.gateway import upstream as up
from headgate.gateway.log import LogLimit, get_logger
from headgate.wire.messages.delegation import USER, DescribedToken

if TYPE_CHECKING:
    from headgate.config.security import ClientSecurity
    from headgate.gateway.connection.link import ListenerView

log = get_logger("headgate.gateway")

INTERVAL_S: Final = 1.0
"""A broker isn't asked more often; describing 10,000 tokens costs it some 10 ms."""
_FAILURES: Final = (HeadgateError, OSError, EOFError, TimeoutError)


class TokenOwners:
    """
    Owners of delegation tokens.

    Args:
        own: returns credentials and TLS of the gateway's own questions on a listener.
        spawn: starts a task that ends with the gateway.
        interval_s: between two questions to one broker.
    """

    def __init__(
        self,
        own: Callable[[str], Awaitable[tuple[ClientSecurity, Any]]],
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
        interval_s: float = INTERVAL_S,
    ) -> None:
        self._own = own
        self._spawn = spawn
        self._interval_s = interval_s
        self._owners: dict[str, tuple[str, int]] = {}
        self._next: dict[HostPort, asyncio.Task[None]] = {}
        self._asked_s: dict[HostPort, float] = {}
        self.failures = LogLimit("owners of delegation tokens can't be asked", 1)

    def owner_of(self, token_id: str) -> str | None:
        """Return the name of a token's owner, if it is known."""
        found = self._owners.get(token_id)
        return None if found is None else found[0]

    async def find(self, token_id: str, listener: ListenerView) -> None:
        """
        Find a token's owner, if the broker tells.

        Args:
            token_id: the user name that a client came with.
            listener: the one it came through.
        """
        where = listener.upstream
        if where is None or self.owner_of(token_id) is not None:
            return
        # A question that is under way may be older than the token: only the next one can name it.
        task = self._next.get(where)
        if task is None:
            task = self._next[where] = self._spawn(self._ask(where, listener))
        await asyncio.shield(task)

    def learn(self, tokens: Iterable[DescribedToken], now_ms: int) -> None:
        """
        Remember the owners in a broker's answer.

        Args:
            tokens: all that the broker let the gateway see.
            now_ms: epoch milliseconds; what has expired and wasn't named again is forgotten.
        """
        self._owners = {
            **{k: known for k, known in self._owners.items() if known[1] > now_ms},
            **{t.token_id: (t.owner_name, t.expires_ms) for t in tokens if t.owner_type == USER},
        }

    async def _ask(self, where: HostPort, listener: ListenerView) -> None:
        try:
            wait_s = self._asked_s.get(where, -self._interval_s) + self._interval_s
            await asyncio.sleep(max(0.0, wait_s - time.monotonic()))
        finally:
            del self._next[where]
        self._asked_s[where] = time.monotonic()
        try:
            tokens = await self._describe(where, listener)
        except _FAILURES as error:
            # Logged once a minute, however many clients come with made-up ids.
            problem = str(error) or type(error).__name__
            if self.failures.passes(where, problem, broker=str(where)):
                log.warning(
                    "owners of delegation tokens can't be asked",
                    listener=listener.name,
                    broker=str(where),
                    error=problem,
                )
        else:
            self.learn(tokens, now_ms())

    async def _describe(
        self, where: HostPort, listener: ListenerView
    ) -> tuple[DescribedToken, ...]:
        """Log in on the client's listener: brokers describe tokens only after a login."""
        security, tls = await self._own(listener.name)
        protocol = SecurityProtocol.SASL_PLAINTEXT
        if listener.upstream_tls is None:
            tls = None
        else:
            protocol = SecurityProtocol.SASL_SSL
            tls = tls or listener.upstream_tls
        timeout_ms = listener.settings.upstream_connect_timeout_ms
        connection = await up.connect(
            where, replace(security, security_protocol=protocol), tls, timeout_ms
        )
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await up.delegation_tokens(connection)
        finally:
            await connection.close()

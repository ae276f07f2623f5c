"""
Certificates: which one a client is shown, who is let in, and that nobody is sent away.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from simulation.certificates import ISSUED, serial_of
from simulation.laws import Law
from simulation.loop import NS_PER_MS
from simulation.peers import LEFT

if TYPE_CHECKING:
    from simulation.conversations import Conversation
    from simulation.life import Life
    from simulation.watch import View

UNTRUSTED: Final = "CERTIFICATE_VERIFY_FAILED"
TIMEOUT_NS: Final = 4_900 * NS_PER_MS
"""What a handshake may take (``headgate.handshake.timeout.ms``), less its way."""
READ_NS: Final = 500 * NS_PER_MS
"""How long a gateway that isn't held up may take to read its files after a SIGHUP."""


class Certificates(Law):
    """
    A client is shown the certificate that is in force when it comes.

    Who trusts its authority gets in, and nobody else is refused for it. A key store that can't be
    used puts nothing in force.
    """

    name = "certificates"

    def __init__(self, life: Life) -> None:
        super().__init__(life)
        self._in_force = [(0, life.certificate)]
        self._ended_ns = -1

    def certified(self, name: str) -> None:
        self._in_force.append((self.life.loop.now_ns, name))

    def _since(self, since_ns: int) -> set[str]:
        """Return what was in force at any time since then; a thread reads what is to be."""
        read_ns = since_ns - READ_NS
        before = [name for at_ns, name in self._in_force if at_ns <= read_ns]
        stood = since_ns < self.life.calm_ns + READ_NS  # what came meanwhile wasn't read yet
        possible = {*before[-2 if stood else -1 :]}
        return possible | {name for at_ns, name in self._in_force if at_ns > read_ns}

    def shaken(self, line: Conversation, error: str) -> None:
        possible = self._since(line.came_ns)
        who = self.life.whose(line.number)
        self.life.count(f"handshakes: {error or 'done'}")
        if not error:
            shown = line.certificate
            if shown not in map(serial_of, possible):
                self.broken(f"{who} was shown certificate {shown}, not one of {sorted(possible)}")
        elif error.startswith(LEFT):
            self._left(line, error)
        elif error != UNTRUSTED:
            self.broken(f"{who} was sent away in its handshake: {error}")
        elif all(ISSUED[name] in line.client.trusted for name in possible):
            self.broken(f"{who} trusts who issued {sorted(possible)} and was shown another one")

    def _left(self, line: Conversation, error: str) -> None:
        """The gateway has ended a connection within its handshake."""
        life, now_ns = self.life, self.life.loop.now_ns
        if not life.orderly or life.load_over or line.came_ns <= self._ended_ns:
            return
        if now_ns > life.calm_ns and now_ns - line.came_ns < TIMEOUT_NS:
            self.broken(f"{life.whose(line.number)} was left within its handshake ({error})")

    def crashed(self) -> None:
        self._ended_ns = self.life.loop.now_ns


class Kept(Law):
    """
    A client that says what clients say keeps its connection, as long as its broker is there.

    A reload closes none, and the end of another connection closes none either.
    """

    name = "kept"

    def left(self, view: View) -> None:
        life, line = self.life, self.life.line_of(view.number)
        if not life.orderly or life.load_over or line is None or not line.ready or line.broken:
            return
        if life.scarce:
            return  # what is too large is refused, and who holds most of what is scarce goes
        here, there = view.client_end, view.broker_end
        if here.ended or here.error is not None or here.peer.closed or there is None:
            return  # the client has left, or its broker was never reached
        if there.ended or there.error is not None or there.peer.closed:
            return
        self.broken(f"{life.whose(view.number)} lost its connection and for no reason")


__all__ = ["Certificates", "Kept"]

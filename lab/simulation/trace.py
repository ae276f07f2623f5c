"""
What the laws saw of one connection, line by line: `make simulate SEED=17 SIMULATE_ARGS=--trace`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from simulation.laws import Law, Row
from simulation.loop import NS_PER_MS

if TYPE_CHECKING:
    from simulation.conversations import Conversation, Sent
    from simulation.life import Life
    from simulation.watch import Asked, View

MOST = 60


class Trace(Law):
    """
    Not a law: it writes down what laws are told.

    Attributes:
        said: the number of a connection (0: of none), and a line.
    """

    name = "trace"

    def __init__(self, life: Life) -> None:
        super().__init__(life)
        self.said: list[tuple[int, str]] = []

    def lines(self, what: str) -> list[str]:
        """Return the last lines of the connection that a broken law names; of all, if none is."""
        numbers = {number for number, _ in self.said if f"({number})" in what}
        found = [line for number, line in self.said if not numbers or number in (0, *numbers)]
        return found[-MOST:]

    def _say(self, view: View | None, what: str) -> None:
        number = 0 if view is None else view.number
        whose = "" if view is None else self.life.whose(number)
        at_ms = self.life.loop.now_ns / NS_PER_MS
        self.said.append((number, f"{at_ms:13.3f} ms  {whose:<12} {what}"))

    def asking(self, view: View, asked: Asked) -> None:
        self._say(view, f"asks {asked.correlation}, API {asked.key}, {asked.size} bytes")

    def passing(self, view: View, asked: Asked) -> None:
        self._say(view, f"  {asked.correlation} begins to pass")

    def passed(self, view: View, asked: Asked) -> None:
        self._say(view, f"  {asked.correlation} has passed")

    def answer_begun(self, view: View, asked: Asked) -> None:
        self._say(view, f"  {asked.correlation} is answered, {asked.answer_bytes} bytes")

    def telling(self, view: View, asked: Asked, head: bytes, size: int) -> None:
        self._say(view, f"  {asked.correlation} is told, {size} bytes")

    def charged(self, row: Row) -> None:
        self._say(
            row.view,
            f"  {row.kind} {row.quota_type}{row.tags} {row.amount:g} of {row.bound:g} at "
            f"{row.t_ms % 10**9}: throttle {row.throttle_ms} ms, told {row.told_ms} ms",
        )

    def answered(self, line: Conversation, sent: Sent, data: bytes) -> None:
        view = self.life.watch.views.get(line.number)
        self._say(view, f"  {sent.correlation} is heard: {sent.told_ms} ms, error {sent.error}")

    def closed(self, view: View) -> None:
        self._say(view, "is closed")

    def crashed(self) -> None:
        self._say(None, "the gateway has ended")


def traced(story: Any) -> tuple[Any, list[str]]:
    """Live a story with a trace; return its outcome, and the last of what its law saw."""
    from simulation.life import Life

    life = Life(story)
    trace = Trace(life)
    life.laws.insert(0, trace)
    outcome = life.live()
    return outcome, trace.lines(outcome.broken[1])

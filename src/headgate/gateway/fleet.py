"""
The workers of one ``headgate serve`` as its supervisor sees them: their health and metrics in one.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable
from typing import Final

from headgate.gateway import worker
from headgate.gateway.pipe import LineLost, Pipe
from headgate.metrics.samples import Sample, in_table_order

ANSWER_S: Final = 2.0
"""A worker that is silent for longer counts as not there: Prometheus waits ten seconds."""
NOT_STARTED: Final = "not started yet"
STARTING: Final = "starting"


class Fleet:
    """
    One worker per broker, each at the end of a line.

    Args:
        brokers: whom the workers front.
        answer_s: the longest wait for a worker, seconds.
    """

    def __init__(self, brokers: Iterable[int], answer_s: float = ANSWER_S) -> None:
        self._answer_s = answer_s
        self._pipes: dict[int, Pipe] = {}
        self._away: dict[int, str] = dict.fromkeys(brokers, NOT_STARTED)

    @property
    def brokers(self) -> list[int]:
        """The brokers that have, or should have, a worker."""
        return sorted({*self._pipes, *self._away})

    async def start(self, broker: int, sock: socket.socket) -> None:
        """A worker was started, at the other end of a connected socket."""

        async def told(question: str, body: bytes) -> bytes:
            if question == worker.HELLO and self._pipes.get(broker) is pipe:
                self._away.pop(broker, None)
            return worker.NOTHING

        pipe = Pipe(told)
        self._away[broker] = STARTING
        self._pipes[broker] = pipe
        await pipe.open(sock)

    def left(self, broker: int, why: str) -> None:
        """A worker has ended, or its broker is to have one soon."""
        pipe = self._pipes.pop(broker, None)
        if pipe is not None:
            pipe.close()
        self._away[broker] = why

    async def health(self) -> str | None:
        """Say which workers don't live or don't answer, a line each; None: all do."""
        statuses = await self.statuses()
        return _lines({b: s for b, s in statuses.items() if isinstance(s, str)})

    async def ready(self) -> str | None:
        """Say which workers aren't ready and why, a line each; None: all are."""
        why: dict[int, str] = {}
        for broker, status in (await self.statuses()).items():
            if isinstance(status, str):
                why[broker] = status
            elif status.not_ready is not None:
                why[broker] = status.not_ready
        return _lines(why)

    async def note(self) -> str | None:
        """Say what workers serve without, a line each; None: nothing is missing."""
        statuses = await self.statuses()
        return _lines({b: s.note for b, s in statuses.items() if not isinstance(s, str) and s.note})

    async def samples(self) -> list[Sample]:
        """Return the series of every worker that answers, and which do."""
        found = await self.ask(worker.SAMPLES)
        samples = [
            sample
            for body in found.values()
            if body is not None
            for sample in worker.SAMPLES_DECODER.decode(body)
        ]
        for broker in self.brokers:
            up = found.get(broker) is not None
            samples.append(Sample("headgate_worker_up", (("broker", str(broker)),), float(up)))
        return in_table_order(samples)

    async def statuses(self) -> dict[int, worker.Status | str]:
        """Return how each broker's worker is, or why it can't be asked."""
        found = await self.ask(worker.STATUS)
        statuses: dict[int, worker.Status | str] = dict(self._away)
        for broker, body in found.items():
            if body is None:
                statuses[broker] = self._away.get(broker, "no answer")
            else:
                statuses[broker] = worker.STATUS_DECODER.decode(body)
        return statuses

    async def ask(
        self, question: str, bodies: dict[int, bytes] | None = None
    ) -> dict[int, bytes | None]:
        """
        Ask every worker at once.

        Args:
            question: of ``headgate.gateway.worker``.
            bodies: what goes with it, by broker; a broker left out isn't asked. None: nothing.

        Returns:
            Each one's answer; None where there is none in time.
        """
        asked = [b for b in self._pipes if b not in self._away and (bodies is None or b in bodies)]
        answers = await asyncio.gather(
            *(self._ask(b, question, (bodies or {}).get(b, worker.NOTHING)) for b in asked)
        )
        return dict(zip(asked, answers, strict=True))

    async def _ask(self, broker: int, question: str, body: bytes) -> bytes | None:
        try:
            return await self._pipes[broker].ask(question, body, self._answer_s)
        except LineLost:
            return None


def _lines(why: dict[int, str]) -> str | None:
    return "\n".join(f"broker {b}: {text}" for b, text in sorted(why.items())) or None

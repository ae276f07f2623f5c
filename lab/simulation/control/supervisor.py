"""A supervisor of simulated workers: it divides cluster-wide quotas over them, by the product."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import msgspec

from headgate.clock import now_ms
from headgate.gateway.splits.supervised import OBSERVE, SupervisedSplits
from simulation.loop import Process

if TYPE_CHECKING:
    from simulation.control.machines import Fleet, Run

PERIOD_MS: Final = 1_000
WAITS_S: Final = 2.0
"""How long it waits for answers."""


class Supervisor:
    """
    Asks workers over lines that take a while; who doesn't answer is left out.

    Args:
        fleet: each of whose machines runs the worker of one broker.
    """

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._rng = fleet.seed.stream("supervisor")
        self.process = Process(fleet.machines[0].host, "supervisor")
        self.process.spawn(SupervisedSplits(self._ask, PERIOD_MS, now_ms).run())

    async def _ask(self, question: str, decoder: Any, bodies: Any = None) -> dict[int, Any]:
        """See ``Fleet.ask``."""
        asked: dict[int, asyncio.Future[bytes]] = {}
        for broker, machine in enumerate(self._fleet.machines, 1):
            run = machine.past[-1] if machine.past else None
            if run is None or not run.started or (bodies is not None and broker not in bodies):
                continue
            asked[broker] = done = self._fleet.loop.create_future()
            body = b"" if bodies is None else bodies[broker]
            self._later(self._deliver, run, question, body, done)
        if asked:
            await asyncio.wait(asked.values(), timeout=WAITS_S)
        return {n: decoder.decode(done.result()) for n, done in asked.items() if done.done()}

    def _later(self, what: Any, *args: Any) -> None:
        self._fleet.loop.after(self._rng.uniform(0.1, 5.0), what, *args)

    def _deliver(self, run: Run, *question: Any) -> None:
        if run.alive:
            run.process.spawn(self._answer(run, *question))

    async def _answer(self, run: Run, question: str, body: bytes, done: Any) -> None:
        assert run.gateway is not None
        if question == OBSERVE:
            answer = await run.gateway.splits.observe()
        else:
            await run.gateway.splits.assign(body)
            answer = msgspec.msgpack.encode(None)
        self._later(self._answered, done, answer)

    @staticmethod
    def _answered(done: Any, answer: bytes) -> None:
        if not done.done():
            done.set_result(answer)

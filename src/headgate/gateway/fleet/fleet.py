"""
The workers of one ``headgate serve`` as its supervisor sees them: their health and metrics in one,
and whether one hangs.

A worker that hangs is told from one that is busy, and from a supervisor that was asleep itself. A
worker answers a heartbeat from its event loop, so a worker that answers is serving. Any answer
counts, also a late one: under load a heartbeat may take long, and only silence means that the
worker hangs. The silence is counted in steps of a fixed length, however long a step really took. So
time in which the supervisor, the machine or the container was suspended doesn't count.

A worker that is ending has a bound too, whether its loop still runs or not: the time for draining,
and then the time that it may be silent. After that it ends itself (``ExitGuard``). If even that
hangs, its supervisor kills it (``until_stuck``).
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, TypeVar

import msgspec

from headgate.gateway.fleet.pipe import (
    BEAT,
    HELLO,
    METRICS,
    METRICS_DECODER,
    NOTHING,
    SILENT,
    STATUS,
    STATUS_DECODER,
    LineLost,
    Pipe,
    Status,
)
from headgate.metrics.expose import Drawn, draw
from headgate.metrics.samples import Sample
from headgate.steps import finish

ANSWER_S: Final = 2.0
"""A worker that is silent for longer counts as not there."""
METRICS_S: Final = 8.0
"""How long a worker may draw its metrics beside its traffic: Prometheus waits ten seconds."""
NOT_STARTED: Final = "not started yet"
STARTING: Final = "starting"
REASONS: Final = ("ended", "hung")
"""Why a worker is started again."""

T = TypeVar("T")


class Fleet:
    """
    One worker per broker, each connected to the supervisor by a pipe.

    Args:
        brokers: those that the workers front.
        answer_s: the longest wait for a worker, seconds.
    """

    def __init__(self, brokers: Iterable[int], answer_s: float = ANSWER_S) -> None:
        self._answer_s = answer_s
        self._pipes: dict[int, Pipe] = {}
        self._away: dict[int, str] = dict.fromkeys(brokers, NOT_STARTED)
        self._lost: Counter[tuple[int, str]] = Counter()
        self._killed: Counter[tuple[int, str]] = Counter()

    @property
    def brokers(self) -> list[int]:
        """The brokers that have, or should have, a worker."""
        return sorted({*self._pipes, *self._away})

    async def start(self, broker: int, sock: socket.socket) -> None:
        """Take a worker that was started, at the other end of a connected socket."""

        async def told(question: str, body: bytes) -> bytes:
            if question == SILENT:
                return msgspec.msgpack.encode(await self.silent())
            if question == HELLO and self._pipes.get(broker) is pipe:
                self._away.pop(broker, None)
            return NOTHING

        pipe = Pipe(told)
        self._away[broker] = STARTING
        self._pipes[broker] = pipe
        await pipe.open(sock)

    async def until_stuck(
        self,
        broker: int,
        timeout_s: float,
        stopping: asyncio.Event,
        exit_s: float | Callable[[], float],
    ) -> str:
        """
        Wait until a worker has to be killed; cancelled when it ends.

        Args:
            broker: the worker's broker.
            timeout_s: how long it may stay silent.
            stopping: set when all were told to end.
            exit_s: how long it may take to end.

        Returns:
            Why, of ``KILLS``; it is counted.
        """
        why = await until_stuck(until_hung(self._pipes[broker], timeout_s), stopping, exit_s)
        self._killed[broker, why] += 1
        return why

    def lost(self, broker: int, reason: str) -> None:
        """Count that a worker is started again, and why (one of ``REASONS``)."""
        self._lost[broker, reason] += 1

    def left(self, broker: int, why: str) -> None:
        """Note that a worker has ended, or that its broker is to have one soon."""
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
        statuses = await self.statuses()
        # As in one process: brokers that don't answer are noted while another does.
        idle = all(not isinstance(status, str) and status.silent for status in statuses.values())
        for broker, status in statuses.items():
            if isinstance(status, str):
                why[broker] = status
            elif status.not_ready is not None:
                why[broker] = status.not_ready
            elif idle:
                why[broker] = "\n".join(status.silent.values())
        return _lines(why)

    async def silent(self) -> dict[int, str]:
        """Return why brokers don't answer, by id, as the workers that front them say."""
        found: dict[int, str] = {}
        for status in (await self.ask(STATUS, STATUS_DECODER)).values():
            found.update(status.silent)
        return found

    async def note(self) -> str | None:
        """Say what workers serve without, a line each; None: nothing is missing."""
        statuses = await self.statuses()
        return _lines({b: s.note for b, s in statuses.items() if not isinstance(s, str) and s.note})

    async def metrics(self) -> list[Drawn]:
        """Return what every worker that answers has drawn, and which do."""
        found = await self.ask(METRICS, METRICS_DECODER, answer_s=max(METRICS_S, self._answer_s))
        samples: list[Sample] = []
        for broker in self.brokers:
            at = (("broker", str(broker)),)
            samples.append(Sample("headgate_worker_up", at, float(broker in found)))
            for why in REASONS:
                count = float(self._lost[broker, why])
                labels = (*at, ("reason", why))
                samples.append(Sample("headgate_worker_restarts_total", labels, count))
            for why in KILLS:
                count = float(self._killed[broker, why])
                labels = (*at, ("reason", why))
                samples.append(Sample("headgate_worker_kills_total", labels, count))
        return [*found.values(), finish(draw(samples))]

    async def statuses(self) -> dict[int, Status | str]:
        """Return how each broker's worker is, or why it can't be asked."""
        asked = self._pipes.keys() - self._away.keys()
        found = await self.ask(STATUS, STATUS_DECODER)
        silent = dict.fromkeys(asked - found.keys(), "no answer")
        return {**silent, **found, **self._away}

    async def ask(
        self,
        question: str,
        decoder: msgspec.msgpack.Decoder[T],
        bodies: Mapping[int, bytes] | None = None,
        answer_s: float | None = None,
    ) -> dict[int, T]:
        """
        Ask every worker at once.

        Args:
            question: of ``headgate.gateway.fleet.pipe``.
            decoder: of the answer.
            bodies: what goes with it, by broker; a broker left out isn't asked. None: nothing.
            answer_s: the longest wait, seconds; None: the fleet's.

        Returns:
            The answers of those that gave one, in time and understood.
        """
        asked = [
            (broker, pipe)
            for broker, pipe in self._pipes.items()
            if broker not in self._away and (bodies is None or broker in bodies)
        ]
        answers = await asyncio.gather(
            *(
                self._ask(p, question, decoder, (bodies or {}).get(b, NOTHING), answer_s)
                for b, p in asked
            )
        )
        return {
            broker: answer[0]
            for (broker, _), answer in zip(asked, answers, strict=True)
            if answer is not None
        }

    async def _ask(
        self,
        pipe: Pipe,
        question: str,
        decoder: msgspec.msgpack.Decoder[T],
        body: bytes,
        answer_s: float | None,
    ) -> tuple[T] | None:
        try:
            return (decoder.decode(await pipe.ask(question, body, answer_s or self._answer_s)),)
        except (LineLost, msgspec.MsgspecError):
            return None  # gone, silent, or of another release that was installed meanwhile


def _lines(why: dict[int, str]) -> str | None:
    return "\n".join(f"broker {b}: {text}" for b, text in sorted(why.items())) or None


STEPS: Final = 10
"""Beats that must go unheard, one after the other."""
STARTING_S: Final = 120.0
"""How long a worker may take to say its first word: it loads its modules, and asks the store."""
HUNG: Final = "hung"
EXITING: Final = "exiting"
KILLS: Final = (HUNG, EXITING)
"""Why a worker is killed: it says nothing; it doesn't end."""


async def until_hung(
    pipe: Pipe,
    timeout_s: float,
    starting_s: float = STARTING_S,
    clock: Callable[[], float] = time.monotonic,
) -> bool:
    """
    Wait until the other side of a line hangs.

    Args:
        pipe: the line, open.
        timeout_s: how long a worker may say nothing, in seconds.
        starting_s: the same until its first word, if that is longer.
        clock: seconds, of a clock that is never set.

    Returns:
        True: it has said nothing for so long. False: the line has ended.
    """
    step = timeout_s / STEPS
    heard, silent = pipe.heard, 0.0
    while not pipe.closed.is_set():
        began = clock()
        with contextlib.suppress(LineLost):
            await pipe.ask(BEAT, NOTHING, step)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(began + step - clock(), 0.0)):
                await pipe.closed.wait()
        if pipe.heard != heard:
            heard, silent = pipe.heard, 0.0
            continue
        silent += min(clock() - began, step)
        # A hair less than all steps: they are sums of floats.
        if silent >= 0.999 * (timeout_s if heard else max(timeout_s, starting_s)):
            return True
    return False


async def until_stuck(
    silent: Awaitable[bool], stopping: asyncio.Event, exit_s: float | Callable[[], float]
) -> str:
    """
    Wait until a worker has to be killed; cancelled when its process ends.

    Args:
        silent: says True when the worker hangs, False when its line has ended (``until_hung``).
        stopping: set when all workers were told to end.
        exit_s: how long one may take to end, from then on or from the end of its line; seconds, or
            a function that is called at that time and returns them.

    Returns:
        Why, of ``KILLS``.
    """
    hung = asyncio.ensure_future(silent)
    told = asyncio.ensure_future(stopping.wait())
    try:
        await asyncio.wait((hung, told), return_when=asyncio.FIRST_COMPLETED)
        if not hung.done():
            await asyncio.wait((hung,), timeout=exit_s() if callable(exit_s) else exit_s)
            if not hung.done():
                return EXITING
        if hung.result():
            return HUNG
        await asyncio.sleep(exit_s() if callable(exit_s) else exit_s)
        return EXITING
    finally:
        hung.cancel()
        told.cancel()


class ExitGuard:
    """
    End this process if it was told to end and doesn't in time.

    A thread of its own watches: a loop that doesn't run any more, a thread that can't be joined or
    a store that never lets go is no hindrance.

    Args:
        end: ends the process; called on the guard's thread with the seconds that were allowed.
    """

    def __init__(self, end: Callable[[float], None]) -> None:
        self._end = end
        self._timer: threading.Timer | None = None

    def arm(self, limit_s: float) -> None:
        """
        The process was told to end; being told again gives it no more time.

        Args:
            limit_s: how long it may take, in seconds; 0: as long as it likes.
        """
        if self._timer is None and limit_s > 0:
            self._timer = threading.Timer(limit_s, self._end, (limit_s,))
            self._timer.daemon = True  # what it waits for is the process's end
            self._timer.start()

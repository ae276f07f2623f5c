"""
When each client could have sent, and when it did.

A charge's *pause* is the time from the first moment at which its client could have sent again
to the charge itself. A throttle begins with the charge. So a client with one request in flight
could send again when the throttle was over and the answer there; one with more in flight, when the
throttle was over. A client that has always something to send pauses for a round trip. One that
waits for its own data pauses for longer.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Final, NamedTuple

OVERHEAD_BYTES: Final = 120
"""What a request has besides records: a batch's header has 61 bytes, the rest are names."""


class Charge(NamedTuple):
    """
    One request's charge.

    Attributes:
        t_ms: when it was charged, epoch ms: a Produce when it passed, a fetch when it was answered.
        amount: bytes.
        throttle_ms: what its quota's manager decided, ms.
        told_ms: how long the client was muted from then on, ms: no less than ``throttle_ms``.
        connection: its name; connections of one client that follow each other count as one.
        client: whose it is.
        answered_ms: when it was answered, epoch ms; None: not known, or it isn't throttled.
    """

    t_ms: float
    amount: float
    throttle_ms: float
    told_ms: float
    connection: str
    client: str = ""
    answered_ms: float | None = None


class Answer(NamedTuple):
    """
    The answer to a request that was throttled.

    Attributes:
        charged_ms: when the request was charged, epoch ms, exactly as its charge has it.
        connection: its name.
        after_ms: how long after the charge it was answered, ms.
    """

    charged_ms: float
    connection: str
    after_ms: float


def with_answers(charges: Iterable[Charge], answers: Iterable[Answer]) -> list[Charge]:
    """
    Say when throttled requests were answered.

    Args:
        charges: of one quota-id, in order.
        answers: those that told what is left of a throttle of the quota-id, in order.
    """
    found = list(charges)
    due: dict[tuple[float, str], deque[int]] = defaultdict(deque)
    for at, charge in enumerate(found):
        if charge.throttle_ms > 0:
            due[charge.t_ms, charge.connection].append(at)
    for charged_ms, connection, after_ms in answers:
        waiting = due.get((charged_ms, connection))
        if waiting:
            at = waiting.popleft()
            # Less than 0: the clock was set back meanwhile.
            found[at] = found[at]._replace(answered_ms=charged_ms + max(after_ms, 0.0))
    return found


@dataclass(slots=True)
class ChargeSequence:
    """
    The charges of one connection, or of several of a client that followed each other.

    Attributes:
        times_ms: of the charges, from the first charge of the quota-id on.
        amounts: bytes.
        waits_ms: after each charge, until its throttle was over, and its answer there if the client
            had one request in flight.
        pauses_ms: before each charge; 0 before the first.
        throttle_ms: decided by the manager, summed.
        answer_ms: how long a broker took to answer what was throttled, of a client with one request
            in flight; else 0.
    """

    times_ms: list[float] = field(default_factory=list)
    amounts: list[float] = field(default_factory=list)
    waits_ms: list[float] = field(default_factory=list)
    pauses_ms: list[float] = field(default_factory=list)
    throttle_ms: float = 0.0
    answer_ms: float = 0.0

    @property
    def total(self) -> float:
        """Bytes charged."""
        return sum(self.amounts)

    @property
    def free_ms(self) -> float:
        """The first moment after the last charge at which the client could have sent again."""
        return self.times_ms[-1] + self.waits_ms[-1]


def lanes_of(charges: Iterable[Charge], *, gated: bool) -> list[ChargeSequence]:
    """
    Divide a quota-id's charges by connection, and work out the pauses.

    Args:
        charges: of one quota-id on one broker, ordered by time.
        gated: fetches, which wait for one gate that all connections of the quota-id share.
    """
    open_lanes: dict[str, ChargeSequence] = {}
    ended: dict[str, list[str]] = {}
    lanes: list[ChargeSequence] = []
    whole = list(charges)
    several = _several_in_flight(whole)
    answers: dict[int, list[float]] = defaultdict(list)
    last_of = {charge.connection: at for at, charge in enumerate(whole)}
    gate = start = whole[0].t_ms if whole else 0.0
    for at, charge in enumerate(whole):
        lane = open_lanes.get(charge.connection)
        if lane is None:
            free = ended.get(charge.client)
            lane = open_lanes.pop(free.pop()) if free else ChargeSequence()
            if not lane.times_ms:
                lanes.append(lane)
            open_lanes[charge.connection] = lane
        if lane.times_ms:
            ready = start + lane.free_ms
            lane.pauses_ms.append(max(charge.t_ms - max(ready, gate if gated else ready), 0.0))
        else:
            lane.pauses_ms.append(0.0)
        if gated and charge.throttle_ms > 0:
            gate = max(gate, charge.t_ms + charge.throttle_ms)
        lane.times_ms.append(charge.t_ms - start)
        lane.amounts.append(charge.amount)
        # Of a fetch the gate counts too: its client's next one waits for it.
        wait_ms = charge.told_ms
        if charge.answered_ms is not None and charge.connection not in several:
            answers[id(lane)].append(charge.answered_ms - charge.t_ms)
            wait_ms = max(wait_ms, answers[id(lane)][-1])
        lane.waits_ms.append(wait_ms)
        lane.throttle_ms += max(charge.throttle_ms, 0.0)
        if last_of[charge.connection] == at:
            ended.setdefault(charge.client, []).append(charge.connection)
    for lane in lanes:
        lane.answer_ms = median(answers[id(lane)]) if answers[id(lane)] else 0.0
    return lanes


def _several_in_flight(charges: Sequence[Charge]) -> set[str]:
    """Return the connections on which a request was charged before the one before was answered."""
    found: set[str] = set()
    last: dict[str, Charge] = {}
    for charge in charges:
        before = last.get(charge.connection)
        if before is not None and charge.t_ms < (before.answered_ms or 0.0):
            found.add(charge.connection)
        last[charge.connection] = charge
    return found


@dataclass(frozen=True, slots=True)
class Pace:
    """
    How fast a client sent over some of its charges.

    Attributes:
        requests: how many.
        amount: their bytes.
        ms: the pauses before them, summed.
    """

    requests: int
    amount: float
    ms: float

    @property
    def per_s(self) -> float:
        """Bytes per second of the time in which it could send."""
        return self.amount / max(self.ms, 0.5 * self.requests, 0.5) * 1000.0


def pace_of(lane: ChargeSequence, indices: Sequence[int]) -> Pace:
    """Return the pace over some of a lane's charges."""
    return Pace(
        len(indices),
        sum(lane.amounts[i] for i in indices),
        sum(lane.pauses_ms[i] for i in indices),
    )


def quantile(values: Sequence[float], share: float) -> float:
    """Return a quantile of values; 0 of none."""
    if not values:
        return 0.0
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]

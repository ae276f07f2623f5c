"""
A client that can be played, and which ones agree with a rhythm.

A model either has bytes that arrive at their own pace (*open*: an application that makes them, a
topic that grows) or always sends as soon as it may (*closed*). Where a rhythm agrees with several,
the extremes are kept beside the best one, so that what can't be known comes out as an interval.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Final

from headgate.demand.arrivals import Arrivals, caught_up, idle_limit, known, payload
from headgate.demand.rhythm import ChargeSequence, Pace, pace_of, quantile

SATURATED: Final = "saturated"
RATE_BOUND: Final = "rate-bound"
FIXED_WORK: Final = "fixed work"
UNKNOWN: Final = "unknown"

MUTED: Final = "always muted: it was never seen to send without a wait for long enough"
UNSTEADY: Final = "its pace before the first wait wasn't steady"
BRIEF: Final = "it was seen without a wait for less than two seconds"
WAITED: Final = "it was waiting when the observation ended"
SHORTLY: Final = "it had caught up only just before the observation ended"
FILLS: Final = "how much it puts into a request while it waits wasn't seen"
IN_FLIGHT: Final = 5
"""Requests that Kafka's producers have in flight at most (max.in.flight.requests.per.connection),
the bound of a client that was never seen at its own pace."""
_ENOUGH_MS: Final = 2_000.0
_ENOUGH_REQUESTS: Final = 10
_STEADY: Final = 0.1
_LEFT_OUT: Final = 6
"""Tenths of the time without a wait that may be left out as a client's start."""
_IDLE_SHARE: Final = 0.15
_MOSTLY: Final = 0.4
_MORE: Final = 1.15
_FASTER: Final = 3.0
_SAME: Final = 1.3
_ONE: Final = 1.05
_LONG_REST: Final = 0.3
_SHORT_REST_MS: Final = 500.0
_QUIET_MS: Final = 2_000.0
_ENOUGH_FULL: Final = 3
_ALIKE: Final = 0.3
_SMALL_COUNT: Final = 5
MOST_REQUEST_BYTES: Final = 1 << 20
"""What a producer fills a request up to, at most, and a consumer's fetch of a partition, where
they aren't told otherwise (max.request.size, max.partition.fetch.bytes)."""
_MOST_KEPT: Final = 2_000
"""Sizes and pauses that a model repeats."""


@dataclass(frozen=True, slots=True)
class Model:
    """
    A client that can be played.

    Attributes:
        sizes: bytes charged of its requests while it has more to send, in turn.
        after_wait_ms: its pauses after a wait, in turn.
        between_ms: its pauses after an answer without a wait, in turn.
        arrivals: bytes as they arrive; None: it always has more.
        usual: bytes of a request when no more have arrived.
        work: bytes charged after which a client that always sends has ended.
        start_ms: its first charge.
        ends: it is done once all is sent.
        catches_up: it is done once it has caught up with what arrives.
        answer_ms: a throttled request is answered so long after its charge, and the client waits
            for that; 0: it doesn't.
    """

    sizes: tuple[float, ...]
    after_wait_ms: tuple[float, ...]
    between_ms: tuple[float, ...]
    arrivals: Arrivals | None = None
    usual: float = 1.0
    work: float = inf
    start_ms: float = 0.0
    ends: bool = False
    catches_up: bool = False
    answer_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class ClientModel:
    """
    What a lane's rhythm tells.

    Attributes:
        kind: saturated, rate-bound, fixed work or unknown.
        best: the model that agrees best; None: none does better than the others.
        least, most: of the models that agree, those that send the least and the most.
        wanted: bytes per second that it would send without a limit; None: not known.
        wanted_least, wanted_most: between which it lies.
        reason: why it isn't known; "" where it is.
    """

    kind: str
    best: Model | None
    least: Model
    most: Model
    wanted: float | None
    wanted_least: float
    wanted_most: float
    reason: str = ""


@dataclass(frozen=True, slots=True)
class _ModelInput:
    """What both sorts of models are made from."""

    lane: ChargeSequence
    end_ms: float
    fresh: Pace
    steady: bool
    slope: float
    ended: bool
    waited: tuple[int, ...]

    @property
    def seen(self) -> float:
        """Bytes per second from the first charge to the last one or the end."""
        until = self.lane.times_ms[-1] if self.ended else self.end_ms
        return self.lane.total / max(until - self.lane.times_ms[0], 1.0) * 1000.0

    def closed(self, *, faster: float = 1.0) -> Model:
        """Return a client that always has more to send, with this rhythm's sizes and pauses."""
        lane = self.lane
        clear = [
            lane.pauses_ms[i] for i in range(1, len(lane.amounts)) if lane.waits_ms[i - 1] <= 0
        ]
        after = [lane.pauses_ms[i] for i in self.waited]
        return Model(
            tuple(lane.amounts[:_MOST_KEPT]),
            tuple(after[:_MOST_KEPT]) or tuple(clear[:_MOST_KEPT]) or (1.0,),
            tuple(p / faster for p in clear[:_MOST_KEPT]) or (1.0,),
            work=lane.total if self.ended else inf,
            start_ms=lane.times_ms[0],
            ends=self.ended,
            answer_ms=lane.answer_ms,
        )

    def open(self, arrivals: Arrivals, full: float, *, catches_up: bool = False) -> Model:
        """Return a client that sends what has arrived, in requests of ``full`` bytes at most."""
        lane = self.lane
        limit = idle_limit(lane)
        after = [min(lane.pauses_ms[i], limit) for i in self.waited]
        quick = min(quantile(after or lane.pauses_ms[1:], 0.25), limit)
        between = [min(pause, limit) for pause in lane.pauses_ms[1 : self.fresh.requests + 1]]
        unfilled = [a for a, wait in zip(lane.amounts, lane.waits_ms, strict=True) if wait <= 0]
        return Model(
            (full,),
            tuple(after[:_MOST_KEPT]) or (quick,),
            (tuple(between[:_MOST_KEPT]) if catches_up else ()) or (quick,),
            arrivals,
            max(quantile(unfilled, 0.5), 1.0),
            start_ms=lane.times_ms[0],
            ends=self.ended,
            catches_up=catches_up,
            answer_ms=lane.answer_ms,
        )

    def opens(
        self, arrivals: Arrivals, *, catches_up: bool = False
    ) -> tuple[Model | None, Model, Model]:
        """
        Return the best open client, and the extremes: how much it fills a request may be unknown.
        """
        lane = self.lane
        sizes = [lane.amounts[i] for i in self.waited]
        usual = quantile(sizes, 0.9)
        alike = sum(1 for size in sizes if 0.95 * usual <= size <= 1.05 * usual)
        # What came in during the longest waits would have filled larger requests than were sent.
        long_ms = max((lane.waits_ms[i - 1] for i in self.waited), default=0.0) / 2
        after = [lane.amounts[i] for i in self.waited if lane.waits_ms[i - 1] >= long_ms]
        fills = quantile(after, 0.9) >= self.seen / 1000.0 * long_ms / 2
        steady = alike >= max(_ENOUGH_FULL, _ALIKE * len(sizes))
        if steady or (len(after) >= _ENOUGH_FULL and not fills):
            best = self.open(arrivals, usual, catches_up=catches_up)
            return best, best, best
        largest = max(sizes, default=max(lane.amounts))
        return (
            None,
            self.open(arrivals, largest, catches_up=catches_up),
            self.open(arrivals, max(MOST_REQUEST_BYTES, largest), catches_up=catches_up),
        )


def read(lane: ChargeSequence, end_ms: float) -> ClientModel:
    """
    Say what a lane's rhythm tells about its client.

    Args:
        lane: its charges.
        end_ms: when the observation ends; a client that is quiet by then has ended.
    """
    count = len(lane.amounts)
    waited = tuple(i for i in range(1, count) if lane.waits_ms[i - 1] > 0)
    first_wait = next((i for i in range(count) if lane.waits_ms[i] > 0), count - 1)
    fresh = range(1, first_wait + 1)
    quiet = end_ms - lane.free_ms
    slope, steady = _slope(lane, first_wait)
    reading = _ModelInput(
        lane,
        end_ms,
        pace_of(lane, fresh),
        steady,
        slope,
        quiet > max(_QUIET_MS, 5 * quantile(lane.pauses_ms, 0.99)),
        waited,
    )
    if not any(wait > 0 for wait in lane.waits_ms):
        return _unheld(reading)
    if count < _SMALL_COUNT:
        return _unseen(
            reading, UNKNOWN, f"only {count} request{' was' if count == 1 else 's were'} seen"
        )
    met = caught_up(lane)
    # Its last requests may tell that it had nothing left, whatever its pace seemed to be before.
    if _catching_up(lane, caught_up(lane, by_pauses=False)) is not None:
        return _bursty(reading, met)
    rested = [i for i in met if i > first_wait]
    share = _share_rested(lane, rested)
    # A client that had a steady pace at first, and less since, has more to send: it only seems to
    # rest, where the machine is slow, or where the client works after an answer.
    wants_more = steady and slope >= _MORE * reading.seen and share < _MOSTLY
    if share >= _IDLE_SHARE and not wants_more:
        return _bursty(reading, met)
    # A client that works after an answer does so while it is muted. So its pace after a wait, and
    # after an answer without one, tells whether more had piled up.
    again = [i for i in range(first_wait + 1, count) if lane.waits_ms[i - 1] <= 0]
    busy = pace_of(lane, again if len(again) >= _SMALL_COUNT else waited)
    if steady and busy.per_s >= _FASTER * reading.fresh.per_s:
        return _driven(reading, first_wait)
    return _saturated(reading, pace_of(lane, again))


def _share_rested(lane: ChargeSequence, met: Sequence[int]) -> float:
    """Return the share of the time in which nothing was left to send."""
    covered = sum(lane.times_ms[i] - lane.times_ms[i - 1] for i in met if lane.waits_ms[i - 1] <= 0)
    limit = idle_limit(lane)
    idle = sum(p for i in met for p in lane.pauses_ms[i + 1 : i + 2] if p > limit)
    return (covered + idle) / max(lane.free_ms - lane.times_ms[0], 1.0)


def _slope(lane: ChargeSequence, until: int) -> tuple[float, bool]:
    """
    Return the bytes per second up to a charge, and whether they were steady.

    A client that starts may have some to send at once. So the beginning is left out, as much as it
    takes until the two halves of the rest agree.
    """
    start, end = lane.times_ms[0], lane.times_ms[until]
    sums = [0.0]
    for amount in lane.amounts[1 : until + 1]:
        sums.append(sums[-1] + payload(amount))

    def rate(begin: float, stop: float) -> float:
        first = bisect_left(lane.times_ms, begin, 0, until)
        last = bisect_left(lane.times_ms, stop, first, until)
        ms = lane.times_ms[last] - lane.times_ms[first]
        return (sums[last] - sums[first]) / max(ms, 1.0) * 1000.0

    for part in range(_LEFT_OUT + 1):
        begin = start + (end - start) * part / 10
        first = bisect_left(lane.times_ms, begin, 0, until)
        if end - begin < _ENOUGH_MS or until - first < _ENOUGH_REQUESTS:
            break
        early, late = rate(begin, (begin + end) / 2), rate((begin + end) / 2, end)
        if abs(early - late) <= _STEADY * (early + late) / 2:
            return rate(begin, end), True
    return 0.0, False


def _unheld(reading: _ModelInput) -> ClientModel:
    """Return a client that never waited: it was seen to send what it wanted."""
    times, totals = known(reading.lane, range(len(reading.lane.amounts)))
    best, least, most = reading.opens(Arrivals(times, totals))
    seen = reading.seen
    return ClientModel(RATE_BOUND, best, least, most, seen, seen, seen, "" if best else FILLS)


def _bursty(reading: _ModelInput, met: Sequence[int]) -> ClientModel:
    """Return a client that waited at times, and had nothing left to send at others."""
    lane = reading.lane
    caught = _catching_up(lane, met)
    catches_up = caught is not None
    if caught is not None:
        met = met[met.index(caught) :]
    times, totals = _behind(lane, met) if catches_up else known(lane, met)
    left = sum(payload(lane.amounts[i]) for i in range(met[-1] + 1, len(lane.amounts)))
    kind = FIXED_WORK if catches_up else RATE_BOUND
    charged = Arrivals(times, totals)
    if left > 0:
        # It was waiting at its last charge. At least what was charged by then had arrived.
        charged = Arrivals([*times, lane.times_ms[-1]], [*totals, totals[-1] + left])
    best, least, most = reading.opens(charged, catches_up=catches_up)
    if catches_up and left <= 0 and times[-1] - lane.times_ms[met[0]] <= _SHORT_REST_MS:
        # What it was done with may have been there at first, or have come evenly.
        came = Arrivals([0.0, times[-1]], [0.0, totals[-1]])
        return _of(kind, None, least, reading.opens(came, catches_up=True)[2], SHORTLY)
    if left <= 0 or reading.ended:
        return _of(kind, best, least, most)
    rest_ms = reading.end_ms - times[-1]
    if rest_ms > _LONG_REST * reading.end_ms:
        most, per_s = _fastest(reading)
        return ClientModel(kind, None, least, most, None, reading.seen, per_s, WAITED)
    more = max(left, 1.5 * totals[-1] / max(times[-1], 1.0) * rest_ms)
    arrived = Arrivals([*times, reading.end_ms], [*totals, totals[-1] + more])
    most = reading.opens(arrived, catches_up=catches_up)[2]
    return _of(kind, best, least, most, WAITED)


def _catching_up(lane: ChargeSequence, met: Sequence[int]) -> int | None:
    """Return the charge at which a client was done with work that had waited; None: never."""
    last_wait = max(i for i, wait in enumerate(lane.waits_ms) if wait > 0)
    caught = next((i for i in met if i > last_wait), None)
    if caught is None or _share_rested(lane, [i for i in met if i < caught]) > _IDLE_SHARE:
        return None
    waits = sum(1 for wait in lane.waits_ms if wait > 0)
    done = sum(payload(amount) for amount in lane.amounts[: caught + 1])
    enough = done >= 0.3 * sum(payload(amount) for amount in lane.amounts)
    return caught if waits >= 2 and enough else None


def _behind(lane: ChargeSequence, met: Sequence[int]) -> tuple[list[float], list[float]]:
    """Return the arrivals of a client that was done with what had waited at ``met``'s first."""
    times, totals = known(lane, met)
    caught_ms = lane.times_ms[met[0]]
    done = sum(payload(amount) for amount in lane.amounts[: met[0] + 1])
    later = [at for at in zip(times, totals, strict=True) if at[0] > caught_ms]
    # What comes at the later pace wasn't there at the start.
    rest_ms = times[-1] - caught_ms
    pace = (totals[-1] - done) / rest_ms if rest_ms > _SHORT_REST_MS else 0.0
    waiting = max(done - pace * caught_ms, 0.0)
    points = [(0.0, 0.0), (0.0, waiting), (caught_ms, done), *later]
    return [t_ms for t_ms, _ in points], [total for _, total in points]


def _driven(reading: _ModelInput, first_wait: int) -> ClientModel:
    """Return a client that has waited ever since it was first throttled, at a pace seen before."""
    lane = reading.lane
    begun = lane.times_ms[first_wait]
    times, totals = known(lane, range(first_wait + 1))
    total = sum(payload(a) for a in lane.amounts)
    seen_rest = total - totals[-1]
    rest_ms = reading.end_ms - begun

    def going_on(per_s: float) -> tuple[Model | None, Model, Model]:
        more = max(per_s * rest_ms / 1000.0, seen_rest)
        until = reading.end_ms
        if reading.ended:
            more = seen_rest
            until = begun + min(more / max(per_s, 1e-9) * 1000.0, lane.times_ms[-1] - begun)
        return reading.opens(Arrivals([*times, until], [*totals, totals[-1] + more]))

    pace = reading.slope
    best = going_on(pace)[0]
    least, most = going_on(0.98 * pace)[1], going_on(1.02 * pace)[2]
    return _of(RATE_BOUND, best, least, most, wanted=pace)


def _saturated(reading: _ModelInput, later: Pace) -> ClientModel:
    """
    Return a client that has always sent as soon as it might.

    Args:
        reading: its rhythm.
        later: its pace after answers without a wait, once it had been throttled.
    """
    kind = FIXED_WORK if reading.ended else SATURATED
    fresh = reading.fresh
    if reading.steady:
        paces = [fresh.per_s]
        if later.requests >= _ENOUGH_REQUESTS:
            paces.append(later.per_s)
        usual = Pace(
            fresh.requests + later.requests, fresh.amount + later.amount, fresh.ms + later.ms
        ).per_s
        least = reading.closed(faster=0.95 * min(paces) / usual)
        most = reading.closed(faster=1.05 * max(paces) / usual)
        if max(paces) > _SAME * min(paces):
            return _of(kind, None, least, most, UNSTEADY)
        return _of(kind, reading.closed(), least, most, wanted=usual)
    reason = BRIEF if 0 < fresh.ms < _ENOUGH_MS else UNSTEADY if fresh.requests else MUTED
    return _unseen(reading, kind, reason)


def _fastest(reading: _ModelInput) -> tuple[Model, float]:
    """Return a client with as much in flight as producers may have, and its bytes per second."""
    lane = reading.lane
    # The shortest that it took to send again.
    round_trip_ms = max(quantile(lane.pauses_ms[1:], 0.05), 0.5)
    quick = (round_trip_ms / IN_FLIGHT,)
    model = replace(reading.closed(), after_wait_ms=quick, between_ms=quick)
    return model, IN_FLIGHT * max(lane.amounts) / round_trip_ms * 1000.0


def _unseen(reading: _ModelInput, kind: str, reason: str) -> ClientModel:
    """Return a client of which only the least it wants is known, and the most it could send."""
    lane = reading.lane
    most, per_s = _fastest(reading)
    best = None
    if reading.ended:
        # All of its work was seen.
        slower = 1 / 3 if reading.fresh.requests >= _ENOUGH_REQUESTS else 1 / 10
        best, least = reading.closed(), reading.closed(faster=slower)
    else:
        times, totals = known(lane, range(len(lane.amounts)))
        least = reading.open(Arrivals(times, totals), max(lane.amounts))
    seen = reading.seen
    return ClientModel(kind, best, least, most, None, seen, max(per_s, seen), reason)


def _of(
    kind: str,
    best: Model | None,
    least: Model,
    most: Model,
    reason: str = "",
    *,
    wanted: float | None = None,
) -> ClientModel:
    """
    Return a client; what it wants is what arrives, unless it is given.

    Without a reason, the only thing that may be unknown is how much it fills a request.
    """

    def rate(model: Model) -> float:
        if model.arrivals is None:
            return sum(model.sizes) / max(sum(model.between_ms), 1.0) * 1000.0
        ms = max(model.arrivals.times_ms[-1] - model.start_ms, 1.0)
        return model.arrivals.total / ms * 1000.0

    low, high = rate(least), rate(most)
    if wanted is None and (best is not None or high <= _ONE * low):
        wanted = rate(best or least)
    if wanted is not None:
        low, high = min(low, wanted), max(high, wanted)
    return ClientModel(
        kind, best, least, most, wanted, low, high, reason or ("" if best else FILLS)
    )

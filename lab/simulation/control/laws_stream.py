"""
What gateways have in force of a cluster-wide quota that a stream divides over them.

Each broker has the split that its gateway has read last and that hasn't expired by its host's
clock, or else its equal part. The splits of one round never come to more than the quota. Rounds
reach gateways at different moments, so what two have in force may be of two rounds; it is never of
an older writer than the newest that was read, of none at all, or of another quota.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from simulation.control.laws import SPLIT_SLACK, Broken
from simulation.control.stream import Reading, Round, Stream

if TYPE_CHECKING:
    from simulation.control.machines import Fleet, Run

SETTLES_MS: Final = 400.0
"""How long what was read may take until it is in force."""
CHANGES_MS: Final = 500.0
"""How long a change of a quota may take until all that a gateway has follows it."""
LITTLE: Final = 1e-6


class Streamed:
    """
    What is in force is the newest round's, or the equal part.

    Args:
        fleet: of gateways.
        stream: that divides over them.
    """

    def __init__(self, fleet: Fleet, stream: Stream) -> None:
        self._fleet = fleet
        self._stream = stream
        self._fronted: dict[tuple[Any, int], float] = {}
        self._quotas: dict[Any, tuple[float, float]] = {}
        self.looks = 0
        self.whole = 0

    def sample(self) -> None:
        """Look at every broker that is fronted."""
        now = self._fleet.loop.now_ms
        totals: dict[Any, list[tuple[float, float, Round | None]]] = {}
        fronted: set[tuple[Any, int]] = set()
        for machine in self._fleet.machines:
            run = machine.past[-1] if machine.past else None
            if run is None or not run.serves or run.gateway is None:
                continue
            for number, broker in run.gateway.brokers.items():
                fronted.add((run, number))
                since = self._fronted.setdefault((run, number), now)
                manager = broker.rules.managers.produce_bps
                for tags in [tags for tags in manager._assigned if tags[0]]:
                    found = self._look(run, number, tags, manager, since)
                    if found is not None:
                        totals.setdefault(tags, []).append(found)
        self._fronted = {key: ms for key, ms in self._fronted.items() if key in fronted}
        for tags, its in totals.items():
            self._add_up(tags, its)

    def _look(
        self, run: Run, broker: int, tags: Any, manager: Any, since: float
    ) -> tuple[float, float, Round | None] | None:
        """Judge one broker's bound; return quota, bound and round if all of them are known."""
        now, quota = self._fleet.loop.now_ms, manager.quota(tags)
        before = self._quotas.get((run, broker, tags))
        if before is None or before[0] != quota:
            self._quotas[run, broker, tags] = (quota, now)
            return None
        if quota >= 1e18 or now - before[1] < CHANGES_MS:
            return None
        wall_ms = run.machine.host.wall_ns() // 1_000_000
        bound = manager.split(tags, wall_ms)
        equal = quota / self._fleet.shape.brokers
        self.looks += 1
        reading = self._stream.readings.get(run.process, Reading())
        possible = [
            one
            for one in _newest(reading, (broker, tags), now)
            if one.until_ms >= wall_ms - SETTLES_MS
        ]
        shares = [one.splits[broker, tags] / one.quotas[tags] for one in possible]
        if abs(bound - equal) > LITTLE * quota and not any(
            abs(bound - share * quota) <= LITTLE * quota for share in shares
        ):
            raise Broken(
                f"streamed splits: {run.machine.name} has {bound:g} of {quota:g} in force for "
                f"{tags} at broker {broker}; equal parts are {equal:g}, splits read "
                f"last {[round(share * quota, 3) for share in shares[-3:]]}"
            )
        last = reading.rounds[-1] if reading.rounds else None
        if last is None or now - last[0] < SETTLES_MS or since > last[0] - SETTLES_MS:
            return None
        return quota, bound, last[2]

    def _add_up(self, tags: Any, its: list[tuple[float, float, Round | None]]) -> None:
        """Where all have read the same round, together they have no more than the quota."""
        if len(its) != self._fleet.shape.brokers:
            return
        quotas, bounds, rounds = zip(*its, strict=True)
        if len({id(one) for one in rounds}) > 1 or min(quotas) != max(quotas):
            return
        self.whole += 1
        if sum(bounds) > quotas[0] * SPLIT_SLACK:
            raise Broken(f"streamed splits of {tags} come to {sum(bounds):g}, quota {quotas[0]:g}")


def _newest(reading: Reading, which: Any, now: float) -> list[Round]:
    """Return the round that has to be in force, and those that may be: they were just read."""
    epoch = 0
    found: list[Round] = []
    for at_ms, wall_ms, one in reading.rounds:
        epoch = max(epoch, one.epoch)
        if one.epoch < epoch or which not in one.splits or one.until_ms <= wall_ms:
            continue  # what has expired when it comes changes nothing
        if now - at_ms > SETTLES_MS and one.until_ms > wall_ms + SETTLES_MS:
            found.clear()
        found.append(one)
    return found


__all__ = ["Streamed"]

"""
Real clients at a quota, predicted from the gateway's journal for other quotas, then run there.

The whole matrix is bench/pipeline/predict.py; this is a small form with its bounds.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import pytest

from headgate.demand.forecast import forecast, infer
from headgate.demand.rhythm import Charge
from headgate.gateway import GatewayThread
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import CONSUMER, PRODUCER
from kit import driven_clients as driven

from .gateway_kit import make_gateway, set_quota, topic, wait_for

__all__ = ["make_gateway"]
pytestmark = [pytest.mark.kafka4, pytest.mark.alone, pytest.mark.slow]
Make = Callable[..., GatewayThread]
A = 100_000.0
SECONDS = 24.0
LEVELS = {"A": A, "half": A / 2, "double": 2 * A}
FETCH, PRODUCE = "consumer_byte_rate", "producer_byte_rate"


class Case(NamedTuple):
    """How a client is started, what it is charged to, whether it ends."""

    start: Callable[[str, str, str], Any]
    quota_type: str = PRODUCE
    ends: bool = False


CASES = {
    "one": Case(lambda s, c, t: driven.one_at_a_time(s, c, t, 8_000, 0.02)),
    "twice": Case(lambda s, c, t: driven.paced(s, c, t, 2 * A)),
    "job": Case(lambda s, c, t: driven.job(s, c, t, int(16 * A)), ends=True),
    "reads": Case(driven.reader, FETCH),
}


def run_all(gateway: GatewayThread, unique: Callable[[str], str]) -> dict[tuple[str, str], str]:
    """Run every case at every level at once; return their client-ids."""
    servers = gateway.bootstrap("PLAINTEXT")
    clients, topics = {}, {}
    for case, of in CASES.items():
        for level, bound in LEVELS.items():
            clients[case, level] = unique(case)
            topics[case, level] = topic(servers, unique(f"predicted-{case}"), 1)
            entity = QuotaEntity.of(client_id=clients[case, level])
            set_quota(gateway, entity, {PRODUCER: bound, CONSUMER: bound})
            if of.quota_type == FETCH:
                fill = driven.job(servers, "fill", topics[case, level], int(14 * A))
                wait_for(lambda fill=fill: not fill.running, "records to read")
    running = {at: CASES[at[0]].start(servers, clients[at], topics[at]) for at in clients}
    time.sleep(SECONDS + 2)
    jobs = [running[at] for at in running if CASES[at[0]].ends]
    wait_for(lambda: not any(job.running for job in jobs), "jobs to end", 2 * SECONDS)
    for load in running.values():
        load.stop()
    return clients


def until(charges: list[Charge], ends: bool) -> list[Charge]:
    return [c for c in charges if ends or c.t_ms <= charges[0].t_ms + SECONDS * 1000]


def test_predictions_hold_when_real_clients_run(
    make_gateway: Make, unique: Callable[[str], str], tmp_path: Path
) -> None:
    gateway = make_gateway(headgate__usage=f"files:{tmp_path / 'usage'}")
    clients = run_all(gateway, unique)
    gateway.stop(0)
    by_type = {t: driven.charges_of(tmp_path / "usage", t) for t in (PRODUCE, FETCH)}
    errors, outside = [], []
    for case, of in CASES.items():
        charges = by_type[of.quota_type]
        gated = of.quota_type == FETCH
        first = until(charges[clients[case, "A"]], of.ends)
        end_ms = first[0].t_ms + (3 if of.ends else 1) * SECONDS * 1000
        demand = infer(first, end_ms, gated=gated)
        for level in ("half", "double"):
            then = until(charges[clients[case, level]], of.ends)
            span = then[-1].t_ms - then[0].t_ms if of.ends else SECONDS * 1000
            rate = sum(c.amount for c in then) / span * 1000
            said = forecast(demand, LEVELS[level], gated=gated)
            if not said.rate.least <= rate <= said.rate.most:
                outside.append((case, level, rate, said))
            if said.rate.figure is not None:
                errors.append(abs(said.rate.figure - rate) / rate)
            elif not said.reason:
                outside.append((case, level, rate, said))
    assert len(outside) <= 1, outside
    assert len(errors) >= 4
    assert median(errors) <= 0.08

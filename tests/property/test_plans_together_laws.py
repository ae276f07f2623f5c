"""Plans side by side: together they give what each gives alone, to the millisecond."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.pipeline.answers.what_if import options_of
from headgate.pipeline.quotas import Quotas
from headgate.pipeline.schema import REQUESTS
from headgate.quota.entity import DEFAULT, QuotaEntity
from headgate.quota.file import QuotaEvent
from headgate.quota.key import CONSUMER, PRODUCER, PRODUCER_BPS, PRODUCER_SHARES, QuotaKey
from headgate.quota.table import QuotaTable
from kit.replays import WORLDS, overlapping, replayed, small

P, C = "producer_byte_rate", "consumer_byte_rate"
CAPACITY = {P: 9000.0}
# Every level, names and defaults, and names that nobody has.
ENTITIES = [
    QuotaEntity.of(user=user, client_id=client)
    for user in ("hot", DEFAULT, None)
    for client in ("a", DEFAULT, None)
    if user is not None or client is not None
]
LIMITS = (90.0, 700.0, 1e9)


def traffic(rng: random.Random, n: int, hot: float) -> list[dict[str, Any]]:
    """Return charges on two brokers, many at the same moment; some without a name."""
    at, rows = 1_000_000, []
    for seq in range(n):
        at += rng.choice([0, 0, 0, 1, 7, 80, 900, 13_000])
        amount = rng.choice([rng.randrange(1, 3000), 70_000])
        kind = P if rng.random() < 0.8 else C
        row = dict.fromkeys(REQUESTS.names) | {
            "record_ms": float(at),
            "broker_id": rng.choice([1, 1, 2]),
            "principal": "hot" if rng.random() < hot else rng.choice(["bob", "carol", ""]),
            "client_id": rng.choice(["a", "b", "c", "", None]),
            "bytes_charged": amount,
            "bytes_exact": True,
            "throttle_time_ms": rng.choice([0, 0, 5]),
            "quota_type": kind,
            "amount": float(amount),
            "is_charged": True,
            "is_request": True,
            "source": "log",
            "seq": seq,
            "file": f"f{seq % 3}",
        }
        rows.append(row)
    return rows


Key = st.sampled_from([PRODUCER, PRODUCER, PRODUCER, CONSUMER, PRODUCER_BPS, PRODUCER_SHARES])
Setting = st.tuples(st.sampled_from(ENTITIES), Key, st.sampled_from(LIMITS))


def _table(settings: Sequence[tuple[QuotaEntity, QuotaKey, float]], static: bool) -> QuotaTable:
    entities: dict[QuotaEntity, dict[QuotaKey, float]] = {}
    for entity, key, value in settings:
        entities.setdefault(entity, {})[key] = value
    return QuotaTable.of(entities, static_defaults={PRODUCER: 50.0} if static else {})


@st.composite
def plans(draw: st.DrawFn) -> list[Quotas]:
    """Return plans that agree, or disagree a little or a lot; some change in time."""
    made: list[Quotas] = []
    for n in range(draw(st.integers(2, 5))):
        table = _table(draw(st.lists(Setting, max_size=4)), draw(st.integers(0, 5)) == 0)
        changes = [
            QuotaEvent(1_000_000 + at, entity, key, value)
            for at, (entity, key, value) in draw(
                st.lists(st.tuples(st.sampled_from([50, 3000, 60_000]), Setting), max_size=2)
            )
        ]
        made.append(Quotas.with_history(table, changes, f"plan-{n}"))
    return made


def sums(
    pieces: list[list[dict[str, Any]]], tried: list[Quotas], rows_per_batch: int
) -> dict[tuple[Any, ...], list[Any]]:
    """Return what each plan gives, by its number, sensor and who, as what-if brings it together."""
    options = options_of(tried, capacities=CAPACITY, split_period_ms=1000)
    out: dict[tuple[Any, ...], list[Any]] = {}
    names = ("plan", "quota_type", "quota_user", "quota_client_id", "broker_id")
    for row in replayed(pieces, options, rows_per_batch):
        key = tuple(row[n] for n in (*names, "principal", "client_id"))
        mine = out.setdefault(key, [0, 0, 0, 0, 0.0, 0, float("inf"), 0])
        measures = ("requests", "bytes", "throttled_requests", "throttle_time_ms", "delayed")
        for i, name in enumerate(measures):
            mine[i] += row[name]
        mine[5] = max(mine[5], row["max_throttle_time_ms"])
        mine[6] = min(mine[6], row["first_ms"])
        mine[7] = max(mine[7], row["last_ms"])
    return out


# An example replays up to five plans, alone and together: each costs as much as ten of others.
@settings(max_examples=settings().max_examples // 5)
@given(world=WORLDS, tried=plans())
def test_plans_together_give_what_each_gives_alone(
    world: dict[str, Any], tried: list[Quotas]
) -> None:
    rng = random.Random(world["seed"])
    pieces = overlapping(rng, traffic(rng, 150, world["hot"]))
    with small(world["gathered"], world["ordered"]):
        together = sums(pieces, tried, world["rows_per_batch"])
        for number, plan in enumerate(tried):
            alone = sums(pieces, [plan], world["rows_per_batch"])
            of_plan = {(0, *key[1:]): v for key, v in together.items() if key[0] == number}
            if number == 0:
                of_plan |= {key: v for key, v in together.items() if key[0] < 0}
            else:
                alone = {key: v for key, v in alone.items() if key[0] >= 0}
            assert of_plan == alone

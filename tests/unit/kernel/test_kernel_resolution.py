"""Resolution over arrays equals the managers' own."""

from __future__ import annotations

import random

import numpy as np
import pytest

from headgate.kernel import compile_quotas, replay_rate, resolve_codes, resolve_pairs
from headgate.kernel.rate import RateState
from headgate.quota.entity import DEFAULT, EntityName, QuotaEntity
from headgate.quota.key import PRODUCER, PRODUCER_IDS
from headgate.quota.precedence import resolve
from headgate.quota.table import QuotaTable
from headgate.throttle.java import UNLIMITED

NAMES: list[EntityName | None] = [None, DEFAULT, "a", "b", "<default>"]
ENTITIES = [QuotaEntity.of(user=u, client_id=c) for u in NAMES for c in NAMES if u or c]
REQUESTS = ["a", "b", "<default>", "z", ""]


@pytest.mark.parametrize("seed", range(60))
def test_every_request_resolves_as_one_by_one(seed: int) -> None:
    rnd = random.Random(seed)
    quotas = rnd.sample(ENTITIES, rnd.randrange(len(ENTITIES)))
    if seed % 3 == 0:
        quotas = [e for e in quotas if e.shape == rnd.choice(("user", "client-id"))]
    static = {PRODUCER: 77.0} if seed % 4 == 0 else {}
    table = QuotaTable.of(
        {e: {PRODUCER: float(i + 1)} for i, e in enumerate(quotas)}, static_defaults=static
    )
    pairs = [(u, c) for u in REQUESTS for c in REQUESTS]
    rnd.shuffle(pairs)
    compiled = compile_quotas(table, PRODUCER, REQUESTS, REQUESTS)
    tag_user, tag_client, bound = resolve_codes(
        compiled,
        [REQUESTS.index(u) for u, _ in pairs],
        [REQUESTS.index(c) for _, c in pairs],
    )
    together = resolve_pairs(table, PRODUCER, pairs)
    for i, (user, client) in enumerate(pairs):
        told = resolve(table, user, client, PRODUCER)
        tags = (
            REQUESTS[tag_user[i]] if tag_user[i] >= 0 else "",
            REQUESTS[tag_client[i]] if tag_client[i] >= 0 else "",
        )
        limit = UNLIMITED if told.value is None else told.value
        assert (tags, bound[i]) == (told.tags, limit)
        assert together.tags[together.key[i]] == told.tags
        assert together.bound[i] == together.bound_per_key[together.key[i]] == limit


def test_resolved_pairs_feed_the_replay() -> None:
    table = QuotaTable.of(
        {
            QuotaEntity.of(user="alice"): {PRODUCER: 1000.0},
            QuotaEntity.of(client_id=DEFAULT): {PRODUCER: 500.0},
        }
    )
    resolved = resolve_pairs(table, PRODUCER, [("alice", "x"), ("alice", "y"), ("bob", "x")])
    assert resolved.tags == [("alice", ""), ("", "x")]
    pair = np.array([0, 1, 2])
    throttle = replay_rate(
        RateState(2),
        resolved.key[pair],
        [1_700_000_000_000] * 3,
        [10_000, 10_000, 10_000],
        bound_per_key=resolved.bound_per_key,
    )
    assert throttle.tolist() == [0, 10_000, 10_000]


def test_flags_that_stick_are_given() -> None:
    compiled = compile_quotas(QuotaTable.of({}), PRODUCER, ["u"], ["c"], flags=2)
    tag_user, tag_client, bound = resolve_codes(compiled, [0], [0])
    assert (tag_user[0], tag_client[0], bound[0]) == (0, -1, UNLIMITED)


def test_936_5_producer_ids_resolve_by_user_alone() -> None:
    table = QuotaTable.of({QuotaEntity.of(user=DEFAULT): {PRODUCER_IDS: 5.0}})
    resolved = resolve_pairs(table, PRODUCER_IDS, [("u", "c"), ("u", "d")])
    assert (resolved.tags, resolved.bound.tolist()) == ([("u", "")], [5.0, 5.0])

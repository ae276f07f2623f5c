"""Clients of a gateway's broker that do everything that is charged, and the journal of it."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pyarrow as pa

from headgate.config.settings import Settings
from headgate.errors import ApiError
from headgate.gateway.charging.enforcement import Enforcement
from headgate.gateway.charging.plans import build_plans
from headgate.gateway.session.session import Session
from headgate.gateway.usage_journal import UsageJournal
from headgate.quota.entity import DEFAULT, QuotaEntity
from headgate.quota.key import (
    CONSUMER,
    MUTATION,
    PRODUCER,
    PRODUCER_BPS,
    PRODUCER_IDS,
    PRODUCER_SHARES,
    REQUEST,
)
from headgate.quota.table import QuotaTable, table_delta
from headgate.usage.files import file_name
from headgate.usage.rows import batch_of

T0 = 1_700_000_000_000
ALICE, ALL = QuotaEntity.of(user="alice"), QuotaEntity.of(user=DEFAULT)
TABLES = [
    {
        ALICE: {PRODUCER: 40_000.0, CONSUMER: 60_000.0, MUTATION: 0.4, PRODUCER_IDS: 0.3},
        ALL: {PRODUCER_BPS: 30_000.0, PRODUCER_SHARES: 2.0, REQUEST: 0.8},
    },
    {
        ALL: {PRODUCER: 15_000.0, CONSUMER: 9_000.0, MUTATION: 0.1, PRODUCER_BPS: 12_000.0},
        ALICE: {PRODUCER_IDS: 1.0, PRODUCER_SHARES: 1.0, REQUEST: 0.3},
    },
    {ALICE: {PRODUCER: 20_000.0}},
]


class Kept:
    """A writer that keeps what it's given."""

    def __init__(self) -> None:
        self.events: list[tuple[Any, ...]] = []

    def start(self) -> None:
        return None

    def append(self, event: tuple[Any, ...]) -> None:
        self.events.append(event)


class Asked(NamedTuple):
    """A throttled request that isn't answered: what decided, how long, and its charge's time."""

    context: Any
    plan: Any
    why: Any
    throttle_ms: int
    at_ms: int


class Talk:
    """Clients of one broker that do everything that is charged, while quotas and splits change."""

    def __init__(self, pacing: str, seed: int) -> None:
        self.rng = random.Random(seed)
        self.kept = Kept()
        self.settings = Settings.from_properties(
            {
                "headgate.upstream": "127.0.0.1:9092",
                "headgate.broker.id.min": "1",
                "headgate.broker.id.max": "1",
                "headgate.pacing": pacing,
                "headgate.pacing.burst.overrides": "users/alice:3,users/<default>:0.2",
                "headgate.capacity.producer_byte_rate": "30000",
                "quota.window.num": "4",
                "controller.quota.window.num": "5",
                "producer.id.quota.window.num": "3",
            }
        )
        self.plans = build_plans()
        self.now = T0
        self.begin()

    def begin(self) -> None:
        """Start the gateway again: managers are empty."""
        journal = UsageJournal(self.kept, 4, 1000)  # type: ignore[arg-type]
        self.unanswered: list[tuple[int, Asked]] = []  # throttled ones, and when they are answered
        self.rules = Enforcement(self.settings, 1, lambda: self.now, journal)
        self.table = QuotaTable.of(TABLES[0], version=1)
        self.rules.load(self.table, self.now)
        who: Any = SimpleNamespace(principal="", authenticated=True)
        nobody: Any = None
        self.session = Session(
            self.rules,
            who,
            self.plans,
            nobody,
            listener="L",
            client_ip="10.0.0.9",
            connection="c-1",
        )

    def turn(self) -> None:
        rng, rules = self.rng, self.rules
        self.now += rng.choice([0, 0, 1, 8, 45, 300]) - (20 if rng.random() < 0.01 else 0)
        self.answer()
        dice = rng.random()
        if dice < 0.01:
            after = QuotaTable.of(rng.choice(TABLES), version=self.table.version + 1)
            rules.update(table_delta(self.table, after), self.now)
            self.table = after
        elif dice < 0.06:
            rules.managers.produce_shares.rebalance(self.now)
        elif dice < 0.10:
            manager = rules.managers.produce_bps
            pieces = {tags: rng.choice([500.0, 7e3, 3e4]) for tags in manager.observe(self.now)}
            manager.assign(pieces, self.now, self.now + rng.choice([40, 5000]))
        context = rules.context(rng.choice(["alice", "b@b"]), rng.choice("xy"))
        self.session.spent_ns = rng.randrange(6_000_000)
        what = rng.random()
        if what < 0.45:
            ids = frozenset(rng.sample(range(400), rng.randrange(3)))
            size = rng.randrange(60, 9000)
            plan = self.plans[0 << 16 | 9]
            ours = rules.produce(self.session, context, plan, size, ids, True, self.now)
            self.ask(context, plan, ours, size)
        elif what < 0.75:
            size = rng.randrange(60, 9000)
            plan = self.plans[1 << 16 | 11]
            ours = rules.fetch(self.session, context, plan, 90, size, self.now)
            self.ask(context, plan, ours, 0)
            self.answer()  # a fetch is charged when it is answered
            if rng.random() < 0.1:  # a hold charges nobody, and changes no decision
                rules.held(self.session, context, self.plans[1 << 16 | 11], 700, self.now)
            if rng.random() < 0.1:
                rules.unfetch(self.session, context, self.plans[1 << 16 | 11], size, self.now)
        elif what < 0.9:
            self.topics(context, self.plans[19 << 16 | rng.choice([5, 7])])
        else:
            plan = self.plans[12 << 16 | 3]
            self.ask(context, plan, rules.request(self.session, context, plan, 60, self.now), 2)
            rules.network_time(self.session, context, rng.randrange(9_000_000), self.now)

    def ask(self, context: Any, plan: Any, throttle_ms: int, answer_ms: int) -> None:
        """Note that a request was charged just now, and is answered that many ms later."""
        if throttle_ms:
            asked = Asked(context, plan, self.session.told, throttle_ms, self.now)
            self.unanswered.append((self.now + answer_ms, asked))

    def answer(self) -> None:
        """Tell what is left of the throttles of requests whose answers are due."""
        late = []
        for due_ms, asked in self.unanswered:
            if due_ms > self.now:
                late.append((due_ms, asked))
                continue
            since_ms = self.now - asked.at_ms
            left_ms = max(min(asked.throttle_ms, asked.throttle_ms - since_ms), 0)
            self.rules.tell(
                self.session, asked.context, asked.plan, asked.why, left_ms, 0, since_ms, self.now
            )
        self.unanswered = late

    def topics(self, context: Any, plan: Any) -> None:
        rules = self.rules
        if not rules.counts_mutations:
            return
        quota = rules.mutations.quota(context, plan, self.now)
        size: int | None = 500
        for _ in range(self.rng.randrange(1, 4)):
            count = self.rng.randrange(1, 6)
            try:
                quota.record(count, self.now)
            except ApiError:
                self.rng.random()
            rules.mutations.charged(self.session, context, plan, count, quota, size, self.now)
            size = None
        self.now += self.rng.choice([0, 3, 40])
        ours = rules.mutation(self.session, context, plan, 500, quota, self.now)
        if ours:
            rules.tell(self.session, context, plan, self.session.told, ours, 0, 0, self.now)
        if self.rng.random() < 0.2:
            rules.mutations.give_back(self.session, context, plan, 2)


def write_talk(folder: Path, talk: Talk, turns: int, cuts: tuple[int, ...], again: int) -> None:
    """
    Let a talk take its turns, and write its journal.

    Args:
        folder: gets the journal's files.
        talk: the talk.
        turns: how many turns it takes.
        cuts: turns at which a new file begins.
        again: the turn at which the gateway starts again; one of ``cuts``.
    """
    places = [0]
    for number in range(turns):
        if number in cuts:
            places.append(len(talk.kept.events))
        if number == again:
            talk.now += 4_000_000
            talk.begin()
        talk.turn()
    places.append(len(talk.kept.events))
    for a, b in pairwise(places):
        batch = batch_of(talk.kept.events[a:b], "w-1", a + 1)
        path = folder / file_name("w-1", a + 1, ".arrow")
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
            writer.write_batch(batch)

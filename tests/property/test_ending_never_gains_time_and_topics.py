"""
Ending a connection never gains thread time or partitions, whatever clients do, in any order.

The check doesn't use the gateway's lanes. For time, and for topics that are only throttled, it is
that of produced bytes: at no time may more charges be in their throttle than connections were open
at once. And no request is passed on whose time isn't charged.

Topics that the broker got are added up besides: over any time T at most the quota of T and of a
bucket, and for each connection, and one more, the largest request. By a permissive quota (versions
that don't know error 89) every connection may owe one request: it waits until all that was owed
when it was charged is repaid. A strict quota charges one topic more than the bucket holds.

Kafka's own way: a strict quota answers THROTTLING_QUOTA_EXCEEDED, charges nothing, and mutes for
what others owe. Such a mute leaves no debt here. A client that hangs up instead of waiting is
refused again, until the bucket is repaid; had it not asked, it wouldn't have been muted either.

Clients have one request in flight. Those that send more at once are given leave by an estimate of
their time (``headroom``), and what one connection may overrun it by, one that stays may too.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from hypothesis import given, note
from hypothesis import strategies as st

from headgate.gateway.charging.journal import Journal
from headgate.quota.entity import DEFAULT, QuotaEntity
from headgate.quota.key import MUTATION, REQUEST
from headgate.throttle.registry import Throttle
from headgate.wire.apis import CREATE_TOPICS
from kit.simulated_admins import PERMISSIVE, STRICT, Admin
from kit.simulated_clients import World

PERCENT = 10.0
RATE = 10.0
BUCKET_S = 11.0
LARGEST = 600
LEVELS = (
    QuotaEntity.of(user="alice"),
    QuotaEntity.of(user="alice", client_id="app"),
    QuotaEntity.of(user=DEFAULT),
    QuotaEntity.of(client_id="app"),
    QuotaEntity.of(client_id=DEFAULT),
)


class Changed:
    """A request for topics, as it was charged: by topic, at one time or over a while."""

    def __init__(self, t_ms: int, strict: bool) -> None:
        self.t_ms, self.until_ms = t_ms, t_ms
        self.strict = strict
        self.passes = False
        self.decision: Throttle | None = None


class Written(Journal):
    """Charges as they were written down."""

    def __init__(self) -> None:
        self.times: list[tuple[str, str, int, Throttle]] = []
        """Principal, client-id, epoch ms, decision."""
        self.changed: dict[Any, list[Changed]] = defaultdict(list)
        """By connection; those that were refused as a whole are left out in the end."""

    def record(
        self,
        client: Any,
        context: Any,
        plan: Any,
        quota_type: str,
        t_ms: int,
        amount: float,
        decision: Throttle,
        *_: Any,
    ) -> None:
        if quota_type == REQUEST.name:
            self.times.append((context.principal, context.client_id, t_ms, decision))

    def note(  # type: ignore[override]
        self,
        kind: str,
        client: Any,
        context: Any,
        plan: Any,
        quota_type: str,
        t_ms: int,
        amount: float,
        decision: Throttle,
        *,
        size: int | None = None,
        **_: Any,
    ) -> None:
        if kind not in ("record", "strict", "norecord") or plan is None:
            return
        strict = kind == "strict"
        if size is not None:
            self.changed[client].append(Changed(t_ms, strict))
        one = self.changed[client][-1]
        one.passes = one.passes or not strict or decision.throttle_time_ms == 0
        if one.decision is None or decision.throttle_time_ms > 0:
            one.decision = decision
            one.until_ms = t_ms + decision.throttle_time_ms


which = st.integers(0, 7)
clients = st.sampled_from(["app", "app", "app", "other", "free"])
nanos = st.sampled_from([20_000, 5_000_000, 300_000_000, 1_500_000_000, 6_000_000_000])
partitions = st.lists(st.sampled_from([1, 20, 150, LARGEST // 3]), min_size=1, max_size=3)
versions = st.sampled_from([PERMISSIVE, PERMISSIVE, STRICT])
again_after = st.sampled_from([0, 1, 2, 3, 5, 8, 12])
times = st.integers(1, 8)
actions = st.one_of(
    st.tuples(st.just("beat"), which, clients, nanos),
    st.tuples(st.just("create"), which, clients, partitions, versions, nanos),
    # As an evader does: ask, hear the answer or not, hang up, come again, ask.
    st.tuples(st.just("beat and come again"), which, clients, nanos, again_after, times),
    st.tuples(
        st.just("create and come again"), which, clients, partitions, versions, nanos,
        again_after, times,
    ),
    st.tuples(st.just("wait"), st.sampled_from([1, 2, 4, 50, 300, 1_000, 5_000, 20_000])),
    st.tuples(st.just("connect"), st.sampled_from(["alice", "alice", "alice", "bob"])),
    st.tuples(st.just("hang up and come again"), which),
    st.tuples(st.just("hang up"), which),
    st.tuples(st.just("quota"), st.sets(st.sampled_from(LEVELS), max_size=2),
              st.sampled_from([0.5, 1.0, 10.0])),
)  # fmt: skip


class Run:
    """What happened to one world, and how many connections there were."""

    def __init__(self, entity: QuotaEntity, pause_ms: int) -> None:
        self.journal = Written()
        self.world = World({entity: {REQUEST: PERCENT, MUTATION: RATE}}, journal=self.journal)
        self.pause_ms = pause_ms
        self.opened: list[tuple[str, Admin]] = []
        self.asked: Counter[tuple[str, str]] = Counter()
        self.most: dict[str, list[tuple[int, int]]] = defaultdict(lambda: [(0, 0)])

    def connect(self, principal: str) -> Admin:
        admin = Admin(self.world, principal=principal, pause_ms=self.pause_ms)
        self.opened.append((principal, admin))
        now = sum(name == principal and not one.gone for name, one in self.opened)
        if now > self.most[principal][-1][1]:
            self.most[principal].append((self.world.now_ms, now))
        return admin

    def most_open(self, principal: str, t_ms: int) -> int:
        """Return how many connections of a principal had been open at once by then, at most."""
        return max(n for at, n in self.most[principal] if at <= t_ms)

    def do(self, action: tuple[Any, ...]) -> None:
        kind, *rest = action
        world = self.world
        if kind == "connect":
            self.connect(rest[0])
            return
        if kind == "wait":
            world.run(rest[0])
            return
        if kind == "quota":
            world.change({e: {REQUEST: rest[1] * PERCENT, MUTATION: rest[1] * RATE}
                          for e in rest[0]})  # fmt: skip
            return
        live = [one for one in self.opened if not one[1].gone]
        principal, admin = live[rest[0] % len(live)] if live else ("alice", self.connect("alice"))
        if kind.startswith("hang up"):
            admin.hang_up()
            if kind == "hang up and come again":
                self.connect(principal)
            return
        if not kind.endswith("come again"):
            self._ask(principal, admin, kind, rest[1:])
            return
        *what, after_ms, many = rest[1:]
        for _ in range(many):
            self._ask(principal, admin, kind, what)
            world.run(after_ms)
            admin.hang_up()
            admin = self.connect(principal)

    def _ask(self, principal: str, admin: Admin, kind: str, what: list[Any]) -> None:
        if admin.waits:
            return
        self.asked[principal, what[0]] += 1
        if kind.startswith("beat"):
            admin.heartbeat(what[1], what[0])
        else:
            client, counts, version, spent_ns = what
            admin.create(*counts, client=client, version=version, nanos=spent_ns)

    def rest(self) -> None:
        """Have all that is on its way arrive."""
        self.world.run(60_000)
        for _, admin in self.opened:
            admin.hang_up()

    def changes(self) -> list[tuple[int, str, int, Changed]]:
        """Return time, principal, partitions and charge of the requests that reached the broker."""
        found = []
        for principal, admin in self.opened:
            passed = [one for one in admin.passed if one[1] == CREATE_TOPICS]
            charged = [c for c in self.journal.changed[admin.session] if c.passes]
            # The last one may have been charged when its client had gone.
            for (_, _, _, count), one in zip(passed, charged, strict=False):
                found.append((one.t_ms, principal, count, one))
        return sorted(found, key=lambda one: one[0])


pauses = st.sampled_from([0, 0, 1, 3])


@given(
    entity=st.sampled_from(LEVELS),
    pause_ms=pauses,
    script=st.lists(actions, min_size=10, max_size=50),
)
def test_closing_a_connection_never_gains_time_or_topics(
    entity: QuotaEntity, pause_ms: int, script: list[tuple[Any, ...]]
) -> None:
    run = Run(entity, pause_ms)
    for action in script:
        if action[0] != "quota":
            run.do(action)
    run.rest()
    _nobody_outdid_kafka(run)
    _topics_stay_within_the_quota(run)
    _all_time_is_charged(run, entity)


@given(
    entity=st.sampled_from(LEVELS),
    pause_ms=pauses,
    script=st.lists(actions, min_size=10, max_size=50),
)
def test_closing_a_connection_never_gains_time_or_topics_when_quotas_change(
    entity: QuotaEntity, pause_ms: int, script: list[tuple[Any, ...]]
) -> None:
    run = Run(entity, pause_ms)
    for action in script:
        if action[0] == "quota":  # bounds are per period of constant quota
            run.world.run(100)  # nothing is in flight
            _nobody_outdid_kafka(run)
            run.journal.times.clear()
            run.journal.changed.clear()
            for _, admin in run.opened:
                admin.passed.clear()
        run.do(action)
    run.rest()
    _nobody_outdid_kafka(run)


def _nobody_outdid_kafka(run: Run) -> None:
    """As many connections, none of which closed, could have done what was done."""
    charges = [(REQUEST.name, who, t_ms, t_ms + decision.throttle_time_ms, decision)
               for who, _, t_ms, decision in run.journal.times]  # fmt: skip
    for t_ms, who, _, one in run.changes():
        if not one.strict and one.decision is not None:
            charges.append((MUTATION.name, who, t_ms, one.until_ms, one.decision))
    muted: dict[tuple[str, str, str, str], list[int]] = defaultdict(list)
    for quota_type, who, t_ms, until_ms, (_, user, client, _) in charges:
        key = (quota_type, user, client, "" if user else who)
        busy = sum(end_ms > t_ms for end_ms in muted[key])
        note(f"{key} at {t_ms - run.world.now_ms}: until {until_ms - t_ms}, busy {busy}")
        assert busy < run.most_open(who, t_ms), (key, t_ms)
        muted[key].append(until_ms)


def _topics_stay_within_the_quota(run: Run) -> None:
    """Over any time T: quota x (T + bucket), and the largest request of each connection."""
    by_quota: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
    for t_ms, _, count, one in run.changes():
        if one.decision is not None and one.decision.bound <= RATE:
            by_quota[one.decision.user_tag, one.decision.client_tag].append((t_ms, count))
    most = sum(many[-1][1] for many in run.most.values())
    for charges in by_quota.values():
        largest = max(count for _, count in charges)
        for first in range(len(charges)):
            total = 0
            for t_ms, count in charges[first:]:
                total += count
                seconds = (t_ms - charges[first][0]) / 1_000
                assert total <= RATE * (seconds + BUCKET_S) + (most + 1) * largest


def _all_time_is_charged(run: Run, entity: QuotaEntity) -> None:
    """Whatever was passed on is charged once, and nothing that wasn't asked."""
    charged = Counter((who, client) for who, client, _, _ in run.journal.times)
    passed = Counter((who, one[2]) for who, admin in run.opened for one in admin.passed)
    for who, client in passed:
        named = entity.user in (None, DEFAULT, who), entity.client_id in (None, DEFAULT, client)
        if all(str(part) for part in named) and all(named):
            assert passed[who, client] <= charged[who, client] <= run.asked[who, client]

"""A bounded number of a principal's client-ids is charged separately; the others together."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.config import Settings
from headgate.gateway.charging.clients import others_of
from headgate.gateway.charging.enforcement import Enforcement
from headgate.metrics.meters import Meters
from headgate.quota.entity import DEFAULT, QuotaEntity
from headgate.quota.key import CONSUMER, MUTATION, PRODUCER, PRODUCER_BPS, REQUEST, QuotaKey
from headgate.quota.table import QuotaTable
from headgate.wire import apis

from .enforcement_kit import BASE, T0, Client, Kept, plan_of

ANY_CLIENT = QuotaEntity.of(client_id=DEFAULT)
ANY_PAIR = QuotaEntity.of(user=DEFAULT, client_id=DEFAULT)
MOST = 8
WINDOW_MS = 11_000
PLAN = plan_of(apis.PRODUCE, 9)


class Charges(Kept):
    """Keeps also who is charged: the client-id that was claimed, and the quota-id."""

    def __init__(self) -> None:
        super().__init__()
        self.charged: dict[str, tuple[str, str]] = {}

    def record(self, client: Any, context: Any, plan: Any, *row: Any) -> None:
        self.charged[context.client_id] = row[3][1:3]


class Bench:
    """Rules with room for few client-ids, and a clock."""

    def __init__(self, quotas: dict[QuotaEntity, dict[QuotaKey, float]], **settings: str) -> None:
        self.now_ms = T0
        self.kept, self.meters = Charges(), Meters()
        pairs = {name.replace("_", "."): value for name, value in settings.items()}
        all_settings = {**BASE, "headgate.quota.client.ids": str(MOST), **pairs}
        self.rules = Enforcement(
            Settings.from_properties(all_settings),
            1,
            lambda: self.now_ms,
            self.kept,
            self.meters,
        )
        self.rules.load(QuotaTable.of(quotas), T0)

    def produce(self, principal: str, client_id: str, size: int = 100) -> int:
        """Send a Produce; return for how long its client is muted, ms."""
        context = self.rules.context(principal, client_id)
        client: Any = Client()
        return self.rules.produce(client, context, PLAN, size, None, 0, True, self.now_ms)

    def flood(self, principal: str, count: int, first: int = 0, size: int = 100) -> None:
        """Send a Produce under each of many client-ids."""
        for number in range(first, first + count):
            self.produce(principal, f"flood-{number}", size)

    def pass_ms(self, passed_ms: int) -> None:
        """Let time pass; at its end places are released, as every 30 s."""
        self.now_ms += passed_ms
        for _ in self.rules.expire(self.now_ms):
            pass

    def sensors(self, key: QuotaKey = PRODUCER) -> set[tuple[str, str]]:
        manager = self.rules.managers.by_key[key]
        return {(s.user_tag, s.client_tag) for s in manager.sensors()}

    def charged_as(self, principal: str, client_id: str) -> str:
        return self.rules.context(principal, client_id).charged_id


@pytest.mark.parametrize("entity", [ANY_CLIENT, ANY_PAIR], ids=["client-id", "user and client-id"])
@pytest.mark.parametrize("pacing", ["kafka", "smooth"])
def test_a_flood_of_client_ids_makes_a_bounded_number_of_sensors(
    entity: QuotaEntity, pacing: str
) -> None:
    values = {PRODUCER: 1e9, CONSUMER: 1e9, REQUEST: 1e9, PRODUCER_BPS: 1e9, MUTATION: 1e9}
    bench = Bench({entity: values}, headgate_pacing=pacing)
    bench.flood("mallory", 50 * MOST)
    for key in (PRODUCER, REQUEST, PRODUCER_BPS):
        assert len(bench.sensors(key)) == MOST + 1
    assert len(bench.rules.contexts) == MOST + 1
    bench.pass_ms(0)
    assert bench.meters.crowded == 1
    assert bench.rules.contexts.client_ids.newly_crowded() == ["mallory"]


def test_the_others_are_charged_together_by_the_quota_of_a_client_id_without_one() -> None:
    bench = Bench({ANY_CLIENT: {PRODUCER: 100.0}})
    bench.flood("mallory", MOST, size=1)
    # 1,000 bytes are what ten seconds allow for; each takes a fifth of it.
    waits = [bench.produce("mallory", f"late-{number}", 200) for number in range(10)]
    assert waits[:5] == [0] * 5
    assert all(wait > 0 for wait in waits[5:]), waits
    assert waits[5:] == sorted(waits[5:])
    tags = ("", others_of("mallory"))
    assert tags in bench.sensors()
    # The journal has the claimed client-id, and the quota-id that it was charged to.
    assert bench.kept.charged["late-9"] == tags
    assert bench.kept.charged["flood-0"] == ("", "flood-0")


def test_a_flood_costs_no_other_principal_anything() -> None:
    bench = Bench({ANY_CLIENT: {PRODUCER: 100.0}})
    bench.flood("mallory", 3 * MOST, size=100_000)
    assert bench.charged_as("mallory", "app") == others_of("mallory")
    assert bench.charged_as("alice", "app") == "app"
    assert bench.produce("alice", "app", 1) == 0
    bench.flood("alice", 2 * MOST, first=1_000, size=0)
    assert bench.charged_as("alice", "later") == others_of("alice")
    assert bench.produce("alice", "later", 1) == 0
    # A client that claims the name of somebody else's others is one of its own.
    assert bench.charged_as("mallory", others_of("alice")) == others_of("mallory")
    assert bench.charged_as("bob", others_of("alice")) == others_of("bob")


@pytest.mark.parametrize(
    "entity",
    [
        QuotaEntity.of(client_id="app"),
        QuotaEntity.of(user="alice", client_id="app"),
        QuotaEntity.of(user=DEFAULT, client_id="app"),
    ],
    ids=str,
)
def test_a_client_id_that_a_quota_names_is_always_charged_separately(entity: QuotaEntity) -> None:
    bench = Bench({ANY_CLIENT: {PRODUCER: 1.0}, entity: {PRODUCER: 1e6}})
    bench.flood("alice", 3 * MOST, size=100_000)
    assert bench.charged_as("alice", "app") == "app"
    assert bench.produce("alice", "app", 100_000) == 0


def test_who_is_busy_keeps_its_place_and_idle_ones_give_theirs_away() -> None:
    bench = Bench({ANY_CLIENT: {PRODUCER: 1e6}})
    bench.produce("alice", "busy")
    bench.flood("alice", 2 * MOST)
    bench.pass_ms(WINDOW_MS - 1_000)
    bench.produce("alice", "busy")
    assert bench.charged_as("alice", "new") == others_of("alice")
    bench.pass_ms(WINDOW_MS - 2_000)
    assert bench.charged_as("alice", "busy") == "busy"
    assert bench.charged_as("alice", "new") == "new"
    assert bench.meters.crowded == 0
    assert bench.sensors() == {("", "busy")}, "sensors of those that gave their place went"


def test_who_was_one_of_the_others_gets_no_fresh_quota_while_they_are_charged() -> None:
    bench = Bench({ANY_CLIENT: {PRODUCER: 100.0}})
    bench.flood("alice", MOST, size=1)
    assert bench.produce("alice", "one", 500) == 0
    for count in range(6):  # from the second time on places are free; the others stay busy
        bench.produce("alice", "another", 500)
        bench.pass_ms(WINDOW_MS - 1_000)
        assert bench.charged_as("alice", "one") == others_of("alice")
        if count:
            assert bench.charged_as("alice", f"new at {bench.now_ms}") != others_of("alice")
    assert bench.produce("alice", "one", 600) > 0


def test_who_owes_keeps_its_place_when_its_samples_have_gone() -> None:
    """A Produce of 80 s' worth at once: the samples go after 11 s, the mute lasts longer."""
    bench = Bench({ANY_CLIENT: {PRODUCER: 100.0}})
    assert bench.produce("alice", "owes", 8_000) > 3 * WINDOW_MS
    bench.flood("alice", 2 * MOST)
    bench.pass_ms(2 * WINDOW_MS)
    assert not bench.rules.managers.produce.counts(("", "owes"), bench.now_ms)
    assert bench.charged_as("alice", "owes") == "owes"
    # The same for the others: who is among them doesn't leave their debt behind.
    bench.flood("alice", 2 * MOST, first=1_000, size=1)
    assert bench.charged_as("alice", "sly") == others_of("alice")
    assert bench.produce("alice", "sly", 8_000) > 3 * WINDOW_MS
    bench.pass_ms(2 * WINDOW_MS)
    assert bench.charged_as("alice", "sly") == others_of("alice")


def test_a_request_in_flight_keeps_the_place_of_its_client_id() -> None:
    bench = Bench({ANY_CLIENT: {PRODUCER: 100.0}})
    context = bench.rules.context("alice", "flies")
    client: Any = Client()
    assert context.headroom is not None
    context.headroom.claim(client, 100, None, T0)
    bench.flood("alice", 2 * MOST)
    bench.pass_ms(3 * WINDOW_MS)
    assert bench.charged_as("alice", "flies") == "flies"
    assert bench.charged_as("alice", "flood-0") == "flood-0"


def test_names_of_any_length_are_bounded_by_their_characters() -> None:
    bench = Bench({ANY_CLIENT: {PRODUCER: 1e6}})
    for number in range(MOST):
        bench.produce("alice", f"{number}" * 600)
    assert len(bench.sensors()) == 128 * MOST // 600 + 1 < MOST


def test_places_of_a_principal_that_went_are_memory_for_an_hour_only() -> None:
    bench = Bench({ANY_CLIENT: {PRODUCER: 1e6}})
    for number in range(20):
        bench.flood(f"user-{number}", MOST // 2)
    assert len(bench.rules.contexts.client_ids._principals) == 20
    bench.pass_ms(3_600_000)
    assert not bench.rules.contexts.client_ids._principals

"""
The draft's calls 48, 49 and 50 on the wire, through a gateway's admin listener: what is refused,
how fractions, Java's spellings and KIP-55's static default are answered. No Kafka is needed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headgate.admin import AdminClient, DescribeEffectiveQuotasOptions, QuotaEntity
from headgate.client.connection import Connection
from headgate.client.security import Security
from headgate.config.listeners import HostPort
from headgate.errors import ApiError, KafkaError
from headgate.gateway import GatewayThread
from headgate.quota.alteration import Op, QuotaAlteration
from headgate.quota.entity import DEFAULT
from headgate.quota.key import CONSUMER, PRODUCER, PRODUCER_BPS, REQUEST
from headgate.store import open_store
from headgate.store.watched import QuotaStore
from headgate.wire.messages import draft as d

from .scripted_upstream import Start, connect, produce, read_answer, start, upstream

__all__ = ["start", "upstream"]

ALICE = QuotaEntity.of(user="alice")
ETL = QuotaEntity.of(user="alice", client_id="etl")
DENIED = (int(KafkaError.CLUSTER_AUTHORIZATION_FAILED), "Cluster authorization failed.")
INVALID = int(KafkaError.INVALID_REQUEST)


class Place:
    """A gateway with an admin listener, its store, and who asks it."""

    def __init__(self, gateway: GatewayThread, store: QuotaStore) -> None:
        assert gateway.gateway.shared.admin_address is not None
        self.host, self.port = gateway.gateway.shared.admin_address
        self.store = store

    def ask(self, key: int, request: object) -> Any:
        """Send one request as it is, and return the answer."""

        async def exchange() -> bytes:
            connection = await Connection.open(
                HostPort(self.host, self.port), Security(), greet=True
            )
            try:
                return await connection.swap(
                    lambda cid: d.encode_request(key, cid, "test", request)
                )
            finally:
                await connection.close()

        return d.decode_response(key, asyncio.run(exchange()))

    def describe(self, *filters: tuple[str, str, str]) -> tuple[d.DescribedQuota, ...]:
        request = d.DescribeQuotasRequest(tuple(d.Filter(*item) for item in filters))
        entries: tuple[d.DescribedQuota, ...] = self.ask(d.DESCRIBE_QUOTAS, request).entries
        return entries

    def effective(self, **entity: str) -> d.EffectiveEntry:
        parts = tuple(
            d.DraftEntityPart(k if k.isupper() else k.replace("_", "-"), n)
            for k, n in entity.items()
        )
        request = d.DescribeEffectiveQuotasRequest(parts, False)
        [entry] = self.ask(d.DESCRIBE_EFFECTIVE_QUOTAS, request).entries
        assert isinstance(entry, d.EffectiveEntry)
        return entry

    def alter(
        self, parts: tuple[d.DraftEntityPart, ...], *ops: d.DraftAlterOp
    ) -> d.DraftAlteredEntry:
        request = d.AlterQuotasRequest((d.DraftAlterEntry(parts, ops),), False)
        [entry] = self.ask(d.ALTER_QUOTAS, request).entries
        assert isinstance(entry, d.DraftAlteredEntry)
        return entry


Make = Callable[..., Place]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[QuotaStore]:
    opened = open_store(f"sqlite:{tmp_path / 'quotas.db'}")
    yield opened
    opened.close()


@pytest.fixture
def place(store: QuotaStore, start: Start) -> Make:
    """``place(**properties)``: a gateway whose store has some quotas."""
    quotas = {
        ALICE: {PRODUCER: 1_000.0, REQUEST: 12.75},
        QuotaEntity.of(client_id=DEFAULT): {PRODUCER_BPS: 5_000.0},
        QuotaEntity.of(client_id="<default>"): {PRODUCER: 7.0},
    }
    results = store.alter(
        [
            QuotaAlteration.of(entity, (Op(key, value) for key, value in values.items()))
            for entity, values in quotas.items()
        ]
    )
    assert [result.error for result in results] == [None] * 3

    def make(**named: str) -> Place:
        named.setdefault("super__users", "User:ANONYMOUS")
        return Place(
            start(
                store=store,
                headgate__admin__listener="ADMIN://127.0.0.1:0",
                listener__security__protocol__map="PLAINTEXT:PLAINTEXT,ADMIN:PLAINTEXT",
                **named,
            ),
            store,
        )

    return make


def test_546_33_everyone_but_administrators_is_refused_entry_by_entry(place: Make) -> None:
    asked = place(super__users="User:root")
    [entry] = asked.describe()
    assert (entry.error_code, entry.error_message) == DENIED
    assert (entry.entity, entry.type, entry.units, entry.value) == ((), "", "", 0)
    told = asked.effective(user="alice", client_id="etl")
    assert (told.error_code, told.error_message) == DENIED
    assert told.entity == (
        d.DraftEntityPart("user", "alice"),
        d.DraftEntityPart("client-id", "etl"),
    )
    assert told.values == ()
    parts = (d.DraftEntityPart("user", "alice"),)
    changed = asked.alter(parts, d.DraftAlterOp("producer_byte_rate", "broker_bps", 9, False))
    assert (changed.error_code, changed.error_message) == DENIED
    assert changed.entity == parts
    assert asked.store.snapshot().get(ALICE, PRODUCER) == 1_000.0


def test_546_38_unknown_entity_types_are_refused_by_name(place: Make) -> None:
    asked = place()
    refused = (INVALID, "Unhandled client quota entity type: GROUP")
    for filters in ([("GROUP", "EXACT", "g")], [("user", "PREFIX", "a"), ("GROUP", "PREFIX", "")]):
        [entry] = asked.describe(*filters)
        assert (entry.error_code, entry.error_message) == refused
    for entity in ({"GROUP": "g"}, {"user": "alice", "GROUP": "g"}):
        told = asked.effective(**entity)
        assert (told.error_code, told.error_message) == refused
        assert told.values == ()
    part = d.DraftEntityPart("GROUP", "g")
    changed = asked.alter((part,), d.DraftAlterOp("producer_byte_rate", "broker_bps", 9, False))
    assert (changed.error_code, changed.error_message) == refused


def test_546_38_the_client_passes_unknown_types_on_and_shows_the_refusal(place: Make) -> None:
    asked, group = place(), QuotaEntity({"GROUP": "internal-group"})
    with AdminClient(f"{asked.host}:{asked.port}") as client:
        future = client.describe_effective_quotas([group]).config()[group]
        with pytest.raises(ApiError, match="Unhandled client quota entity type: GROUP") as caught:
            future.result(60)
    assert caught.value.code == KafkaError.INVALID_REQUEST


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ({"user": "a", "ip": "127.0.0.1"}, "Invalid quota entity combination"),
        ({"ip": "127.0.0.1", "client-id": "c"}, "Invalid quota entity combination"),
        ({"GROUP": "g", "user": "a"}, "Unhandled client quota entity type: GROUP"),
        ({}, "Invalid empty client quota entity"),
    ],
)
def test_546_37_types_that_dont_go_together_are_refused_and_none_is_guessed(
    place: Make, parts: dict[str, str], text: str
) -> None:
    asked = place()
    entity = tuple(d.DraftEntityPart(kind, name) for kind, name in parts.items())
    before = asked.store.snapshot()
    changed = asked.alter(entity, d.DraftAlterOp("producer_byte_rate", "broker_bps", 9, False))
    assert changed.error_code == INVALID
    assert (changed.error_message or "").startswith(text)
    assert asked.store.snapshot() == before


def test_546_37_known_types_are_entities_of_their_own(place: Make) -> None:
    asked = place()
    rate = d.DraftAlterOp("consumer_byte_rate", "broker_bps", 9, False)
    address = d.DraftAlterOp("connection_creation_rate", "per_s", 9, False)
    user, client = d.DraftEntityPart("user", "bob"), d.DraftEntityPart("client-id", "etl")
    for parts, op in (
        ((user,), rate),
        ((client,), rate),
        ((user, client), rate),
        ((d.DraftEntityPart("ip", "127.0.0.1"),), address),
    ):
        assert asked.alter(parts, op).error_code == 0
    held = asked.store.snapshot().for_key(CONSUMER)
    assert set(held) == {
        QuotaEntity.of(user="bob"),
        QuotaEntity.of(client_id="etl"),
        QuotaEntity.of(user="bob", client_id="etl"),
    }


def test_546_33_an_unknown_rule_is_one_entry_with_the_reason(place: Make) -> None:
    [entry] = place().describe(("user", "SUFFIX", "ce"))
    assert entry.error_code == INVALID
    assert entry.error_message == "Unknown rule SUFFIX; there are EXACT and PREFIX."


def test_546_32_a_fraction_spoils_its_own_entry_only(place: Make) -> None:
    asked = place()
    text = "request_percentage:percent is 12.75, which this version can't tell; use the released"
    by_key = {(e.entity, e.type): e for e in asked.describe()}
    alice = (d.DraftEntityPart("user", "alice"),)
    assert by_key[alice, "producer_byte_rate"].value == 1_000
    broken = by_key[alice, "request_percentage"]
    assert (broken.error_code, broken.value) == (INVALID, 0)
    assert (broken.error_message or "").startswith(text)
    told = asked.effective(user="alice")
    assert (told.error_code, told.values) == (INVALID, ())
    assert (told.error_message or "").startswith(text)
    assert asked.effective(user="bob").error_code == 0


def test_546_31_javas_spellings_mean_the_same(place: Make) -> None:
    asked = place()
    java = (d.DraftEntityPart("USER", "dora"), d.DraftEntityPart("CLIENT_ID", ""))
    changed = asked.alter(java, d.DraftAlterOp("CONSUMER_BYTE_RATE", "RATE_BPS", 64, False))
    assert (changed.error_code, changed.error_message) == (0, None)
    [entry] = asked.describe(("USER", "exact", "dora"))
    assert entry.entity == (d.DraftEntityPart("user", "dora"), d.DraftEntityPart("client-id", ""))
    assert (entry.type, entry.units, entry.value) == ("consumer_byte_rate", "bps", 64)
    told = asked.effective(USER="dora", CLIENT_ID="etl")
    [value] = [v for v in told.values if v.type == "consumer_byte_rate"]
    assert value.entries == (d.ValueEntry(entry.entity, 64),)


@pytest.mark.parametrize("setting", ["producer", "consumer"])
def test_55_3_the_last_resort_is_not_told_where_the_upstream_enforces(
    place: Make, setting: str
) -> None:
    asked = place(
        headgate__enforce="missing",
        **{f"quota__{setting}__default": "4096"},
    )
    told = asked.effective(client_id="etl")
    assert f"{setting}_byte_rate" not in {v.type for v in told.values if v.units == "broker_bps"}


@pytest.mark.parametrize(
    ("size", "quota", "throttled"), [(4_000, "1000", True), (4_000, "1000000", False)]
)
def test_55_3_the_last_resort_throttles_who_has_no_other_quota(
    start: Start, size: int, quota: str, throttled: bool
) -> None:
    gateway = start(quota__producer__default=quota, quota__window__num="2")
    with connect(gateway) as client:
        client.sendall(produce(size))
        answer = read_answer(client)
    told_ms = int.from_bytes(answer[-4:], "big")  # Produce 7: throttle_time_ms comes last
    assert (told_ms > 0) == throttled


def test_55_3_the_gateways_own_last_resort_is_explained(place: Make) -> None:
    asked = place(quota__producer__default="4096", quota__consumer__default="8192")
    found = {value.type: value for value in asked.effective(client_id="etl").values}
    assert found["consumer_byte_rate"].entries == (d.ValueEntry((), 8_192),)
    with AdminClient(f"{asked.host}:{asked.port}") as client:
        entities = [ETL, QuotaEntity.of(user="bob", client_id="etl")]
        config = client.describe_effective_quotas(entities).config()
        bob = config[entities[1]].result(60)
    assert str(bob[CONSUMER].entry.source) == "server.properties"
    assert (bob[PRODUCER].entry.value, bob[CONSUMER].entry.value) == (4_096, 8_192)


def test_546_32_an_int64_that_no_double_holds_is_refused_and_not_kept(place: Make) -> None:
    asked = place()
    carol = (d.DraftEntityPart("user", "carol"),)
    for value in (2**53 + 1, 2**63 - 2):
        told = asked.alter(carol, d.DraftAlterOp("producer_byte_rate", "broker_bps", value, False))
        assert told.error_code == INVALID
        assert f"Proposed value {value} for producer_byte_rate" in (told.error_message or "")
    assert not asked.describe(("user", "EXACT", "carol"))
    for value in (2**53 + 2, 2**63 - 1):  # a neighbour that a double holds, and "no limit"
        op = d.DraftAlterOp("producer_byte_rate", "broker_bps", value, False)
        assert asked.alter(carol, op).error_code == 0
        assert [e.value for e in asked.describe(("user", "EXACT", "carol"))] == [value]


def test_546_39_one_type_in_two_spellings_is_an_error_that_names_it(place: Make) -> None:
    asked = place()
    twice = (d.DraftEntityPart("user", "alice"), d.DraftEntityPart("USER", "bob"))
    told = asked.alter(twice, d.DraftAlterOp("producer_byte_rate", "broker_bps", 5, False))
    assert told.error_code == INVALID
    assert "user given twice" in (told.error_message or "")
    described = asked.effective(user="alice", USER="bob")
    assert (described.error_code, described.values) == (INVALID, ())
    assert "user given twice" in (described.error_message or "")


def test_546_40_rate_bps_stands_for_a_types_own_unit(place: Make) -> None:
    asked = place()
    carol = (d.DraftEntityPart("user", "carol"),)
    for kind, units in (
        ("REQUEST_PERCENTAGE", "percent"),
        ("CONTROLLER_MUTATION_RATE", "per_s"),
        ("PRODUCER_IDS_RATE", "per_s"),
        ("PRODUCER_BYTE_RATE", "bps"),
    ):
        told = asked.alter(carol, d.DraftAlterOp(kind, "RATE_BPS", 64, False))
        assert (told.error_code, told.error_message) == (0, None)
        found = {(e.type, e.units, e.value) for e in asked.describe(("user", "EXACT", "carol"))}
        assert (kind.lower(), units, 64) in found


def test_546_41_a_pair_without_a_meaning_is_refused_by_both_names(place: Make) -> None:
    told = place().alter(
        (d.DraftEntityPart("user", "carol"),),
        d.DraftAlterOp("request_percentage", "shares", 5, False),
    )
    assert told.error_code == INVALID
    assert told.error_message == (
        "Invalid configuration key request_percentage:shares: request_percentage isn't counted in "
        "shares, but in percent"
    )


def test_546_16_546_29_overridden_values_follow_the_one_in_force_unless_left_out(
    store: QuotaStore, place: Make
) -> None:
    default = QuotaEntity.of(user=DEFAULT)
    store.alter([QuotaAlteration.of(default, (Op(PRODUCER, 2_000.0),))])
    store.alter([QuotaAlteration.of(QuotaEntity.of(client_id="etl"), (Op(PRODUCER, 3_000.0),))])
    store.alter([QuotaAlteration.of(ALICE, (Op(REQUEST, None),))])
    asked = place()
    parts = (d.DraftEntityPart("client-id", "etl"), d.DraftEntityPart("user", "alice"))

    def entries(omit: bool) -> list[tuple[tuple[d.DraftEntityPart, ...], int]]:
        request = d.DescribeEffectiveQuotasRequest(parts, omit)
        answer = asked.ask(d.DESCRIBE_EFFECTIVE_QUOTAS, request)
        [entry] = answer.entries
        assert (entry.entity, entry.error_code, answer.throttle_time_ms) == (parts, 0, 0)
        [found] = [v for v in entry.values if (v.type, v.units) == PRODUCER]
        return [(value.entity, value.value) for value in found.entries]

    in_order = [
        ((d.DraftEntityPart("user", "alice"),), 1_000),
        ((d.DraftEntityPart("user", ""),), 2_000),
        ((d.DraftEntityPart("client-id", "etl"),), 3_000),
    ]
    assert entries(omit=False) == in_order
    assert entries(omit=True) == in_order[:1]
    with AdminClient(f"{asked.host}:{asked.port}") as client:
        for omit, wanted in ((False, (2_000.0, 3_000.0)), (True, None)):
            options = DescribeEffectiveQuotasOptions(omit_overridden_values=omit)
            found = client.describe_effective_quotas([ETL], options).config()[ETL].result(60)
            others = found[PRODUCER].overridden_entries
            assert found[PRODUCER].entry.value == 1_000
            assert (None if others is None else tuple(e.value for e in others)) == wanted


def test_546_35_the_admin_listener_itself_advertises_six_calls_and_no_metadata(
    place: Make,
) -> None:
    asked = place()

    async def versions() -> set[int]:
        connection = await Connection.open(HostPort(asked.host, asked.port), Security(), greet=True)
        try:
            return set(connection.versions)
        finally:
            await connection.close()

    assert asyncio.run(versions()) == {17, 18, 36, 48, 49, 50}

"""
The admin client against peers that answer to order: what it sends, and what it makes of answers.
"""

from __future__ import annotations

import struct
from typing import Any

import pytest

from headgate.admin import (
    DEFAULT,
    AdminClient,
    AlterQuotasEntry,
    AlterQuotasOptions,
    DescribeEffectiveQuotasOptions,
    Entry,
    FilterComponent,
    MatchType,
    Op,
    QuotaEntity,
    QuotaFilter,
    QuotaKey,
    Value,
)
from headgate.errors import ApiError, KafkaError
from headgate.quota.key import CONSUMER, PRODUCER, PRODUCER_BPS, REQUEST
from headgate.wire.messages import draft as d
from headgate.wire.messages import quotas as q
from kit.fake_broker import ADMIN_LISTENER, RELEASED, FakeBroker

ALICE = QuotaEntity.of(user="alice")


def described(*entries: tuple[dict[str, str | None], dict[str, float]]) -> Any:
    return q.DescribeClientQuotasResponse(
        tuple(
            q.DescribedEntry(
                tuple(q.EntityPart(t, n) for t, n in entity.items()),
                tuple(q.QuotaValue(k, v) for k, v in values.items()),
            )
            for entity, values in entries
        )
    )


def altered(request: Any) -> Any:
    return q.AlterClientQuotasResponse(tuple(q.AlteredEntry(e.entity) for e in request.entries))


# --- released


def test_released_describe_asks_and_reads() -> None:
    def answer(request: Any) -> Any:
        return described(
            ({"user": None, "client-id": "c"}, {"producer_byte_rate": float("inf")}),
            ({"user": "alice"}, {"producer_byte_rate:bps": 5.0, "request_percentage": 12.75}),
        )

    with FakeBroker(RELEASED, {48: answer}) as broker, AdminClient(broker.address) as client:
        filters = [FilterComponent("user", MatchType.ANY), FilterComponent("ip", MatchType.DEFAULT)]
        found = client.describe_client_quotas(filters, strict=True).entities().result(60)
    assert found == {
        QuotaEntity.of(user=DEFAULT, client_id="c"): {PRODUCER: float("inf")},
        ALICE: {PRODUCER_BPS: 5.0, REQUEST: 12.75},
    }
    [request] = broker.asked(48)
    assert request == q.DescribeClientQuotasRequest(
        (q.Component("user", 2, None), q.Component("ip", 1, None)), True
    )


def test_546_11_unknown_types_are_passed_on_and_shown() -> None:
    group = {"GROUP": "internal-group", "user": "alice"}

    def answer(request: Any) -> Any:
        return described((group, {"messages_rate:per_day": 3.0}))

    with (
        FakeBroker(RELEASED, {48: answer, 49: altered}) as broker,
        AdminClient(broker.address) as client,
    ):
        asked = QuotaFilter("GROUP", QuotaFilter.Rule.EXACT, "internal-group")
        found = client.describe_quotas([asked]).entities().result(60)
        entity, key = QuotaEntity(group), QuotaKey("messages_rate", "per_day")
        assert found == {entity: {key: 3.0}}
        client.alter_quotas([AlterQuotasEntry(entity, [Op(key, 4)])]).all().result(60)
    assert broker.asked(48)[0].components == (q.Component("GROUP", 0, "internal-group"),)
    [entry] = broker.asked(49)[0].entries
    assert {(p.entity_type, p.entity_name) for p in entry.entity} == set(group.items())
    assert entry.ops == (q.AlterOp("messages_rate:per_day", 4.0, False),)


def test_a_prefix_is_asked_wide_and_narrowed_here() -> None:
    rows = [({"user": name}, {"producer_byte_rate": 1.0}) for name in ("test-a", "other", None)]

    with (
        FakeBroker(RELEASED, {48: lambda _: described(*rows)}) as broker,
        AdminClient(broker.address) as client,
    ):
        filters = [
            QuotaFilter("user", QuotaFilter.Rule.PREFIX, "test-"),
            QuotaFilter("user", QuotaFilter.Rule.EXACT, "test-a"),
        ]
        found = client.describe_quotas(filters).entities().result(60)
    assert set(found) == {QuotaEntity.of(user="test-a")}
    assert broker.asked(48)[0].components == (q.Component("user", 2, None),)


def test_effective_quotas_of_a_plain_kafka_are_computed_here() -> None:
    rows = [
        ({"user": None}, {"producer_byte_rate": 1.0}),
        ({"user": "alice", "client-id": None}, {"producer_byte_rate": 2.0}),
    ]
    asked = QuotaEntity.of(user="alice", client_id="c")
    with (
        FakeBroker(RELEASED, {48: lambda _: described(*rows)}) as broker,
        AdminClient(broker.address) as client,
    ):
        values = client.describe_effective_quotas([asked]).config()[asked].result(60)
    pair = QuotaEntity.of(user="alice", client_id=DEFAULT)
    default = QuotaEntity.of(user=DEFAULT)
    assert values == {PRODUCER: Value(Entry(pair, 2.0), (Entry(default, 1.0),))}


def test_released_alter_sends_ops_as_java_does_and_reports_per_entity() -> None:
    def answer(request: Any) -> Any:
        first, second = request.entries
        return q.AlterClientQuotasResponse(
            (
                q.AlteredEntry(second.entity, 42, "Invalid configuration key x"),
                q.AlteredEntry(first.entity),
            )
        )

    bob = QuotaEntity.of(user="bob", client_id=DEFAULT)
    with FakeBroker(RELEASED, {49: answer}) as broker, AdminClient(broker.address) as client:
        result = client.alter_quotas(
            [
                AlterQuotasEntry(ALICE, [Op(PRODUCER, 5), Op(REQUEST, None)]),
                AlterQuotasEntry(bob, [Op(QuotaKey.parse("x"), 1)]),
            ],
            AlterQuotasOptions(validate_only=True),
        )
        assert result.values()[ALICE].result(60) is None
        with pytest.raises(ApiError, match="Invalid configuration key x"):
            result.values()[bob].result(60)
    [request] = broker.asked(49)
    assert request.validate_only
    assert request.entries[0].ops == (
        q.AlterOp("producer_byte_rate", 5.0, False),
        q.AlterOp("request_percentage", 0.0, True),
    )
    assert request.entries[1].entity == (
        q.EntityPart("user", "bob"),
        q.EntityPart("client-id", None),
    )


def test_large_alterations_are_cut_at_10000_records() -> None:
    entries = [
        AlterQuotasEntry(QuotaEntity.of(user=str(n)), [Op(PRODUCER, 1), Op(CONSUMER, 2)])
        for n in range(6000)
    ]
    with FakeBroker(RELEASED, {49: altered}) as broker, AdminClient(broker.address) as client:
        client.alter_quotas(entries).all().result(60)
    assert [len(request.entries) for request in broker.asked(49)] == [5000, 1000]


def test_a_refusal_without_text_has_kafkas_own() -> None:
    refusal = q.DescribeClientQuotasResponse(None, 31, None)
    with (
        FakeBroker(RELEASED, {48: lambda _: refusal}) as broker,
        AdminClient(broker.address) as client,
        pytest.raises(ApiError) as caught,
    ):
        client.describe_quotas().entities().result(60)
    assert caught.value == ApiError(
        KafkaError.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed."
    )


def test_a_peer_without_the_api_is_named() -> None:
    old = {key: versions for key, versions in RELEASED.items() if key not in (48, 49)}
    with (
        FakeBroker(old, {}) as broker,
        AdminClient(broker.address) as client,
        pytest.raises(ApiError, match="doesn't offer API 48") as caught,
    ):
        client.describe_quotas().entities().result(60)
    assert caught.value.code == KafkaError.UNSUPPORTED_VERSION


def test_version_0_is_spoken_where_that_is_all_there_is() -> None:
    with (
        FakeBroker({**RELEASED, 48: (0, 0)}, {48: lambda _: described()}) as broker,
        AdminClient(broker.address) as client,
    ):
        assert client.describe_quotas().entities().result(60) == {}


# --- the draft


def part(entity: QuotaEntity) -> tuple[d.DraftEntityPart, ...]:
    return tuple(d.DraftEntityPart(t, n if isinstance(n, str) else "") for t, n in entity)


def test_546_35_no_metadata_means_the_draft_is_spoken() -> None:
    entity = QuotaEntity.of(user=DEFAULT, client_id="my-client")

    def answer(request: Any) -> Any:
        rows = [("consumer_byte_rate", "shares", 100), ("producer_byte_rate", "broker_bps", 5)]
        return d.DescribeQuotasResponse(tuple(d.DescribedQuota(part(entity), *row) for row in rows))

    with FakeBroker(ADMIN_LISTENER, {48: answer}) as broker, AdminClient(broker.address) as client:
        filters = [
            QuotaFilter("client-id", "EXACT", "my-client"),
            QuotaFilter("user", "PREFIX", ""),
        ]
        found = client.describe_quotas(filters[:1]).entities().result(60)
    assert found == {entity: {QuotaKey("consumer_byte_rate", "shares"): 100.0, PRODUCER: 5.0}}
    assert broker.asked(48)[0].filters == (d.Filter("client-id", "EXACT", "my-client"),)


def test_546_14_the_default_is_the_empty_name_on_the_draft_wire() -> None:
    entity = QuotaEntity.of(user=DEFAULT)

    def answer(request: Any) -> Any:
        return d.AlterQuotasResponse((d.DraftAlteredEntry(request.entries[0].entity),))

    with (
        FakeBroker(
            ADMIN_LISTENER,
            {48: lambda _: d.DescribeQuotasResponse(()), 50: answer},
        ) as broker,
        AdminClient(broker.address) as client,
    ):
        client.describe_quotas([QuotaFilter("user", "EXACT", "")]).entities().result(60)
        client.alter_quotas([AlterQuotasEntry(entity, [Op(PRODUCER_BPS, 5)])]).all().result(60)
    assert broker.asked(48)[0].filters == (d.Filter("user", "EXACT", ""),)
    assert broker.asked(50)[0] == d.AlterQuotasRequest(
        (
            d.DraftAlterEntry(
                (d.DraftEntityPart("user", ""),),
                (d.DraftAlterOp("producer_byte_rate", "bps", 5, False),),
            ),
        ),
        False,
    )


def test_546_31_java_spellings_mean_the_same() -> None:
    row = d.DescribedQuota(
        (d.DraftEntityPart("USER", "u"), d.DraftEntityPart("CLIENT_ID", "c")),
        "PRODUCER_BYTE_RATE",
        "RATE_BPS",
        5,
    )
    with (
        FakeBroker(ADMIN_LISTENER, {48: lambda _: d.DescribeQuotasResponse((row,))}) as broker,
        AdminClient(broker.address) as client,
    ):
        found = client.describe_quotas().entities().result(60)
    assert found == {QuotaEntity.of(user="u", client_id="c"): {PRODUCER_BPS: 5.0}}


def test_effective_quotas_come_from_the_draft_one_entity_at_a_time() -> None:
    default = QuotaEntity.of(user=DEFAULT)

    def answer(request: Any) -> Any:
        entries = (
            d.ValueEntry(request.entity, 10),
            *(() if request.omit_overridden_values else (d.ValueEntry(part(default), 5),)),
        )
        value = d.EffectiveValue("producer_byte_rate", "broker_bps", entries)
        return d.DescribeEffectiveQuotasResponse((d.EffectiveEntry(request.entity, (value,)),))

    bob = QuotaEntity.of(user="bob")
    with FakeBroker(ADMIN_LISTENER, {49: answer}) as broker, AdminClient(broker.address) as client:
        config = client.describe_effective_quotas([ALICE, bob]).config()
        assert config[bob].result(60) == {PRODUCER: Value(Entry(bob, 10.0), (Entry(default, 5.0),))}
        assert config[ALICE].result(60)[PRODUCER].entry == Entry(ALICE, 10.0)
        short = DescribeEffectiveQuotasOptions(omit_overridden_values=True)
        values = client.describe_effective_quotas([ALICE], short).config()[ALICE].result(60)
        assert values == {PRODUCER: Value(Entry(ALICE, 10.0), None)}
    assert len(broker.asked(49)) == 3


def text(value: str) -> bytes:
    return len(value.encode()).to_bytes(2, "big") + value.encode()


def header(api_key: int, correlation_id: int) -> bytes:
    return struct.pack(">hhi", api_key, 0, correlation_id) + text("headgate.admin")


def test_546_28_29_30_requests_are_the_drafts_bytes() -> None:
    """Every field in the order and type of the KIP's schemas, built here by hand."""
    entity = struct.pack(">i", 1) + text("user") + text("alice")
    answers = {
        48: lambda _: d.DescribeQuotasResponse(()),
        49: lambda r: d.DescribeEffectiveQuotasResponse((d.EffectiveEntry(r.entity, ()),)),
        50: lambda r: d.AlterQuotasResponse((d.DraftAlteredEntry(r.entries[0].entity),)),
    }
    with FakeBroker(ADMIN_LISTENER, answers) as broker, AdminClient(broker.address) as client:
        client.describe_quotas([QuotaFilter("user", "PREFIX", "al")]).entities().result(60)
        client.describe_effective_quotas([ALICE]).all().result(60)
        entry = AlterQuotasEntry(ALICE, [Op(PRODUCER_BPS, 7), Op(REQUEST, None)])
        client.alter_quotas([entry], AlterQuotasOptions(validate_only=True)).all().result(60)
    sent = [frame[4:] for frame in broker.frames[1:]]
    filters = struct.pack(">i", 1) + text("user") + text("PREFIX") + text("al")
    ops = (
        struct.pack(">i", 2)
        + text("producer_byte_rate") + text("bps") + struct.pack(">q?", 7, False)
        + text("request_percentage") + text("percent") + struct.pack(">q?", 0, True)
    )  # fmt: skip
    assert sent == [
        header(48, 2) + filters,
        header(49, 3) + entity + b"\x00",
        header(50, 4) + struct.pack(">i", 1) + entity + ops + b"\x01",
    ]


def test_546_29_effective_answers_are_read_from_the_drafts_bytes() -> None:
    entity = struct.pack(">i", 1) + text("user") + text("alice")
    default = struct.pack(">i", 1) + text("user") + text("")
    body = (
        struct.pack(">i", 0)  # ThrottleTimeMs
        + struct.pack(">ihh", 1, 0, -1)  # Entry: ErrorCode, ErrorMessage null
        + entity
        + struct.pack(">i", 1) + text("producer_byte_rate") + text("bps")  # QuotaValues
        + struct.pack(">i", 2)  # Entry
        + entity + struct.pack(">q", 10)
        + default + struct.pack(">q", 5)
    )  # fmt: skip
    frame = struct.pack(">ii", len(body) + 4, 2) + body
    with (
        FakeBroker(ADMIN_LISTENER, {49: lambda _: frame}) as broker,
        AdminClient(broker.address) as client,
    ):
        values = client.describe_effective_quotas([ALICE]).config()[ALICE].result(60)
    overridden = (Entry(QuotaEntity.of(user=DEFAULT), 5.0),)
    assert values == {PRODUCER_BPS: Value(Entry(ALICE, 10.0), overridden)}


def test_546_30_alter_answers_are_read_from_the_drafts_bytes() -> None:
    entity = struct.pack(">i", 1) + text("user") + text("alice")
    body = struct.pack(">iih", 0, 1, 42) + text("no such key") + entity
    frame = struct.pack(">ii", len(body) + 4, 2) + body
    with (
        FakeBroker(ADMIN_LISTENER, {50: lambda _: frame}) as broker,
        AdminClient(broker.address) as client,
        pytest.raises(ApiError) as caught,
    ):
        client.alter_quotas([AlterQuotasEntry(ALICE, [Op(PRODUCER, 1)])]).all().result(60)
    assert caught.value == ApiError(KafkaError.INVALID_REQUEST, "no such key")


def test_546_33_a_failure_of_the_whole_request_is_one_entry_with_an_error() -> None:
    refusal = d.DescribeQuotasResponse((d.DescribedQuota((), "", "", 0, 31, "no"),))
    with (
        FakeBroker(ADMIN_LISTENER, {48: lambda _: refusal}) as broker,
        AdminClient(broker.address) as client,
        pytest.raises(ApiError) as caught,
    ):
        client.describe_quotas().entities().result(60)
    assert caught.value == ApiError(KafkaError.CLUSTER_AUTHORIZATION_FAILED, "no")


def test_546_32_a_stored_fraction_is_asked_for_in_the_released_words() -> None:
    text = f"request_percentage:percent=12.75 of {{user=alice}} {d.NO_FRACTIONS}"

    def refuse(request: Any) -> Any:
        return d.DescribeQuotasResponse(
            (d.DescribedQuota(part(ALICE), "request_percentage", "percent", 0, 42, text),)
        )

    def refuse_effective(request: Any) -> Any:
        entry = d.EffectiveEntry(request.entity, (), 42, text)
        return d.DescribeEffectiveQuotasResponse((entry,))

    def released(request: Any) -> Any:
        return described(({"user": "alice"}, {"request_percentage": 12.75}))

    with (
        FakeBroker(ADMIN_LISTENER, {48: refuse, 49: refuse_effective}) as admin,
        FakeBroker(RELEASED, {48: released, 49: altered}) as data,
    ):
        with AdminClient(f"{admin.address},{data.address}") as client:
            assert client.describe_quotas().entities().result(60) == {ALICE: {REQUEST: 12.75}}
            values = client.describe_effective_quotas([ALICE]).config()[ALICE].result(60)
            assert values[REQUEST].entry == Entry(ALICE, 12.75)
            entry = AlterQuotasEntry(ALICE, [Op(REQUEST, 33.3)])
            client.alter_quotas([entry]).all().result(60)
        with (
            AdminClient(admin.address) as client,
            pytest.raises(ApiError, match=r"request_percentage:percent=12\.75"),
        ):
            client.describe_quotas().entities().result(60)
    assert data.asked(49)[0].entries[0].ops == (q.AlterOp("request_percentage", 33.3, False),)


def test_546_32_a_fraction_alone_is_refused_with_the_way_out_and_the_rest_goes() -> None:
    def answer(request: Any) -> Any:
        return d.AlterQuotasResponse(tuple(d.DraftAlteredEntry(e.entity) for e in request.entries))

    bob = QuotaEntity.of(user="bob")
    with FakeBroker(ADMIN_LISTENER, {50: answer}) as broker, AdminClient(broker.address) as client:
        result = client.alter_quotas(
            [
                AlterQuotasEntry(ALICE, [Op(REQUEST, 12.75)]),
                AlterQuotasEntry(bob, [Op(PRODUCER, 2.0**63)]),
            ]
        )
        assert result.values()[bob].result(60) is None
        with pytest.raises(ApiError, match=r"request_percentage:percent=12\.75 of \{user=alice\}"):
            result.values()[ALICE].result(60)
    [request] = broker.asked(50)
    assert [op.value for entry in request.entries for op in entry.ops] == [2**63 - 1]

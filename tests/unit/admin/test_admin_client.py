from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headgate.admin import (
    DEFAULT,
    AdminClient,
    AlterQuotasEntry,
    AlterQuotasOptions,
    AsyncAdminClient,
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
from headgate.cli.kafka_configs import kafka_configs
from headgate.errors import ApiError, ConfigError, InvalidQuota, KafkaError, StoreError
from headgate.quota.alteration import is_ip_literal
from headgate.quota.key import CONNECTION, CONSUMER, PRODUCER, PRODUCER_BPS, REQUEST
from headgate.store.sqlite.store import SqliteStore
from headgate.store.synonyms import broker_synonyms

CASES = Path(__file__).parents[2] / "data/cases"
FILTERS: dict[str, Any] = json.loads((CASES / "describe_filters.json").read_text())
ALTER: dict[str, Any] = json.loads((CASES / "alter_validation.json").read_text())
EDGES: dict[str, Any] = json.loads((CASES / "resolution_edges.json").read_text())
KINDS = {0: MatchType.EXACT, 1: MatchType.DEFAULT, 2: MatchType.ANY}


def entity(entries: dict[str, str | None]) -> QuotaEntity:
    return QuotaEntity({t: DEFAULT if name is None else name for t, name in entries.items()})


def components(case: dict[str, Any]) -> list[FilterComponent]:
    return [
        FilterComponent(c["entity_type"], KINDS.get(c["match_type"], c["match_type"]), c["match"])
        for c in case["components"]
    ]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    with SqliteStore(tmp_path / "quotas.db", resolve=is_ip_literal) as store:
        yield store


@pytest.fixture
def client(store: SqliteStore) -> Iterator[AdminClient]:
    with AdminClient(store=store) as client:
        yield client


def put(client: AdminClient, entity: QuotaEntity, **values: float) -> None:
    ops = [Op(QuotaKey.parse(key), value) for key, value in values.items()]
    client.alter_quotas([AlterQuotasEntry(entity, ops)]).all().result(60)


# --- alter


@pytest.mark.parametrize(
    "case", ALTER["cases"], ids=lambda case: f"{case['entity']} {case['key']}={case['value']}"
)
def test_alterations_are_judged_as_the_controller_judges_them(
    case: dict[str, Any], client: AdminClient
) -> None:
    asked = entity(case["entity"])
    entry = AlterQuotasEntry(asked, [Op(QuotaKey.parse(case["key"]), case["value"])])
    future = client.alter_quotas([entry]).values()[asked]
    error = future.exception(60)
    if case["error"] == 0:
        assert error is None
        return
    assert isinstance(error, ApiError)
    assert (int(error.code), error.message) == (case["error"], case["message"])


def test_each_entity_has_its_own_future_and_all_fails_with_the_first_error(
    client: AdminClient,
) -> None:
    good, bad = QuotaEntity.of(user="good"), QuotaEntity.of(user="bad")
    result = client.alter_quotas(
        [AlterQuotasEntry(bad, [Op(PRODUCER, 0)]), AlterQuotasEntry(good, [Op(PRODUCER, 5)])]
    )
    assert result.values()[good].result(60) is None
    with pytest.raises(ApiError, match="must be greater than 0"):
        result.values()[bad].result(60)
    with pytest.raises(ApiError, match="must be greater than 0"):
        result.all().result(60)
    assert set(client.describe_quotas().entities().result(60)) == {good}


def test_a_duplicate_entity_is_applied_once_and_reported(client: AdminClient) -> None:
    asked = QuotaEntity.of(user="u")
    result = client.alter_quotas(
        [AlterQuotasEntry(asked, [Op(PRODUCER, 5)]), AlterQuotasEntry(asked, [Op(PRODUCER, 6)])]
    )
    error = result.values()[asked].exception(60)
    assert str(error).startswith(ALTER["duplicates"][0]["message_prefix"])
    assert client.describe_quotas().entities().result(60) == {asked: {PRODUCER: 5}}


def test_validate_only_changes_nothing(client: AdminClient) -> None:
    asked = QuotaEntity.of(user="u")
    options = AlterQuotasOptions(validate_only=True)
    result = client.alter_quotas([AlterQuotasEntry(asked, [Op(PRODUCER, 5)])], options)
    result.all().result(60)
    assert client.describe_quotas().entities().result(60) == {}


def test_546_6_a_value_alters_none_removes_and_no_entries_is_no_mistake(
    client: AdminClient,
) -> None:
    asked = QuotaEntity.of(user="u")
    put(client, asked, producer_byte_rate=5, request_percentage=12.75)
    client.alter_quotas([AlterQuotasEntry(asked, [Op(PRODUCER, None)])]).all().result(60)
    assert client.describe_quotas().entities().result(60) == {asked: {REQUEST: 12.75}}
    assert client.alter_quotas([]).all().result(60) is None


def test_the_history_says_who_and_by_which_tool(store: SqliteStore) -> None:
    with AdminClient(store=store, who="ops", tool="ansible") as client:
        put(client, QuotaEntity.of(user="u"), producer_byte_rate=5)
    assert [(entry.who, entry.tool) for entry in store.history.entries()] == [("ops", "ansible")]


# --- describe


@pytest.fixture
def filled(client: AdminClient) -> AdminClient:
    entries = [
        AlterQuotasEntry(
            entity(row["entity"]),
            [Op(QuotaKey.parse(key), value) for key, value in row["values"].items()],
        )
        for row in FILTERS["entities"]
    ]
    client.alter_quotas(entries).all().result(60)
    return client


@pytest.mark.parametrize("case", FILTERS["filters"], ids=str)
def test_released_filters_match_as_kafka_matches(case: dict[str, Any], filled: AdminClient) -> None:
    result = filled.describe_client_quotas(components(case), strict=case["strict"])
    found = result.entities().result(60)
    wanted = [FILTERS["entities"][i] for i in case["expected_entity_indexes"]]
    assert found == {
        entity(row["entity"]): {QuotaKey.parse(k): v for k, v in row["values"].items()}
        for row in wanted
    }
    assert len(found) == case["expected_count"]


@pytest.mark.parametrize("case", FILTERS["errors"], ids=str)
def test_bad_filters_have_kafkas_texts(case: dict[str, Any], filled: AdminClient) -> None:
    with pytest.raises(ApiError) as caught:
        filled.describe_client_quotas(components(case)).entities().result(60)
    assert int(caught.value.code) == case["error"]
    if "message" in case:
        assert caught.value.message == case["message"]
    else:
        assert case["message_contains"] in str(caught.value.message)


def test_546_5_describe_is_config_centric_filters_are_anded_and_none_is_everything(
    filled: AdminClient,
) -> None:
    def found(*filters: QuotaFilter) -> set[QuotaEntity]:
        return set(filled.describe_quotas(list(filters)).entities().result(60))

    assert len(found()) == len(FILTERS["entities"])
    pair = QuotaEntity.of(user="user-1", client_id="client-id-1")
    prefix = QuotaFilter("client-id", QuotaFilter.Rule.PREFIX, "client-")
    exact = QuotaFilter("user", QuotaFilter.Rule.EXACT, "user-1")
    assert found(exact, prefix) == {pair}
    # The same type twice: both must hold.
    assert found(QuotaFilter("user", "PREFIX", "user-"), exact, prefix) == {pair}
    assert found(QuotaFilter("user", "EXACT", "user-2"), exact) == set()


def test_546_14_exact_with_the_constant_selects_the_default(filled: AdminClient) -> None:
    chosen = filled.describe_quotas([QuotaFilter("user", "EXACT", "")]).entities().result(60)
    assert all(found.user is DEFAULT for found in chosen)
    assert len(chosen) == 2
    every = filled.describe_quotas([QuotaFilter("user", "PREFIX", "")]).entities().result(60)
    assert not any(found.user is DEFAULT for found in every)


def test_546_38_an_unknown_type_is_refused_by_a_store(client: AdminClient) -> None:
    with pytest.raises(ApiError) as caught:
        client.describe_quotas([QuotaFilter("GROUP", "EXACT", "g")]).entities().result(60)
    assert caught.value.code == KafkaError.INVALID_REQUEST
    assert "GROUP" in str(caught.value)
    asked = QuotaEntity({"GROUP": "g"})
    with pytest.raises(ApiError, match="Unhandled client quota entity type: GROUP"):
        client.describe_effective_quotas([asked]).config()[asked].result(60)


# --- effective


def test_546_16_effective_values_have_their_source_and_what_they_override(
    client: AdminClient,
) -> None:
    put(client, QuotaEntity.of(user=DEFAULT), producer_byte_rate=1, consumer_byte_rate=2)
    put(client, QuotaEntity.of(client_id="etl"), producer_byte_rate=3)
    put(client, QuotaEntity.of(user="alice"), producer_byte_rate=4)
    alice = QuotaEntity.of(user="alice", client_id="etl")
    bob = QuotaEntity.of(user="bob", client_id="etl")
    result = client.describe_effective_quotas([alice, bob])
    assert result.all().result(60) is None
    user, default = QuotaEntity.of(user="alice"), QuotaEntity.of(user=DEFAULT)
    etl = QuotaEntity.of(client_id="etl")
    assert result.config()[alice].result(60) == {
        PRODUCER: Value(Entry(user, 4.0), (Entry(default, 1.0), Entry(etl, 3.0))),
        CONSUMER: Value(Entry(default, 2.0), ()),
    }
    assert result.config()[bob].result(60)[PRODUCER].entry == Entry(default, 1.0)
    options = DescribeEffectiveQuotasOptions(omit_overridden_values=True)
    short = client.describe_effective_quotas([alice], options).config()[alice].result(60)
    assert short[PRODUCER] == Value(Entry(user, 4.0), None)


def test_an_address_falls_back_to_the_default_ip(client: AdminClient) -> None:
    put(client, QuotaEntity.of(ip=DEFAULT), connection_creation_rate=7)
    asked = QuotaEntity.of(ip="10.0.0.9")
    values = client.describe_effective_quotas([asked]).config()[asked].result(60)
    assert values == {CONNECTION: Value(Entry(QuotaEntity.of(ip=DEFAULT), 7.0), ())}


@pytest.mark.parametrize("case", EDGES["cases"], ids=str)
def test_546_3_effective_is_what_the_two_step_algorithm_enforces(
    case: dict[str, Any], client: AdminClient
) -> None:
    for user, client_id, quota in case["updates"]:
        parts = {"user": user, "client-id": client_id}
        written = QuotaEntity(
            {t: DEFAULT if n == "<default>" else n for t, n in parts.items() if n is not None}
        )
        client.alter_quotas([AlterQuotasEntry(written, [Op(PRODUCER, quota)])]).all().result(60)
    asked = QuotaEntity({"user": case["user"], "client-id": case["client_id"]})
    values = client.describe_effective_quotas([asked]).config()[asked].result(60)
    limit = None if case["limit"] is None else float(case["limit"])
    assert (values[PRODUCER].entry.value if PRODUCER in values else None) == limit


def test_546_3_a_note_says_where_enforcement_departs_from_precedence(client: AdminClient) -> None:
    put(client, QuotaEntity.of(user="u", client_id=DEFAULT), producer_byte_rate=5)
    put(client, QuotaEntity.of(user="u"), producer_byte_rate=6)
    nameless = QuotaEntity({"user": "u", "client-id": ""})
    named = QuotaEntity({"user": "u", "client-id": "c"})
    config = client.describe_effective_quotas([nameless, named]).config()
    departs = config[nameless].result(60)[PRODUCER]
    assert departs.entry == Entry(QuotaEntity.of(user="u"), 6.0)
    assert departs.note is not None
    assert "{user=u, client-id=<default>} matches by precedence" in departs.note
    agrees = config[named].result(60)[PRODUCER]
    assert (agrees.entry.value, agrees.note) == (5.0, None)


# --- the client itself


def test_a_client_needs_a_store_or_servers_and_not_both(store: SqliteStore) -> None:
    with pytest.raises(ConfigError, match="one of them"):
        AdminClient()
    with pytest.raises(ConfigError, match="one of them"):
        AdminClient("localhost:9092", store=store)


def test_what_opening_says_reaches_every_future(tmp_path: Path) -> None:
    asked = QuotaEntity.of(user="u")
    with AdminClient(store=f"sqlite:{tmp_path}/no/such/folder.db") as client:
        with pytest.raises(StoreError, match="there is no folder"):
            client.describe_quotas().entities().result(60)
        result = client.alter_quotas([AlterQuotasEntry(asked, [Op(PRODUCER, 5)])])
        with pytest.raises(StoreError):
            result.values()[asked].result(60)
        with pytest.raises(StoreError):
            result.all().result(60)


def test_a_closed_client_says_so(store: SqliteStore) -> None:
    client = AdminClient(store=store)
    client.close()
    client.close()
    with pytest.raises(RuntimeError, match="closed"):
        client.describe_quotas()
    assert len(store.snapshot()) == 0  # a store that was given stays open


async def test_the_async_twin_does_the_same(store: SqliteStore) -> None:
    asked = QuotaEntity.of(user="u", client_id="c")
    async with AsyncAdminClient(store=store) as client:
        altered = client.alter_quotas([AlterQuotasEntry(asked, [Op(PRODUCER_BPS, 5)])])
        await altered.all()
        await altered.values()[asked]
        assert await client.describe_quotas().entities() == {asked: {PRODUCER_BPS: 5}}
        strict = client.describe_client_quotas([], strict=True)
        assert await strict.entities() == {}
        effective = client.describe_effective_quotas([asked])
        await effective.all()
        assert (await effective.config()[asked])[PRODUCER_BPS].entry == Entry(asked, 5)
        bad = client.alter_quotas([AlterQuotasEntry(asked, [Op(PRODUCER, -1)])])
        with pytest.raises(ApiError):
            await bad.all()


async def test_closing_ends_where_a_call_has_just_ended(store: SqliteStore) -> None:
    async def call() -> None:
        pass

    client = AsyncAdminClient(store=store)
    client.start(call())
    await asyncio.sleep(0)  # it runs; that it has ended is told in the loop's next round
    assert [task.done() for task in client._tasks] == [True]
    # Python 3.12 and 3.13 spun here for ever; the test's time limit ends that.
    await client.close()


def test_a_slow_store_times_out(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    from headgate.admin import DescribeQuotasOptions

    release = threading.Event()
    monkeypatch.setattr(store, "snapshot", lambda: release.wait(60))
    with AdminClient(store=store) as client:
        result = client.describe_quotas((), DescribeQuotasOptions(timeout_ms=20))
        error = result.entities().exception(60)
        release.set()
    assert isinstance(error, ApiError)
    assert (error.code, error.message) == (
        KafkaError.REQUEST_TIMED_OUT,
        "no answer within 20 ms",
    )


# --- brokers


def test_broker_settings_have_sources_and_synonyms(client: AdminClient) -> None:
    client.alter_configs("", {"max.connection.creation.rate": "100"})
    client.alter_configs("1", {"max.connection.creation.rate": "10", "max.connections": "5"})
    client.alter_configs("1", {"max.connections": None})
    [entry] = client.describe_configs("1")
    assert (entry.name, entry.value, entry.source, entry.sensitive) == (
        "max.connection.creation.rate",
        "10",
        "DYNAMIC_BROKER_CONFIG",
        False,
    )
    assert [(s.source, s.value) for s in entry.synonyms] == [
        ("DYNAMIC_BROKER_CONFIG", "10"),
        ("DYNAMIC_DEFAULT_BROKER_CONFIG", "100"),
        ("DEFAULT_CONFIG", "2147483647"),
    ]
    [inherited] = client.describe_configs("2")
    assert (inherited.value, inherited.source) == ("100", "DYNAMIC_DEFAULT_BROKER_CONFIG")
    [default] = client.describe_configs("")
    assert default.source == "DYNAMIC_DEFAULT_BROKER_CONFIG"
    assert client.names() == ["1"]


# As kafka-configs 4.3.1 printed it, of a broker and of the default, with these settings in force.
SYNONYMS = """
listener.name.plaintext.max.connections=50 sensitive=false synonyms={DYNAMIC_BROKER_CONFIG:listener.name.plaintext.max.connections=50, DYNAMIC_BROKER_CONFIG:max.connections=501, DYNAMIC_DEFAULT_BROKER_CONFIG:listener.name.plaintext.max.connections=70, DYNAMIC_DEFAULT_BROKER_CONFIG:max.connections=600, DEFAULT_CONFIG:max.connections=2147483647}
listener.name.sasl_plaintext.max.connection.creation.rate=7 sensitive=false synonyms={DYNAMIC_BROKER_CONFIG:listener.name.sasl_plaintext.max.connection.creation.rate=7, DYNAMIC_DEFAULT_BROKER_CONFIG:max.connection.creation.rate=100, DEFAULT_CONFIG:max.connection.creation.rate=2147483647}
max.connections=501 sensitive=false synonyms={DYNAMIC_BROKER_CONFIG:max.connections=501, DYNAMIC_DEFAULT_BROKER_CONFIG:max.connections=600, DEFAULT_CONFIG:max.connections=2147483647}
max.connections.per.ip=9 sensitive=false synonyms={DYNAMIC_BROKER_CONFIG:max.connections.per.ip=9, DEFAULT_CONFIG:max.connections.per.ip=2147483647}
max.connections.per.ip.overrides=127.0.0.1:8 sensitive=false synonyms={DYNAMIC_BROKER_CONFIG:max.connections.per.ip.overrides=127.0.0.1:8, DEFAULT_CONFIG:max.connections.per.ip.overrides=}
"""  # noqa: E501
DEFAULT_SYNONYMS = """
listener.name.plaintext.max.connection.creation.rate=90 sensitive=false synonyms={DYNAMIC_DEFAULT_BROKER_CONFIG:listener.name.plaintext.max.connection.creation.rate=90, DYNAMIC_DEFAULT_BROKER_CONFIG:max.connection.creation.rate=100}
listener.name.plaintext.max.connections=70 sensitive=false synonyms={DYNAMIC_DEFAULT_BROKER_CONFIG:listener.name.plaintext.max.connections=70, DYNAMIC_DEFAULT_BROKER_CONFIG:max.connections=600}
max.connection.creation.rate=100 sensitive=false synonyms={DYNAMIC_DEFAULT_BROKER_CONFIG:max.connection.creation.rate=100}
max.connections=600 sensitive=false synonyms={DYNAMIC_DEFAULT_BROKER_CONFIG:max.connections=600}
"""  # noqa: E501


def test_synonyms_of_broker_settings_are_the_tools(
    store: SqliteStore, capsys: pytest.CaptureFixture[str]
) -> None:
    listener = "listener.name.plaintext."
    default = {
        "max.connections": "600",
        "max.connection.creation.rate": "100",
        f"{listener}max.connections": "70",
        f"{listener}max.connection.creation.rate": "90",
    }
    own = {
        "max.connections": "501",
        f"{listener}max.connections": "50",
        "listener.name.sasl_plaintext.max.connection.creation.rate": "7",
        "max.connections.per.ip": "9",
        "max.connections.per.ip.overrides": "127.0.0.1:8",
    }
    store.broker_settings.alter("", default)
    store.broker_settings.alter("1", own)
    words = ["--store", store.url, "--describe", "--entity-type", "brokers"]
    assert kafka_configs.main(words) == 0
    assert [line.strip() for line in capsys.readouterr().out.splitlines()] == [
        "Dynamic configs for broker 1 are:",
        *SYNONYMS.split("\n")[1:-1],
        "Default configs for brokers in the cluster are:",
        *DEFAULT_SYNONYMS.split("\n")[1:-1],
    ]


def test_a_gateways_own_settings_have_the_same_synonyms(store: SqliteStore) -> None:
    dynamic = {"1": {"listener.name.x.max.connections": "5"}, "": {"max.connections": "9"}}
    static = {"max.connections": "7", "max.connections.per.ip": "3"}
    told = broker_synonyms("1", dynamic, static)
    assert told["listener.name.x.max.connections"] == (
        ("DYNAMIC_BROKER_CONFIG", "listener.name.x.max.connections", "5"),
        ("DYNAMIC_DEFAULT_BROKER_CONFIG", "max.connections", "9"),
        ("STATIC_BROKER_CONFIG", "max.connections", "7"),
        ("DEFAULT_CONFIG", "max.connections", "2147483647"),
    )
    assert told["max.connection.creation.rate"] == (
        ("DEFAULT_CONFIG", "max.connection.creation.rate", "2147483647"),
    )
    assert set(broker_synonyms("", dynamic, static)) == {"max.connections"}


def test_a_store_refuses_what_it_does_not_keep_with_the_way_out(client: AdminClient) -> None:
    with pytest.raises(ApiError, match="isn't a setting kept here"):
        client.alter_configs("1", {"log.retention.ms": "5"})
    with pytest.raises(InvalidQuota, match="use --bootstrap-server"):
        client.describe_configs("t", "topics")
    with pytest.raises(InvalidQuota, match="SCRAM credentials are kept by Kafka"):
        client.alter_user_scram_credentials("alice", (), ["SCRAM-SHA-256"])
    assert client.describe_user_scram_credentials() == {}


def test_a_dict_is_an_entity_and_text_a_key(client: AdminClient) -> None:
    pair = QuotaEntity.of(user="alice", client_id=DEFAULT)
    entries = [
        AlterQuotasEntry({"user": "alice", "client-id": None}, {"producer_byte_rate": 5}),
        AlterQuotasEntry(
            {"user": "bob"}, [Op("producer_byte_rate:bps", 6), ("consumer_byte_rate", 7)]
        ),
    ]
    result = client.alter_quotas(entries)
    result.all().result(60)
    assert set(result.values()) == {pair, QuotaEntity.of(user="bob")}
    assert client.describe_quotas().entities().result(60) == {
        pair: {PRODUCER: 5.0},
        QuotaEntity.of(user="bob"): {PRODUCER_BPS: 6.0, CONSUMER: 7.0},
    }
    asked = client.describe_effective_quotas([{"user": "alice", "client-id": "x"}])
    values = asked.config()[QuotaEntity.of(user="alice", client_id="x")].result(60)
    assert values[PRODUCER].entry == Entry(pair, 5.0)


ALICE = QuotaEntity.of(user="alice")


@pytest.mark.parametrize(
    ("entries", "text"),
    [
        (AlterQuotasEntry(ALICE, []), "a collection of entries is asked for"),
        ([(ALICE,)], "an entry is AlterQuotasEntry"),
        ([ALICE], "an entry is AlterQuotasEntry"),
        ([("alice", [])], "an entity is QuotaEntity.of"),
        ([({"user": 5}, [])], "the name of a user is text, or None for the default, not 5"),
        ([(ALICE, ["producer_byte_rate"])], "an op is Op"),
        ([(ALICE, [(5, 5)])], "a key is QuotaKey"),
        ([(ALICE, {"producer_byte_rate": "5"})], "the value of producer_byte_rate:broker_bps is a"),
        ([(ALICE, {"producer_byte_rate": True})], "is a number, or None to clear it, not True"),
    ],
)
def test_what_cannot_be_meant_says_what_to_write(
    client: AdminClient, entries: Any, text: str
) -> None:
    with pytest.raises(TypeError) as caught:
        client.alter_quotas(entries)
    assert text in str(caught.value)
    assert client.describe_quotas().entities().result(60) == {}


def test_entities_and_filters_too_say_what_to_write(client: AdminClient) -> None:
    for entities in (ALICE, {"user": "alice"}, "alice", ["alice"], [5]):
        with pytest.raises(TypeError, match="entit"):
            client.describe_effective_quotas(entities)
    for filters in (QuotaFilter("user", "EXACT", "a"), [{"user": "a"}], ["user"]):
        with pytest.raises(TypeError, match="filter"):
            client.describe_quotas(filters)
    with pytest.raises(ApiError, match="Unknown rule SUFFIX; there are EXACT and PREFIX"):
        client.describe_quotas([QuotaFilter("user", "SUFFIX", "a")])


def test_settings_that_do_not_exist_are_refused_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        AdminClient(
            "localhost:1",
            config={"secure.protocol": "SSL", "sasl.mechanisme": "PLAIN", "retries": "5", "x": "y"},
        )
    assert caught.value.problems == (
        "unknown setting secure.protocol; did you mean security.protocol?",
        "unknown setting sasl.mechanisme; did you mean sasl.mechanism?",
        "unknown setting x",
    )


def test_546_39_the_enums_names_as_text_are_keys_for_a_store_too(client: AdminClient) -> None:
    pair = QuotaEntity.of(user="alice", client_id=DEFAULT)
    for given in (
        {"CLIENT_ID": None, "USER": "alice"},
        QuotaEntity({"USER": "alice", "CLIENT_ID": DEFAULT}),
    ):
        client.alter_quotas(
            [AlterQuotasEntry(given, {"PRODUCER_BYTE_RATE:RATE_BPS": 5})]
        ).all().result(60)
        op = Op(QuotaKey("CONSUMER_BYTE_RATE", "RATE_BPS"), 7)
        client.alter_quotas([AlterQuotasEntry(given, [op])]).all().result(60)
        found = (
            client.describe_quotas([QuotaFilter("USER", "EXACT", "alice")]).entities().result(60)
        )
        assert found == {pair: {PRODUCER_BPS: 5.0, QuotaKey("consumer_byte_rate", "bps"): 7.0}}
        values = client.describe_effective_quotas([given]).config()[pair].result(60)
        assert values[PRODUCER_BPS].entry.source == pair
        client.alter_quotas(
            [AlterQuotasEntry(given, {PRODUCER_BPS: None, op.key: None})]
        ).all().result(60)


def test_546_39_a_type_given_twice_and_a_match_of_none_are_named(client: AdminClient) -> None:
    with pytest.raises(ApiError, match="entity type user is given twice"):
        client.alter_quotas([AlterQuotasEntry({"user": "a", "USER": "b"}, {PRODUCER: 5})])
    with pytest.raises(InvalidQuota, match="given twice: user, USER"):
        QuotaEntity({"user": "a", "USER": "b"})
    with pytest.raises(ApiError, match="match of the filter on user is None") as refused:
        client.describe_quotas([QuotaFilter("user", "EXACT", None)])  # type: ignore[arg-type]
    assert refused.value.code == KafkaError.INVALID_REQUEST


def test_546_40_rate_bps_is_a_types_own_unit_in_the_library(client: AdminClient) -> None:
    alice = QuotaEntity.of(user="alice")
    key = QuotaKey(QuotaKey.Type.REQUEST_PERCENTAGE, QuotaKey.Units.RATE_BPS)
    client.alter_quotas([AlterQuotasEntry(alice, [Op(key, 50)])]).all().result(60)
    found = client.describe_quotas([]).entities().result(60)
    assert found == {alice: {REQUEST: 50.0}}


def test_546_32_a_whole_number_that_no_double_holds_is_refused(client: AdminClient) -> None:
    alice = QuotaEntity.of(user="alice")
    with pytest.raises(ApiError, match="none holds 9007199254740993") as refused:
        client.alter_quotas([AlterQuotasEntry(alice, {PRODUCER: 2**53 + 1})])
    assert refused.value.code == KafkaError.INVALID_REQUEST
    client.alter_quotas([AlterQuotasEntry(alice, {PRODUCER: 2**63 - 1})]).all().result(60)
    assert client.describe_quotas([]).entities().result(60) == {alice: {PRODUCER: 2.0**63}}


def test_546_41_units_that_a_type_has_not_are_refused_by_both_names(client: AdminClient) -> None:
    alice = QuotaEntity.of(user="alice")
    wrong = QuotaKey("request_percentage", "shares")
    with pytest.raises(
        ApiError, match="request_percentage isn't counted in shares, but in percent"
    ):
        client.alter_quotas([AlterQuotasEntry(alice, {wrong: 5})]).all().result(60)


def test_settings_given_as_other_clients_take_them_are_told_what_to_write() -> None:
    with pytest.raises(TypeError, match=r"AdminClient\(config=\{'bootstrap.servers': …\}\)"):
        AdminClient({"bootstrap.servers": "localhost:9092"})  # type: ignore[arg-type]

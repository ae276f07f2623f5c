"""Quotas at the edges of their rules: empty and default names, limits, what a plan takes."""

from __future__ import annotations

import pytest

from headgate.errors import InvalidQuota, KafkaError
from headgate.java_text import java_bucket
from headgate.quota.alteration import (
    Op,
    QuotaAlteration,
    entity_error,
    is_ip_literal,
    request_error,
    validate,
    value_error,
)
from headgate.quota.entity import (
    DEFAULT,
    QuotaEntity,
    canonical_entity_type,
    entity_from_path,
    parse_entity,
)
from headgate.quota.file import dump_quotas, parse_quotas
from headgate.quota.filter import FilterComponent, MatchType, QuotaFilter, matches
from headgate.quota.human import human, read_value
from headgate.quota.key import (
    CONNECTION,
    CONSUMER,
    KEYS,
    MUTATION,
    PRODUCER,
    PRODUCER_BPS,
    PRODUCER_IDS,
    PRODUCER_SHARES,
    REQUEST,
    QuotaKey,
)
from headgate.quota.plan import diff, effective_changes, known_clients, plan_of, touches
from headgate.quota.precedence import (
    STATIC_DEFAULT,
    Overridden,
    Source,
    resolve,
    resolve_entity,
)
from headgate.quota.sanitizer import desanitize
from headgate.quota.table import QuotaTable, TableChange, table_delta

ALICE, BOB = QuotaEntity.of(user="alice"), QuotaEntity.of(user="bob")
ANY_USER, ANY_CLIENT = QuotaEntity.of(user=DEFAULT), QuotaEntity.of(client_id=DEFAULT)
ANY_PAIR = QuotaEntity.of(user=DEFAULT, client_id=DEFAULT)
ETL = QuotaEntity.of(client_id="etl")


# -- precedence

EVERY_LEVEL = {
    QuotaEntity.of(user="u", client_id="c"): 1.0,
    QuotaEntity.of(user="u", client_id=DEFAULT): 2.0,
    QuotaEntity.of(user="u"): 3.0,
    QuotaEntity.of(user=DEFAULT, client_id="c"): 4.0,
    ANY_PAIR: 5.0,
    ANY_USER: 6.0,
    QuotaEntity.of(client_id="c"): 7.0,
    ANY_CLIENT: 8.0,
}


@pytest.mark.parametrize(
    ("asked", "levels", "static_too"),
    [
        (QuotaEntity.of(user="u", client_id="c"), [1, 2, 3, 4, 5, 6, 7, 8], True),
        (QuotaEntity.of(user="u", client_id=DEFAULT), [2, 3, 5, 6, 8], True),
        (QuotaEntity.of(user=DEFAULT, client_id="c"), [4, 5, 6, 7, 8], True),
        (ANY_PAIR, [5, 6, 8], True),
        (QuotaEntity.of(user="u"), [3, 6], False),
        (ANY_USER, [6], False),
        (QuotaEntity.of(client_id="c"), [7, 8], True),
        (ANY_CLIENT, [8], True),
    ],
)
def test_an_entity_meets_its_levels_once_each_and_in_order(
    asked: QuotaEntity, levels: list[int], static_too: bool
) -> None:
    """KIP-55's table, level by level: the next applies where the one before has no quota."""
    number = {entity: int(value) for entity, value in EVERY_LEVEL.items()}
    left = dict(EVERY_LEVEL)
    for place, level in enumerate(levels):
        table = QuotaTable.of({e: {PRODUCER: v} for e, v in left.items()}, 0, {PRODUCER: 9.0})
        got = resolve_entity(table, asked, PRODUCER)
        assert got.value == level
        hidden: list[tuple[Source, float]] = [(o.source, o.value) for o in got.overridden]
        assert [value for _, value in hidden] == levels[place + 1 :] + [9.0] * static_too
        user_tag, client_tag = level <= 6, level in (1, 2, 4, 5, 7, 8)
        name = {None: "", DEFAULT: "<default>"}
        assert got.tags == (
            name.get(asked.user, str(asked.user)) if user_tag else "",
            name.get(asked.client_id, str(asked.client_id)) if client_tag else "",
        )
        left = {e: v for e, v in left.items() if number[e] != level}
    last = resolve_entity(
        QuotaTable.of({e: {PRODUCER: v} for e, v in left.items()}, 0, {PRODUCER: 9.0}),
        asked,
        PRODUCER,
    )
    static = (9.0, STATIC_DEFAULT) if static_too else (None, None)
    assert (last.value, last.source, last.overridden) == (*static, ())


def test_without_names_only_defaults_apply_and_kafkas_choice_is_told() -> None:
    table = QuotaTable.of({entity: {PRODUCER: v} for entity, v in EVERY_LEVEL.items()})
    got = resolve(table, "", "", PRODUCER)
    assert (got.value, got.source, got.tags) == (None, None, ("", ""))
    assert got.note is not None
    assert got.note.endswith("an empty client-id has no client-id tag: nothing is enforced")
    told = resolve(table, "v", "", PRODUCER).note
    assert told is not None
    assert told.endswith(f"{ANY_USER} is enforced")
    assert resolve(table, "v", "c", PRODUCER).note is None
    assert Overridden(STATIC_DEFAULT, 9.0) not in got.overridden


# -- what may be set


@pytest.mark.parametrize(
    ("key", "largest", "beyond"),
    [
        (PRODUCER, 9223372036854774784.0, 9223372036854777856.0),
        (PRODUCER_BPS, 9223372036854774784.0, 9223372036854777856.0),
        (PRODUCER_SHARES, 9223372036854774784.0, 9223372036854777856.0),
        (CONNECTION, 2147483647.0, 2147483648.0),
        (REQUEST, 1e300, None),
        (MUTATION, 1e300, None),
        (PRODUCER_IDS, 1e300, None),
    ],
)
def test_values_are_those_of_kafkas_types(
    key: QuotaKey, largest: float, beyond: float | None
) -> None:
    entity = QuotaEntity.of(ip="10.0.0.1") if key is CONNECTION else ALICE
    whole = KEYS[key].value_type != "DOUBLE"
    for value in (1.0, 2.0, largest):
        assert value_error(entity, key, value) is None
    for value in (0.0, -1.0, float("nan")):
        refused = value_error(entity, key, value)
        assert refused is not None
        assert refused.code is KafkaError.INVALID_REQUEST
        assert "must be greater than 0" in str(refused)
    assert (value_error(entity, key, 1.5) is not None) is whole
    assert (value_error(entity, key, 1.00001) is not None) is whole
    assert value_error(entity, key, 1.0000001) is None  # a double's noise isn't a fraction
    if beyond is not None:
        assert "too large" in str(value_error(entity, key, beyond))
    other = ALICE if key is CONNECTION else QuotaEntity.of(ip="10.0.0.1")
    assert "Invalid configuration key" in str(value_error(other, key, 1.0))


def test_one_who_is_asked_about_may_be_nobody_and_one_who_is_set_may_not() -> None:
    nobody = QuotaEntity.of(user="u", client_id="")
    assert request_error(nobody) is None
    assert entity_error(nobody) is not None
    nowhere = QuotaEntity.of(ip="no.such.host.example")
    assert request_error(nowhere) is None
    assert entity_error(nowhere) is not None
    assert entity_error(nowhere, lambda _: True) is None
    assert request_error(QuotaEntity.of(ip=DEFAULT)) is None
    for bad in (QuotaEntity({}), QuotaEntity.of(ip="10.0.0.1", user="u"), QuotaEntity({"x": "y"})):
        assert request_error(bad) is not None
        assert entity_error(bad) is not None


def test_short_addresses_are_those_that_java_reads() -> None:
    good = ("0", "4294967295", "1.16777215", "1.2.65535", "1.2.3.255", "255.255.255.255", "::1")
    bad = (
        "4294967296",
        "1.16777216",
        "1.2.65536",
        "1.2.3.256",
        "256.1",
        "1.2.3.4.5",
        "",
        "1..2",
        "a",
    )
    assert [text for text in good if not is_ip_literal(text)] == []
    assert [text for text in bad if is_ip_literal(text)] == []


def test_an_entity_or_a_key_named_twice_is_refused_and_the_first_is_taken() -> None:
    once = QuotaAlteration.of(ALICE, [Op(PRODUCER, 1.0), Op(CONSUMER, 2.0)])
    assert once.ops == (Op(PRODUCER, 1.0), Op(CONSUMER, 2.0))
    again = QuotaAlteration.of(ALICE, [Op(PRODUCER, 3.0)])
    twice = QuotaAlteration.of(BOB, [Op(PRODUCER, 1.0), Op(PRODUCER, None)])
    results, accepted = validate([once, again, twice, QuotaAlteration.of(BOB, [Op(PRODUCER, 1.0)])])
    assert [result.error is None for result in results] == [True, False, False, False]
    assert accepted == [once]


# -- entities, keys and filters


def test_entities_are_one_whatever_their_order_and_sorted_named_before_default() -> None:
    one = QuotaEntity({"client-id": "c", "user": "u"})
    assert one == QuotaEntity({"user": "u", "client-id": "c"})
    assert one.types == ("user", "client-id")
    strange = QuotaEntity({"zone": "z", "ip": "i", "area": "a"})
    assert strange.types == ("ip", "area", "zone")
    asked = [ANY_USER, ALICE, ETL, ANY_CLIENT, QuotaEntity.of(user="z"), QuotaEntity.of(ip="1")]
    assert [str(entity) for entity in sorted(asked)] == [
        "{user=alice}", "{user=z}", "{user=<default>}",
        "{client-id=etl}", "{client-id=<default>}", "{ip=1}",
    ]  # fmt: skip
    assert QuotaEntity.of(user="u", client_id="c").java_text == (
        "ClientQuotaEntity(entries={client-id=c, user=u})"  # as Kafka 4.3.1 printed it
    )
    assert [java_bucket(name, 16) for name in ("user", "client-id", "ip", "")] == [13, 12, 7, 0]
    spelled = {"CLIENT_ID": "client-id", "USER": "user", "IP": "ip", "user": "user", "x": "x"}
    assert {name: canonical_entity_type(name) for name in spelled} == spelled
    assert desanitize("a%FF%41") == "a\ufffdA"  # what isn't UTF-8 is read as Java reads it
    assert parse_entity("{user=a%3Db}") == QuotaEntity.of(user="a=b")
    assert parse_entity("{user=a=b}") == QuotaEntity.of(user="a=b")


@pytest.mark.parametrize(
    "path",
    ["users", "users/", "users//clients/c", "users/a/clients//", "users/a/clients",
     "users/a/clients/", "users/a/users/b", "groups/a",
     "users/a/ips/1", "", "/", "users/a/clients/c/ips/1"],
)  # fmt: skip
def test_paths_of_nothing_are_refused(path: str) -> None:
    with pytest.raises(InvalidQuota, match="isn't the path of a quota entity"):
        entity_from_path(path)
    assert entity_from_path("/config/users/a/clients/c") == QuotaEntity.of(user="a", client_id="c")
    assert entity_from_path("/users/<default>/") == ANY_USER
    assert entity_from_path("users/X") == QuotaEntity.of(user="X")


def test_keys_are_spelled_as_kafka_and_java_do() -> None:
    assert QuotaKey.parse("PRODUCER_BYTE_RATE") == PRODUCER
    assert QuotaKey.parse("Producer_Byte_Rate") != PRODUCER
    assert QuotaKey.parse("UNKNOWN").type == "UNKNOWN"
    assert [str(key) for key in (PRODUCER, QuotaKey("unknown", ""))] == [
        "producer_byte_rate:broker_bps",
        "unknown",
    ]
    divided = {key for key in KEYS if key.is_divided}
    assert {key.units for key in divided} == {"bps", "shares"}
    assert len(divided) == 4


def test_a_filter_lets_pass_what_it_names() -> None:
    alice = QuotaFilter("user", "PREFIX", "ali").component()
    assert alice == FilterComponent("user", MatchType.PREFIX, "ali")
    assert matches([alice], ALICE)
    assert not matches([alice], BOB)
    assert not matches([alice], ANY_USER)
    assert matches([], ALICE)
    assert not matches([], ALICE, strict=True)
    assert not matches([], QuotaEntity({}), strict=True)
    assert not matches([alice], QuotaEntity.of(user="alice", client_id="c"), strict=True)


# -- tables and plans


def test_a_table_tells_what_is_in_it() -> None:
    table = QuotaTable.of({ALICE: {PRODUCER: 1.0}, ETL: {CONSUMER: 2.0}}, 5)
    assert not table.indexed
    assert table.keys() == tuple(sorted((PRODUCER, CONSUMER)))
    assert table.indexed
    with_static = table.with_static_defaults({REQUEST: 3.0})
    assert set(with_static.keys()) == {PRODUCER, CONSUMER, REQUEST}
    assert (with_static.version, with_static.with_version(7).version) == (5, 7)
    assert with_static.with_version(7) == with_static
    fresh = QuotaTable.of({ALICE: {PRODUCER: 1.0}, ETL: {PRODUCER: 2.0}})
    assert set(fresh.shapes_for_key(PRODUCER)) == {"user", "client-id"}
    wide = {QuotaEntity.of(user=f"u{i}"): {PRODUCER: 1.0} for i in range(900)}
    now = {**wide, ALICE: {PRODUCER: 1.0}}
    del now[QuotaEntity.of(user="u700")]
    assert table_delta(QuotaTable.of(wide, 1), QuotaTable.of(now, 2)) == (
        (
            TableChange(ALICE, PRODUCER, None, 1.0),
            TableChange(QuotaEntity.of(user="u700"), PRODUCER, 1.0, None),
        ),
        1,
        2,
    )


def test_a_plan_tells_how_much_it_removes() -> None:
    current = QuotaTable.of(
        {ALICE: {PRODUCER: 1.0, CONSUMER: 2.0}, BOB: {PRODUCER: 3.0, CONSUMER: 4.0}}
    )
    gone = [TableChange(ALICE, PRODUCER, 1.0, None), TableChange(ALICE, CONSUMER, 2.0, None)]
    half = plan_of(current, [*gone, TableChange(BOB, PRODUCER, 3.0, 5.0)])
    assert (half.removals, half.removes_most, half.unmentioned) == (2, False, ())
    assert half.desired == QuotaTable.of({BOB: {PRODUCER: 5.0, CONSUMER: 4.0}})
    most = plan_of(current, [*gone, TableChange(BOB, PRODUCER, 3.0, None)])
    assert (most.removals, most.removes_most) == (3, True)
    assert current.apply(most.alterations())[0] == most.desired
    assert diff(current, parse_quotas("quotas: []")).removals == 0


def test_whom_a_plan_may_concern_is_whom_quotas_name() -> None:
    tables = [
        QuotaTable.of({QuotaEntity.of(ip="10.0.0.1"): {CONNECTION: 1.0}, ALICE: {PRODUCER: 1.0}}),
        QuotaTable.of(
            {ETL: {PRODUCER: 2.0}, QuotaEntity.of(user="bob", client_id="x"): {PRODUCER: 1.0}}
        ),
    ]
    # The client-id of the change itself is any, so its client is anybody.
    assert known_clients(tables) == [
        QuotaEntity.of(user="alice", client_id=DEFAULT),
        QuotaEntity.of(user="bob", client_id="x"),
        QuotaEntity.of(user=DEFAULT, client_id="etl"),
    ]
    plan = plan_of(
        tables[1],
        [TableChange(ETL, PRODUCER, 2.0, 3.0), TableChange(ANY_CLIENT, CONSUMER, None, 1.0)],
    )
    told = [
        (line.client, line.key, line.before.value, line.after.value)
        for line in effective_changes(plan, [])
    ]
    assert told == [
        (QuotaEntity.of(user="bob", client_id="x"), CONSUMER, None, 1.0),
        (QuotaEntity.of(user=DEFAULT, client_id="etl"), CONSUMER, None, 1.0),
        (QuotaEntity.of(user=DEFAULT, client_id="etl"), PRODUCER, 2.0, 3.0),
        (ANY_PAIR, CONSUMER, None, 1.0),
    ]
    touched = touches(
        [
            TableChange(ALICE, PRODUCER, None, 1.0),
            TableChange(ETL, CONSUMER, None, 1.0),
            TableChange(ANY_USER, REQUEST, None, 1.0),
        ]
    )
    assert touched(QuotaEntity.of(user="alice", client_id="etl")) == sorted(
        (PRODUCER, CONSUMER, REQUEST)
    )
    assert touched(QuotaEntity.of(user="bob", client_id="etl")) == sorted((CONSUMER, REQUEST))
    assert touched(QuotaEntity.of(user="bob", client_id="c")) == [REQUEST]


# -- people's words


def test_values_said_and_read() -> None:
    said = {
        (PRODUCER, 999.0): "999 B/s",
        (PRODUCER, 1000.0): "1 kB/s",
        (PRODUCER, 999.96875): "1 kB/s",
        (PRODUCER, 999_960.0): "1 MB/s",
        (PRODUCER, 999.94): "999.9 B/s",
        (PRODUCER_BPS, 10_000_000.0): "10 MB/s in all",
        (PRODUCER, 5e15): "5000 TB/s",
        (PRODUCER, 2.0**63): "unlimited",
        (PRODUCER, None): "unlimited",
        (PRODUCER_SHARES, 3.0): "3 shares",
        (REQUEST, 50.0): "50 %",
        (CONNECTION, 20.0): "20/s",
        (QuotaKey("unknown", ""), 5.0): "5",
    }
    assert {at: human(*at) for at in said} == said
    assert read_value("0.5B/s", PRODUCER) == 0.5  # refused later, as a fraction
    assert read_value("1.2345678MB/s", PRODUCER) == 1_234_567.8
    assert read_value("0.7KiB/s", PRODUCER) == pytest.approx(716.8, abs=0)


@pytest.mark.parametrize("text", ["inf", ".inf", "+.INF", ".Inf", "Infinity", "1e400"])
def test_a_quota_without_an_end_is_read_back(text: str) -> None:
    """Kafka takes infinity as a request percentage; a snapshot that holds it must be readable."""
    read = parse_quotas(f"quotas:\n- entity: {{user: alice}}\n  request_percentage: {text}\n").table
    assert read.get(ALICE, REQUEST) == float("inf")
    assert parse_quotas(dump_quotas(read)).table == read


def test_a_file_keeps_its_note_and_names_its_lines() -> None:
    table = QuotaTable.of({ALICE: {PRODUCER: 1.0}})
    text = dump_quotas(table, note="mine")
    assert text.startswith("note: mine\n")
    assert parse_quotas(text).table == table
    assert not dump_quotas(table).startswith("\n")
    assert dump_quotas(table).startswith("quotas:")
    with pytest.raises(InvalidQuota, match=r"f\.yaml:2: "):
        parse_quotas("quotas:\n- a: b: c\n", "f.yaml")
    for bad in (
        "quotas:\n- entity: {user: [a]}\n",
        "quotas:\n- entity: [a]\n",
        "quotas:\n- 5\n",
        "- 5\n",
        "x: 1\n",
    ):
        with pytest.raises(InvalidQuota):
            parse_quotas(bad)
    for entity in ("{user: a, user: b}", "{ip: a, user: b}", "{}"):
        with pytest.raises(InvalidQuota, match=":2: "):
            parse_quotas(f"quotas:\n- entity: {entity}\n  producer_byte_rate: 1\n", "f")
    named = parse_quotas(
        "quotas:\n- entity: {ip: no.such.host.example}\n  connection_creation_rate: 1\n"
    )
    assert named.table.get(QuotaEntity.of(ip="no.such.host.example"), CONNECTION) == 1.0


def test_what_only_looks_like_it_is_not_taken() -> None:
    assert [e.has_default for e in (ALICE, ANY_USER, ANY_PAIR, ETL)] == [False, True, True, False]
    assert is_ip_literal("1.2.3.04")  # Java takes leading zeros
    for text in ("{user=a", "user=a}", "user=a", "{user}"):
        with pytest.raises(InvalidQuota):
            parse_entity(text)
    exact = QuotaFilter("user", "EXACT", "alice").component()
    assert exact == FilterComponent("user", MatchType.EXACT, "alice")
    assert desanitize("%41%2Ab") == "A*b"
    table = QuotaTable.of({ALICE: {PRODUCER: 1.0}})
    assert table != QuotaTable()
    assert table != QuotaTable.of({ALICE: {PRODUCER: 1.0}}, 0, {PRODUCER: 2.0})
    assert table != {ALICE: {PRODUCER: 1.0}}
    got = resolve(table, "alice", "", PRODUCER)
    assert (got.value, got.note) == (1.0, None)  # the level that matches is enforced

import json
from pathlib import Path

import pytest

from headgate.errors import InvalidQuota
from headgate.java_text import java_double, properties_order
from headgate.quota.entity import DEFAULT, QuotaEntity, entity_from_path
from headgate.quota.key import (
    CONNECTION,
    CONSUMER,
    MUTATION,
    PRODUCER,
    PRODUCER_BPS,
    PRODUCER_IDS,
    REQUEST,
)
from headgate.store.base import ChangeOrigin
from headgate.store.zookeeper.change import decode_history
from headgate.store.zookeeper.layout import (
    KAFKA_HOME,
    OWN_HOME,
    chain,
    decode_config,
    decode_notice,
    decode_values,
    encode_config,
    encode_notice,
    encode_value,
    home_of,
    node_name_error,
    noticed_entity,
)

# Recorded from Kafka 3.9.2 in ZooKeeper mode after a series of kafka-configs commands.
CAPTURE = json.loads(
    (Path(__file__).parents[2] / "data/store/zk-config-3.9.2.json").read_text(encoding="utf-8")
)
ENTITY_NODES = [n for n in CAPTURE if n["data"] and "/changes/" not in n["path"]]
NOTICES = [n for n in CAPTURE if "/config/changes/" in n["path"]]


def test_the_capture_is_what_the_tests_take_it_for() -> None:
    assert len(ENTITY_NODES) == 21
    assert len(NOTICES) == 33


@pytest.mark.parametrize("node", ENTITY_NODES, ids=lambda n: n["path"])
def test_55_21_an_entity_s_znode_is_written_byte_for_byte_as_kafka_wrote_it(
    node: dict[str, str],
) -> None:
    config = decode_config(node["data"].encode())
    backwards = dict(reversed(config.items()))
    assert encode_config(backwards) == node["data"].encode()


@pytest.mark.parametrize("node", ENTITY_NODES, ids=lambda n: n["path"])
def test_values_and_paths_are_spelled_as_kafka_spells_them(node: dict[str, str]) -> None:
    entity = entity_from_path(node["path"].removeprefix("/config/"))
    assert chain(KAFKA_HOME, entity.path)[-1] == node["path"]
    config = decode_config(node["data"].encode())
    values, problems = decode_values(KAFKA_HOME, config)
    assert problems == []
    assert {key.name: encode_value(key, value) for key, value in values.items()} == {
        name: text for name, text in config.items() if not name.startswith("SCRAM")
    }


@pytest.mark.parametrize("node", NOTICES, ids=lambda n: n["path"][-2:])
def test_55_22_notifications_are_byte_for_byte_kafka_s(node: dict[str, str]) -> None:
    path = decode_notice(node["data"].encode())
    assert path is not None
    assert encode_notice(path) == node["data"].encode()
    entity = noticed_entity(path)
    assert entity is not None
    assert entity.path == path


def test_55_22_kip_55_s_sample_notifications() -> None:
    samples = {
        "users/<default>": QuotaEntity.of(user=DEFAULT),
        "users/user1": QuotaEntity.of(user="user1"),
        "users/user2/clients/clientA": QuotaEntity.of(user="user2", client_id="clientA"),
        "clients/<default>": QuotaEntity.of(client_id=DEFAULT),
        "clients/clientA": QuotaEntity.of(client_id="clientA"),
    }
    for path, entity in samples.items():
        data = json.dumps({"version": 2, "entity_path": path}, indent=4).encode()
        noticed = decode_notice(data)
        assert noticed == path
        assert noticed_entity(path) == entity


def test_55_23_version_1_notifications_are_read() -> None:
    noticed = decode_notice(b'{"version":1,"entity_type":"clients","entity_name":"x"}')
    assert noticed == "clients/x"
    assert noticed_entity("clients/x") == QuotaEntity.of(client_id="x")


@pytest.mark.parametrize(
    "data",
    [None, b"", b"null", b"[]", b"{", b'{"version":3,"entity_path":"users/a"}', b'{"version":1}'],
)
def test_what_is_no_notification_is_none(data: bytes | None) -> None:
    assert decode_notice(data) is None


@pytest.mark.parametrize(
    ("path", "entity"),
    [
        ("users", QuotaEntity.of(user=DEFAULT)),
        ("clients", QuotaEntity.of(client_id=DEFAULT)),
        ("users/<default>/clients", QuotaEntity.of(user=DEFAULT, client_id=DEFAULT)),
        ("topics/t", None),
        ("brokers/1", None),
        ("users/a b", None),  # not as Kafka spells it, so Kafka never enforces it
        ("users/%zz", None),
    ],
)
def test_55d_1_notifications_of_the_older_layout_and_of_others(
    path: str, entity: QuotaEntity | None
) -> None:
    assert noticed_entity(path) == entity


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (33.0, "33.0"),
        (12.75, "12.75"),
        (1e-4, "1.0E-4"),
        (0.001, "0.001"),
        (0.012, "0.012"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (1.048576e7, "1.048576E7"),
        (1e22, "1.0E22"),
        (123456.789, "123456.789"),
        (0.0, "0.0"),
        (-2.5, "-2.5"),
        (float("inf"), "Infinity"),
        (float("nan"), "NaN"),
    ],
)
def test_doubles_are_java_s(value: float, text: str) -> None:
    assert java_double(value) == text


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        (PRODUCER, 1024.0, "1024"),
        (CONSUMER, 2.0**63, "9223372036854775807"),
        (PRODUCER, 1e7, "10000000"),
        (CONNECTION, 7.0, "7"),
        (REQUEST, 33.0, "33.0"),
        (MUTATION, 2.5, "2.5"),
        (PRODUCER, 10000.0000001, "10000"),
    ],
    ids=str,
)
def test_whole_types_are_integer_text(key: object, value: float, text: str) -> None:
    assert encode_value(key, value) == text  # type: ignore[arg-type]


def test_936_10_keys_kafka_lacks_live_in_a_home_of_their_own() -> None:
    assert [home_of(k) for k in (PRODUCER, REQUEST, PRODUCER_IDS, PRODUCER_BPS)] == [
        KAFKA_HOME,
        KAFKA_HOME,
        OWN_HOME,
        OWN_HOME,
    ]
    # A key that strayed into the other home doesn't count there.
    stray = {"producer_ids_rate": "5", "producer_byte_rate": "1", "SCRAM-SHA-256": "salt=…"}
    assert decode_values(KAFKA_HOME, stray) == ({PRODUCER: 1.0}, [])
    assert decode_values(OWN_HOME, stray) == ({PRODUCER_IDS: 5.0}, [])


def test_a_quota_that_is_no_number_is_told() -> None:
    values, problems = decode_values(
        KAFKA_HOME,
        {"producer_byte_rate": "lots", "consumer_byte_rate": "5", "request_percentage": "NaN"},
    )
    assert values == {CONSUMER: 5.0}
    assert problems == [
        "producer_byte_rate is 'lots', which is no number",
        "request_percentage is 'NaN', which is no number",
    ]


def test_properties_order_grows_with_java_s_bins() -> None:
    names = [f"key.{n}" for n in range(20)]
    ordered = properties_order(names)
    assert sorted(ordered) == sorted(names)
    assert properties_order(reversed(ordered)) != []
    assert properties_order(["Aa", "BB"]) == ["Aa", "BB"]  # one hash: the earlier stays first
    assert properties_order(["BB", "Aa"]) == ["BB", "Aa"]


@pytest.mark.parametrize("data", [b"x", b"[]", b'{"version":2,"config":{}}', b'{"version":1}'])
def test_a_znode_that_is_no_configuration_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidQuota, match="not of the form"):
        decode_config(data)
    assert decode_config(None) == decode_config(b"") == {}


@pytest.mark.parametrize("name", [".", ".."])
def test_a_name_that_would_climb_the_tree_is_refused(name: str) -> None:
    assert node_name_error(QuotaEntity.of(user=name)) is not None
    assert node_name_error(QuotaEntity.of(user="a", client_id=name)) is not None
    assert node_name_error(QuotaEntity.of(user="a.b", client_id="...")) is None


def test_what_the_version_before_wrote_is_read() -> None:
    before = Path(__file__).parents[2] / "data" / "before" / "znodes.json"
    nodes = json.loads(before.read_text(encoding="utf-8"))
    entries = [d for path, d in sorted(nodes.items()) if path.startswith("/headgate/history/")]
    read = [decode_history(data.encode()) for data in entries]
    assert len(read) == 7
    origin = ChangeOrigin("User:ops", "kafka-configs")
    assert all(each is not None and each.origin == origin for each in read)
    alice = decode_config(nodes["/config/users/alice"].encode())
    values, problems = decode_values(KAFKA_HOME, alice)
    assert {key.name for key in values} == {"producer_byte_rate", "request_percentage"}
    assert problems == []

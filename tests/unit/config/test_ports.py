"""Which broker is found at which port."""

import pytest

from headgate.config import HostPort, Settings
from headgate.errors import ConfigError

TWO = {"headgate.upstream": "b:9092", "listeners": "PLAINTEXT://h:9092,SASL_PLAINTEXT://h:9192"}


def test_a_brokers_port_counts_from_the_listeners() -> None:
    ports = Settings.from_properties(
        {**TWO, "headgate.broker.id.min": "101", "headgate.broker.id.max": "150"}
    ).ports
    assert ports.bind("PLAINTEXT", 101) == HostPort("h", 9092)
    assert ports.bind("SASL_PLAINTEXT", 103) == HostPort("h", 9194)
    assert ports.bind("PLAINTEXT", 100) is None
    assert ports.bind("PLAINTEXT", 151) is None
    assert ports.broker_ids("PLAINTEXT")[-1] == 150


def test_the_embedded_clusters_ids_need_no_settings() -> None:
    settings = Settings.from_properties(
        {"headgate.embedded.brokers": "3", "listeners": "PLAINTEXT://127.0.0.1:9092"}
    )
    assert (settings.broker_id_min, settings.broker_id_max) == (1, 3)
    assert settings.ports.bind("PLAINTEXT", 3) == HostPort("127.0.0.1", 9094)


def test_another_cluster_needs_them() -> None:
    with pytest.raises(ConfigError) as caught:
        Settings.from_properties(TWO)
    assert [text.split(" is ")[0] for text in caught.value.problems] == [
        "headgate.broker.id.max",
        "headgate.broker.id.min",
    ]


def test_a_host_told_may_name_the_broker() -> None:
    settings = Settings.from_properties(
        {
            "headgate.upstream": "kafka:9092",
            "headgate.broker.id.min": "3",
            "headgate.broker.id.max": "12",
            "listeners": "PLAINTEXT://:9092",
            "advertised.listeners": "PLAINTEXT://gate-{id}.example.com:9092",
        }
    )
    ports = settings.ports
    assert ports.advertised("PLAINTEXT", 12) == HostPort("gate-12.example.com", 9101)
    assert ports.advertised("PLAINTEXT", 13) is None


def test_advertised_ports_move_with_the_broker() -> None:
    ports = Settings.from_properties(
        {
            "headgate.upstream": "b:9092",
            "listeners": "PLAINTEXT://0.0.0.0:9092",
            "advertised.listeners": "PLAINTEXT://gate.example.com:19092",
            "headgate.broker.id.min": "1",
            "headgate.broker.id.max": "2",
        }
    ).ports
    assert ports.advertised("PLAINTEXT", 2) == HostPort("gate.example.com", 19093)
    assert ports.bind("PLAINTEXT", 2) == HostPort("0.0.0.0", 9093)


def test_ports_may_be_listed_per_broker() -> None:
    settings = Settings.from_properties(
        {
            **TWO,
            "listener.name.plaintext.headgate.broker.ports": "5:9100,1000000:9101",
            "listener.name.sasl_plaintext.headgate.broker.ports": "5:9200,1000000:9201",
        }
    )
    assert settings.ports.bind("PLAINTEXT", 1_000_000) == HostPort("h", 9101)
    assert settings.ports.advertised("SASL_PLAINTEXT", 5) == HostPort("h", 9200)
    assert settings.ports.bind("PLAINTEXT", 6) is None
    assert settings.ports.broker_ids("PLAINTEXT") == (5, 1_000_000)


@pytest.mark.parametrize(
    ("extra", "expected"),
    [
        (
            {"headgate.broker.id.max": "101"},
            "port 9192 is wanted by listener PLAINTEXT for broker 101 and by "
            "listener SASL_PLAINTEXT for broker 1",
        ),
        (
            {"headgate.broker.id.max": "3", "headgate.http.listener": "0.0.0.0:9094"},
            "port 9094 is wanted by listener PLAINTEXT for broker 3 and by headgate.http.listener",
        ),
        (
            {"headgate.broker.id.max": "3", "headgate.bootstrap.listener": "PLAINTEXT://h:9193"},
            "port 9193 is wanted by listener SASL_PLAINTEXT for broker 2 and by "
            "headgate.bootstrap.listener PLAINTEXT",
        ),
        ({"headgate.broker.id.max": "0"}, "headgate.broker.id.max (0) is below"),
        ({"headgate.broker.id.max": "2000000"}, "need more ports than there are"),
    ],
)
def test_an_overlap_is_an_error_that_names_both(extra: dict[str, str], expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Settings.from_properties({**TWO, "headgate.broker.id.min": "1", **extra})
    assert any(expected in text for text in caught.value.problems), caught.value.problems


def test_other_hosts_may_use_the_same_port() -> None:
    settings = Settings.from_properties(
        {"listeners": "PLAINTEXT://10.0.0.1:9092,SASL_PLAINTEXT://10.0.0.2:9092"}
    )
    assert settings.ports.bind("SASL_PLAINTEXT", 1) == HostPort("10.0.0.2", 9092)


def test_port_0_leaves_the_choice_to_the_system() -> None:
    settings = Settings.from_properties(
        {"listeners": "PLAINTEXT://127.0.0.1:0", "headgate.embedded.brokers": "2"}
    )
    assert settings.ports.bind("PLAINTEXT", 2) == HostPort("127.0.0.1", 0)

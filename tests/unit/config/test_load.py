"""Reading a settings file: values, prefixes, every mistake at once."""

from pathlib import Path

import pytest

from headgate.config import (
    LONG_MAX,
    HostPort,
    Password,
    SecurityProtocol,
    Settings,
    UsageTarget,
    load_settings,
)
from headgate.errors import ConfigError

CLUSTER = {
    "headgate.upstream": "b1:9092,b2:9092",
    "headgate.broker.id.min": "1",
    "headgate.broker.id.max": "2",
}


def problems(properties: dict[str, str]) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        Settings.from_properties(properties)
    return caught.value.problems


def test_every_mistake_is_reported_at_once_in_the_files_order(tmp_path: Path) -> None:
    file = tmp_path / "headgate.properties"
    file.write_text(
        "# a gateway\n"
        "listeners=PLAINTEXT://:9092,\\\n"
        "  INTERNAL://:9093\n"
        "quota.windw.num=3\n"
        "quota.window.num=0\n"
        "headgate.enforce=sometimes\n"
        "quota.window.size.seconds=\\u00z1\n"
        "max.connections=many\n"
        "quota.window.num=4\n"
        "listener.name.intrenal.max.connections=5\n"
        "listener.name.internal.super.users=User:a\n"
    )
    with pytest.raises(ConfigError) as caught:
        load_settings(file)
    assert [text.removeprefix(f"{file}:") for text in caught.value.problems] == [
        "2: listeners: no protocol is known for INTERNAL; add INTERNAL:PLAINTEXT "
        "(or SSL, SASL_PLAINTEXT, SASL_SSL) to listener.security.protocol.map",
        "4: unknown setting quota.windw.num; did you mean quota.window.num?",
        "5: quota.window.num: 0 is below 1, the least allowed",
        "6: headgate.enforce: 'sometimes' isn't one of all, missing, observe",
        "7: a \\u that isn't an escape: \\u takes four hexadecimal digits",
        "8: max.connections: 'many' isn't a whole number",
        "9: quota.window.num is given twice (first on line 5)",
        "10: listener.name.intrenal.max.connections: no listener is named INTRENAL",
        "11: listener.name.internal.super.users: super.users is one for all listeners; "
        "write it without a prefix",
    ]


def test_a_listener_nearly_named_is_suggested() -> None:
    assert problems({"listener.name.plaintxt.max.connections": "5"}) == (
        "listener.name.plaintxt.max.connections: no listener is named PLAINTXT; "
        "did you mean plaintext?",
    )


def test_an_unreadable_file_names_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"can't be read .no such file.*--config names"):
        load_settings(tmp_path / "nothing.properties")
    (tmp_path / "latin.properties").write_bytes(b"a=1\nheadgate.worker.id=caf\xe9\n")
    with pytest.raises(ConfigError, match=r"latin.properties:2: not UTF-8"):
        load_settings(tmp_path / "latin.properties")


def test_a_file_may_be_utf8(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("headgate.worker.id=café\n", encoding="utf-8")
    assert load_settings(tmp_path / "f").worker_id == "café"


def test_a_copied_broker_setting_is_a_warning_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("listeners=PLAINTEXT://127.0.0.1:9092\nlog.dirs=/var/kafka\n")
    settings = load_settings(file)
    assert settings.warnings == (
        f"{file}:2: log.dirs is a broker's setting and has no effect in a gateway",
    )


def test_values_are_typed() -> None:
    settings = Settings.from_properties(
        {
            **CLUSTER,
            "listeners": "PLAINTEXT://10.0.0.1:9092,INTERNAL://10.0.0.1:9192",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:SASL_PLAINTEXT",
            "super.users": "User:admin;User:CN=a,OU=b c",
            "headgate.usage": "kafka:__usage",
            "headgate.capacity.producer_byte_rate": "1e8",
            "max.connections.per.ip.overrides": "10.0.0.7:5,::1:6",
            "headgate.http.listener": "[::1]:9100",
            "headgate.upstream.admin.security.protocol": "SASL_SSL",
            "headgate.upstream.admin.sasl.username": "gate",
            "headgate.upstream.admin.sasl.password": "s3cret",
        }
    )
    assert settings.super_users == {"admin", "CN=a,OU=b c"}
    assert settings.upstream == (HostPort("b1", 9092), HostPort("b2", 9092))
    assert settings.usage == UsageTarget("kafka", "__usage")
    assert settings.capacity_producer_byte_rate == 1e8
    assert settings.max_connections_per_ip_overrides == {"10.0.0.7": 5, "::1": 6}
    assert settings.http_listener == HostPort("::1", 9100)
    assert settings.protocol_of("internal") is SecurityProtocol.SASL_PLAINTEXT
    assert settings.upstream_admin.sasl_password == Password("s3cret")
    assert "s3cret" not in repr(settings)


def test_a_listeners_prefix_overrides_for_that_listener_alone() -> None:
    settings = Settings.from_properties(
        {
            "listeners": "PLAINTEXT://h:9092,SASL_PLAINTEXT://h:9192",
            "max.connections": "100",
            "listener.name.SASL_plaintext.max.connections": "7",
            "listener.name.sasl_plaintext.headgate.upstream": "b1:9093",
        }
    )
    assert settings.max_connections == 100
    assert settings.for_listener("PLAINTEXT").max_connections == 100
    assert settings.for_listener("sasl_plaintext").max_connections == 7
    assert settings.for_listener("SASL_PLAINTEXT").upstream == (HostPort("b1", 9093),)
    assert settings.limit_given("max.connections", "SASL_PLAINTEXT")
    assert not settings.limit_given("max.connections", "PLAINTEXT")


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("headgate.store", "redis://x", "names no store; use sqlite:PATH, zookeeper://"),
        (
            "headgate.store",
            "kafka://h:1/path",
            "a Kafka cluster has no path, so /path",
        ),
        ("headgate.store", "kafka://nohost", "isn't host:port"),
        ("headgate.usage", "s3:x", "isn't files:DIR, kafka:TOPIC or none"),
        ("headgate.usage", "kafka:a b", "can't be a topic's name"),
        ("headgate.upstream", "b1", "isn't host:port"),
        ("headgate.upstream", ":9092", "needs both a host and a port"),
        ("listeners", "PLAINTEXT://h:70000", "above 65535"),
        ("listeners", "PLAINTEXT://h:1,PLAINTEXT://h:2", "listed twice"),
        ("listeners", "", "it lists no listener"),
        ("super.users", "admin", "isn't Type:name; write User:admin"),
        ("super.users", "Group:x", "only principals of type User"),
        ("principal.builder.class", "org.acme.Builder", "Java classes can't run here"),
        ("ssl.principal.mapping.rules", "RULE:^CN=(.*$/$1/", "pattern can't be read"),
        ("ssl.principal.mapping.rules", f"RULE:a{{{'9' * 40}}}/$1/", "pattern can't be read"),
        (
            "ssl.principal.mapping.rules",
            f"RULE:{'(' * 999}{')' * 999}/$1/",
            "pattern can't be read",
        ),
        ("ssl.principal.mapping.rules", "CN", "isn't DEFAULT or RULE:"),
        ("headgate.pacing.burst.seconds", "0", "must be above 0"),
        ("headgate.pacing.burst.seconds", "nan", "isn't a finite number"),
        ("headgate.pacing.burst.overrides", "alice:3", "names no entity"),
        ("headgate.pacing.burst.overrides", "users/alice/clients:3", "names no entity"),
        ("headgate.pacing.burst.overrides", "users/alice:0", "must be above 0"),
        (
            "headgate.pacing.burst.overrides",
            "users/alice:1,users/alice:2",
            "entity users/alice is listed twice",
        ),
        ("listener.security.protocol.map", "A:SSL,a:PLAINTEXT", "listener A is listed twice"),
        ("headgate.store.kafka.sasl.mechanism", "OAUTHBEARER", "isn't one of PLAIN, SCRAM-SHA-256"),
        ("headgate.store.required", "yes", "neither true nor false"),
        ("quota.window.num", "2147483648", "the most allowed"),
        ("max.connections.per.ip", "0", "0 is allowed only with"),
        ("listener.name.x", "1", "write listener.name.<listener>.<setting>"),
        ("inter.broker.listener.name", "OTHER", "isn't among listeners"),
        ("advertised.listeners", "OTHER://h:1", "OTHER isn't among listeners"),
        ("advertised.listeners", "PLAINTEXT://0.0.0.0:1", "names no host"),
        ("headgate.bootstrap.listener", "OTHER://h:1", "isn't among listeners"),
        ("headgate.upstream.admin.security.protocol", "SASL_SSL", "needs headgate.upstream.admin."),
        ("listeners", "SSL://h:9092", "has no certificate; set ssl.keystore.location"),
        ("headgate.splits", "stream", "embedded is local"),
        ("headgate.usage", "kafka:usage", "with embedded give files:DIR"),
    ],
)
def test_a_wrong_value_says_what_is_wrong(name: str, value: str, expected: str) -> None:
    found = problems({name: value})
    assert any(expected in text for text in found), found
    assert all(text.startswith(("listener", name.split("=")[0][:10])) for text in found), found


def test_users_that_differ_by_case_are_two() -> None:
    text = "users/alice:1,users/Alice:2"
    settings = Settings.from_properties({"headgate.pacing.burst.overrides": text})
    assert dict(settings.pacing_burst_overrides) == {"users/alice": 1.0, "users/Alice": 2.0}


def test_mapping_rules_may_hold_commas() -> None:
    text = "RULE:^CN=(.*?),OU=(.*?)$/$1@$2/L, RULE:^CN=(.*)$/$1/,DEFAULT"
    settings = Settings.from_properties({"ssl.principal.mapping.rules": text})
    assert settings.ssl_principal_mapping_rules == (
        "RULE:^CN=(.*?),OU=(.*?)$/$1@$2/L",
        "RULE:^CN=(.*)$/$1/",
        "DEFAULT",
    )


def test_missing_is_the_default_when_the_store_is_the_fronted_cluster() -> None:
    assert Settings.from_properties(CLUSTER).enforce == "all"
    own = Settings.from_properties({**CLUSTER, "headgate.store": "kafka://b2:9092"})
    assert own.enforce == "missing"
    other = Settings.from_properties({**CLUSTER, "headgate.store": "kafka://c1:9092"})
    assert other.enforce == "all"
    chosen = {**CLUSTER, "headgate.store": "kafka://b2:9092", "headgate.enforce": "observe"}
    assert Settings.from_properties(chosen).enforce == "observe"


def test_places_follow_the_data_folder() -> None:
    settings = Settings.from_properties({"headgate.data.dir": "/var/hg"})
    assert settings.store == "sqlite:/var/hg/quotas.db"
    assert settings.usage == UsageTarget("files", "/var/hg/usage")
    assert settings.embedded_dir == "/var/hg/kafka"
    assert settings.quota_consumer_default == LONG_MAX


def test_an_admin_listener_named_as_a_data_listener_is_refused(tmp_path: Path) -> None:
    # It took the data listener's place, and the broker's port was closed without a word.
    file = tmp_path / "headgate.properties"
    file.write_text("listeners=PLAINTEXT://:9092\nheadgate.admin.listener=plaintext://:9099\n")
    with pytest.raises(ConfigError) as caught:
        load_settings(file)
    assert caught.value.problems == (
        f"{file}:2: headgate.admin.listener: PLAINTEXT is among listeners too, and each needs a "
        "name of its own; call it ADMIN, say, and add ADMIN:PLAINTEXT (or SSL, SASL_PLAINTEXT, "
        "SASL_SSL) to listener.security.protocol.map",
    )


def test_what_is_held_in_memory_has_a_bound_that_fits_the_longest_frame() -> None:
    for said in ({}, {"queued.max.request.bytes": "-1"}):
        assert Settings.from_properties(said).queued_max_request_bytes == 1 << 27
        longer = Settings.from_properties({**said, "socket.request.max.bytes": "200000000"})
        assert longer.queued_max_request_bytes == 200_000_000
    with pytest.raises(
        ConfigError,
        match=r"queued\.max\.request\.bytes \(1000\) must be larger or equal to "
        r"socket\.request\.max\.bytes \(104857600\)",
    ):
        Settings.from_properties({"queued.max.request.bytes": "1000"})

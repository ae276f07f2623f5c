from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headgate.cli.connecting import MalformedProperties, load_properties
from headgate.cli.kafka_configs.describe import components_of, quota_lines
from headgate.cli.kafka_configs.kafka_configs import entity_of, main
from headgate.cli.kafka_configs.options import (
    ConfigsOptions,
    IllegalArgument,
    RefusedOptions,
    is_java_int,
)
from headgate.cli.kafka_configs.values import (
    configs_to_add,
    parse_pairs,
)
from headgate.cli.main import load
from headgate.java_text import to_double
from headgate.quota.alteration import is_ip_literal
from headgate.quota.entity import DEFAULT, QuotaEntity
from headgate.quota.key import QuotaKey
from headgate.store.sqlite.store import SqliteStore

DATA = Path(__file__).parents[2] / "data"
CASES: dict[str, Any] = json.loads((DATA / "cases/kafka_configs.json").read_text())
SERVER = ["--bootstrap-server", "localhost:9092"]


def words(case: dict[str, Any]) -> str:
    return " ".join(case["args"]) if "args" in case else case["value"]


def entity(case: dict[str, Any]) -> QuotaEntity:
    return QuotaEntity({t: DEFAULT if n is None else n for t, n in case["entity"].items()})


@pytest.mark.parametrize("case", CASES["parse"], ids=words)
def test_types_and_names_pair_by_position(case: dict[str, Any]) -> None:
    options = ConfigsOptions(case["args"])
    options.check(is_ip_literal)
    assert options.entity_types == case["entity_types"]
    assert options.entity_names == case["entity_names"]


@pytest.mark.parametrize("case", CASES["errors"], ids=words)
def test_refusals_have_the_tools_texts(
    case: dict[str, Any], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headgate.store.base.resolvable", is_ip_literal)
    assert main(case["args"]) == 1
    printed = capsys.readouterr()
    first = printed.err.splitlines()[0]
    assert printed.out == ""
    if "message" in case:
        assert first == case["message"]
    else:
        assert first.startswith(case["message_prefix"])


@pytest.mark.parametrize("case", CASES["add_config"], ids=words)
def test_add_config_is_cut_as_the_tool_cuts_it(case: dict[str, Any]) -> None:
    options = ConfigsOptions([*SERVER, "--alter", "--user", "u", "--add-config", case["value"]])
    if "parsed" in case:
        assert configs_to_add(options) == case["parsed"]
        return
    with pytest.raises(IllegalArgument) as caught:
        configs_to_add(options, kafka3=True)
    assert str(caught.value).removeprefix("requirement failed: ") == case["error"]


@pytest.mark.parametrize("case", CASES["describe_filters_strict"], ids=words)
def test_describe_asks_with_a_strict_filter(case: dict[str, Any]) -> None:
    options = ConfigsOptions([*SERVER, "--describe", *case["args"]])
    components = components_of(options.entity_types, options.entity_names)
    numbers = {"exact": 0, "default": 1, "any": 2}
    found = {(c.entity_type, numbers[c.match_type], c.match) for c in components}
    assert found == {(f["entity_type"], f["match_type"], f["match"]) for f in case["filter"]}


@pytest.mark.parametrize("case", CASES["describe_lines"], ids=lambda case: case["line"])
def test_lines_read_as_the_tool_prints_them(case: dict[str, Any]) -> None:
    values = {QuotaKey.parse(key): value for key, value in case["values"].items()}
    [line] = quota_lines({entity(case): values})
    head, _, tail = line.partition(" are ")
    wanted_head, _, wanted_tail = case["line"].partition(" are ")
    assert head == wanted_head
    assert sorted(tail.split(", ")) == sorted(wanted_tail.split(", "))


def test_55_10_two_types_in_one_command_and_names_before_their_types() -> None:
    # KIP-55's own line, typed as there.
    line = "--entity-name clientA --entity-type clients --entity-name user2 --entity-type users"
    options = ConfigsOptions([*SERVER, "--alter", "--add-config", "a=b", *line.split()])
    options.check(is_ip_literal)
    assert entity_of(options.entity_types, options.entity_names) == QuotaEntity.of(
        user="user2", client_id="clientA"
    )


def test_55_11_the_clients_type_is_kept() -> None:
    options = ConfigsOptions(
        [*SERVER, "--describe", "--entity-type", "clients", "--entity-name", "a"]
    )
    options.check(is_ip_literal)
    assert entity_of(options.entity_types, options.entity_names) == QuotaEntity.of(client_id="a")


def test_55_9_where_a_default_must_be_named_the_error_says_how(
    capsys: pytest.CaptureFixture[str],
) -> None:
    # KIP-55's own line, but to a server: there the rules of Kafka's releases hold.
    line = "--alter --add-config producer_byte_rate=10000,consumer_byte_rate=20000"
    assert main([*SERVER, *line.split(), "--entity-type", "users"]) == 1
    assert capsys.readouterr().err.splitlines() == [
        "An entity-name or default entity must be specified with --alter of users, clients, "
        "brokers or ips",
        "For the default, add --entity-default; only with --zookeeper may it be left out.",
    ]


def test_more_names_than_types_is_refused() -> None:
    with pytest.raises(IllegalArgument, match="More entity names specified than entity types"):
        components_of(["users"], ["a", "b"])


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "Command must include exactly one action: --describe, --alter"),
        (
            ["--alter", "--describe", "--user", "u"],
            "Command must include exactly one action: --describe, --alter",
        ),
        (
            ["--describe", "--user", "u", "--add-config", "a=b"],
            'Option "[describe]" can\'t be used with option "[add-config]"',
        ),
    ],
)
def test_bad_usage_comes_first(argv: list[str], message: str) -> None:
    with pytest.raises(RefusedOptions) as caught:
        ConfigsOptions([*SERVER, *argv]).check(is_ip_literal)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (
            [*SERVER, "--describe", "--entity-type", "users", "--entity-type", "users"],
            "Duplicate entity type(s) specified: users",
        ),
        (
            ["--describe", "--entity-type", "users"],
            "Either --bootstrap-server or --bootstrap-controller must be specified.",
        ),
        (
            ["--zookeeper", "z:2181", "--describe", "--entity-type", "topics"],
            "Invalid entity type topics, the entity type must be one of",
        ),
        (
            ["--zookeeper", "z:2181", "--describe", "--entity-type", "users", "--all"],
            "--bootstrap-server must be specified for --all",
        ),
        (
            [*SERVER, "--describe", "--entity-type", "users", "--zk-tls-config-file", "f"],
            "Only the --zookeeper option can be used with the --zk-tls-config-file option.",
        ),
        (
            [*SERVER, "--describe", "--broker", "one"],
            "The entity name for brokers must be a valid integer broker id, but it is: one",
        ),
        (
            [*SERVER, "--describe", "--entity-type", "broker-loggers"],
            "An entity name must be specified with --describe of broker-loggers",
        ),
        (
            [*SERVER, "--alter", "--entity-type", "topics", "--add-config", "a=b"],
            "An entity name must be specified with --alter of topics",
        ),
        (
            [*SERVER, "--describe", "--entity-type", "ips", "--entity-name", "a"],
            "The entity name for ips must be a valid IP or resolvable host, but it is: a",
        ),
    ],
)
def test_further_refusals_in_order(argv: list[str], message: str) -> None:
    with pytest.raises(IllegalArgument) as caught:
        ConfigsOptions(argv).check(is_ip_literal)
    assert str(caught.value).startswith(message)


def test_several_types_other_than_users_and_clients_are_refused() -> None:
    argv = [*SERVER, "--describe", "--entity-type", "users", "--entity-type", "brokers"]
    with pytest.raises(IllegalArgument, match="Only 'users' and 'clients' entity types"):
        ConfigsOptions(argv).check(is_ip_literal)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e3", 1000.0),
        (" 12 ", 12.0),
        ("0x1p3", 8.0),
        ("-0X.8P1", -1.0),
        ("0x1.8p0d", 1.5),
        ("5d", 5.0),
        ("5.F", 5.0),
        (".5", 0.5),
        ("+7", 7.0),
        ("Infinity", float("inf")),
        ("-Infinity", float("-inf")),
        ("0x1p99999", float("inf")),
        ("1e400", float("inf")),
    ],
)
def test_numbers_are_read_as_java_reads_them(text: str, value: float) -> None:
    assert to_double(text) == value


@pytest.mark.parametrize(
    "text",
    ["", " ", "abc", "1_000", "inf", "nan", "infinity", "0x10", "1e", ".", "٣", "1 2", "5l", "--5"],
)
def test_what_java_refuses_is_refused(text: str) -> None:
    with pytest.raises(ValueError) as caught:
        to_double(text)
    assert caught.value.args == (text,)


def test_nan_is_a_number_to_java() -> None:
    assert to_double("NaN") != to_double("NaN")


def test_of_a_repeated_key_the_last_counts_and_trailing_commas_go() -> None:
    assert parse_pairs("a=1,a=2,") == {"a": "2"}


def test_a_key_with_a_unit_is_taken_but_no_other_colon() -> None:
    line = [*SERVER, "--alter", "--user", "u", "--add-config"]
    assert configs_to_add(ConfigsOptions([*line, "producer_byte_rate:bps=1"])) == {
        "producer_byte_rate:bps": "1"
    }
    with pytest.raises(IllegalArgument, match="Invalid character found for config key: a:b"):
        configs_to_add(ConfigsOptions([*line, "a:b=1"]))


def test_a_file_of_configs_is_read_as_properties(tmp_path: Path) -> None:
    file = tmp_path / "new.properties"
    file.write_text("# new\nproducer_byte_rate = 7\nconsumer_byte_rate:8\n")
    options = ConfigsOptions([*SERVER, "--alter", "--user", "u", "--add-config-file", str(file)])
    assert configs_to_add(options) == {"producer_byte_rate": "7", "consumer_byte_rate": "8"}


def test_a_properties_file_that_is_no_utf_8_is_latin_1(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_bytes(b"sasl.username=\xfcrs\xfcla\n")
    assert load_properties(str(file)) == {"sasl.username": "\u00fcrs\u00fcla"}
    file.write_bytes(b"a=\\u12\n")
    with pytest.raises(MalformedProperties, match="Malformed"):
        load_properties(str(file))


@pytest.mark.parametrize("tool", ["kafka-configs", "export"])
def test_a_file_that_is_no_properties_file_is_told_without_a_traceback(
    tool: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "client.properties"
    file.write_text("a=\\u12\n")
    words = ["--store", f"sqlite:{tmp_path / 'q.db'}", "--command-config", str(file)]
    if tool == "kafka-configs":
        words += ["--entity-type", "users", "--describe"]
    assert load(tool)(words) == 1
    told = {"kafka-configs": "", "export": "headgate export: "}[tool]
    assert capsys.readouterr().err == f"{told}Malformed \\uxxxx encoding.\n"


@pytest.mark.parametrize(("text", "taken"), [("+1", True), ("2147483648", False), ("1 ", False)])
def test_broker_ids_are_javas_integers(text: str, taken: bool) -> None:
    assert is_java_int(text) is taken


def test_help_says_what_the_tool_is_for_and_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 1
    assert capsys.readouterr().err.startswith("This tool helps to manipulate and describe entity")
    assert main([]) == 1


def test_version_is_that_of_the_kafka_it_follows(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == "4.3.1\n"


def test_names_cannot_steer_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["--store", f"sqlite:{tmp_path}/q.db"]
    name = "evil\x1b[2J\nQuota configs for user-principal 'root' are"
    assert main([*argv, "--alter", "--user", name, "--add-config", "producer_byte_rate=5"]) == 0
    assert main([*argv, "--describe", "--entity-type", "users"]) == 0
    assert main([*argv, "--alter", "--user", name, "--add-config", "producer_byte_rate=0"]) == 1
    printed = capsys.readouterr()
    assert "\x1b" not in printed.out + printed.err
    assert len(printed.out.splitlines()) == 2
    assert "evil\\x1b[2J\\x0aQuota" in printed.out


def test_until_a_time_a_quota_is_another(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--store", f"sqlite:{tmp_path}/q.db", "--alter"]
    words = [*where, "--user", "bob", "--add-config", "producer_byte_rate=600"]
    assert main([*words, "--until", "2100-01-01"]) == 0
    with SqliteStore(tmp_path / "q.db") as store:
        [end] = store.ends.kept()
    assert (end.entity.user, end.value, end.former) == ("bob", 600.0, None)
    capsys.readouterr()
    for wrong, said in (
        ([*words, "--until", "friday"], "--until friday: write 2026-11-22T10:00:00Z"),
        ([*words, "--until", "2000-01-01"], "that has passed; nothing was changed"),
        (
            [*where, "--broker", "1", "--add-config", "max.connections=5", "--until", "2100-01-01"],
            "--until is for quotas of users, clients and ips",
        ),
        (
            [*where, "--user", "bob", "--add-config", "SCRAM-SHA-256=[password=x]", "--until", "1"],
            "--until is for quotas of users, clients and ips",
        ),
        (
            ["--bootstrap-server", "127.0.0.1:1", *words[2:], "--until", "2100-01-01"],
            "--until goes with --alter and --store",
        ),
    ):
        assert main(wrong) == 1
        assert said in capsys.readouterr().err
    with SqliteStore(tmp_path / "q.db") as store:
        assert store.ends.kept() == [end]

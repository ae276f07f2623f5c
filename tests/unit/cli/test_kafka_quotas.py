from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from headgate.admin.target import with_way_out
from headgate.cli.kafka_configs import kafka_configs
from headgate.cli.main import load
from headgate.cli.quotas.kafka_quotas import main, split_list
from headgate.cli.quotas.quota_output import list_order, value_text
from headgate.errors import ApiError, KafkaError
from headgate.quota.entity import DEFAULT, QuotaEntity
from headgate.quota.key import PRODUCER, PRODUCER_BPS, PRODUCER_IDS, PRODUCER_SHARES, QuotaKey
from headgate.store.sqlite.store import SqliteStore


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:{tmp_path}/quotas.db"


def alter(url: str, *words: str) -> int:
    return main(["--store", url, "--alter", *words])


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "exactly one action"),
        (["--list", "--alter"], "got --list, --alter"),
        (["--list", "--include-overrides"], "--include-overrides goes with --describe"),
        (["--list", "--add=producer_byte_rate=1"], "--add goes with --alter"),
        (["--describe", "--prefix=user=a"], "--prefix goes with --list"),
        (["--describe", "--names=user=a", "--validate-only"], "goes with --alter"),
        (["--describe", "--names=user=a", "--until=2100-01-01"], "--until goes with --alter"),
        (
            ["--alter", "--names=user=a", "--add=producer_byte_rate=1", "--until=friday"],
            "--until friday: write 2026-11-22T10:00:00Z",
        ),
        (["--alter", "--names=user=a"], "--alter needs --add or --delete"),
        (["--alter", "--delete", "producer_byte_rate"], "--alter needs an entity"),
        (["--describe"], "--describe needs an entity"),
        (["--list", "--names=user"], "isn't of the form type=name"),
        (["--list", "--names=user="], "--defaults=user"),
        (["--describe", "--names=user=a", "--defaults=user"], "user is given twice"),
        (["--alter", "--names=user=a", "--add=producer_byte_rate"], "name:unit=value"),
        (["--alter", "--names=user=a", "--add=producer_byte_rate=fast"], "write a number"),
        (["--alter", "--names=user=a", "--delete=producer_byte_rate=1"], "name:unit"),
        (
            [
                "--alter",
                "--names=user=a",
                "--add=producer_byte_rate=1",
                "--delete=producer_byte_rate:broker_bps",
            ],
            "producer_byte_rate:broker_bps is given twice",
        ),
        (["--list", "stray"], "'stray' belongs to no flag"),
        (["--list", "--bootstrap-server", "localhost:9092"], "exactly one of"),
        (["--nope"], "nope is not a recognized option"),
    ],
)
def test_546_22_flags_that_exclude_each_other_exit_2_and_say_why(
    url: str, words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--store", url, *words]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert told in printed.err.splitlines()[0]


@pytest.mark.parametrize("script", ["kafka-quotas.sh", "kafka-configs.sh", "kafka-configs"])
def test_546_20_the_scripts_run_from_a_checkout(script: str) -> None:
    bin_folder = Path(__file__).parents[3] / "bin"
    done = subprocess.run(
        [str(bin_folder / script), "--nope"], capture_output=True, text=True, check=False
    )
    assert done.returncode in (1, 2)
    assert "nope is not a recognized option" in done.stderr.splitlines()[0]


def test_nothing_to_connect_to_exits_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 2
    assert "--bootstrap-server" in capsys.readouterr().err


def test_546_22_help_names_every_flag(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    printed = capsys.readouterr().out
    flags = """bootstrap-server command-config list describe alter names defaults prefix
        include-overrides add delete validate-only until json store"""
    for flag in flags.split():
        assert f"--{flag} " in printed or f"--{flag}\n" in printed


def test_546_21_a_type_left_out_is_a_wildcard(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (
        ["--names=user=a,client-id=c"],
        ["--names=client-id=c"],
        ["--names=client-id=d"],
        ["--defaults=user,client-id"],
    ):
        assert alter(url, *words, "--add=request_percentage=50") == 0
    capsys.readouterr()
    assert main(["--store", url, "--list", "--names=client-id=c"]) == 0
    heads = [line for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    assert heads == ["{user=a, client-id=c}", "{client-id=c}"]
    assert main(["--store", url, "--list"]) == 0
    assert capsys.readouterr().out.count("request_percentage:percent=50") == 4


def test_546_23_names_split_at_the_first_equals_and_commas_can_be_escaped(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert alter(url, "--names", r"user=CN=a b\,O=*", "--add=producer_byte_rate=5") == 0
    capsys.readouterr()
    assert main(["--store", url, "--list", "--names", r"user=CN=a b\,O=*"]) == 0
    assert capsys.readouterr().out == (
        "{user=CN%3Da%20b%2CO%3D%2A}\nproducer_byte_rate:broker_bps=5\n"
    )


def test_546_23_flags_may_be_repeated(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--names=user=a", "--names=client-id=c"]
    adds = ["--add=producer_byte_rate=5", "--add=request_percentage=12.75"]
    assert alter(url, *words, *adds) == 0
    assert main(["--store", url, "--list", *words]) == 0
    assert capsys.readouterr().out == (
        "{user=a, client-id=c}\nproducer_byte_rate:broker_bps=5\nrequest_percentage:percent=12.75\n"
    )


@pytest.mark.parametrize(
    ("text", "parts"),
    [("a,b", ["a", "b"]), (r"a\,b", ["a,b"]), (r"a\b,\\", ["a\\b", "\\\\"])],
)
def test_lists_are_cut_at_bare_commas(text: str, parts: list[str]) -> None:
    assert split_list(text) == parts


@pytest.mark.parametrize("text", ["", ",", ",,", ",a", "a,", "a,,b", "a, ,b"])
@pytest.mark.parametrize("flag", ["names", "defaults", "prefix", "add", "delete"])
def test_an_empty_part_of_a_list_is_refused(
    url: str, flag: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pair = text.replace("a", "user=a").replace("b", "client-id=b")
    words = {
        "names": ["--list", "--names", pair],
        "defaults": ["--list", "--defaults", text.replace("a", "user").replace("b", "client-id")],
        "prefix": ["--list", "--prefix", pair],
        "add": ["--alter", "--names=user=u", "--add", text.replace("a", "producer_byte_rate=1")],
        "delete": [
            "--alter",
            "--names=user=u",
            "--delete",
            text.replace("a", "request_percentage"),
        ],
    }[flag]
    assert main(["--store", url, *words]) == 2
    said = capsys.readouterr().err
    assert "an empty part in the list" in said or "requires an argument" in said


def test_546_24_names_are_sanitised_and_a_user_called_default_stays_apart(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert alter(url, "--names=user=<default>", "--add=producer_byte_rate=5") == 0
    assert alter(url, "--names=user=\x1b[31mred\nx", "--add=producer_byte_rate=6") == 0
    assert alter(url, "--defaults=user", "--add=producer_byte_rate=7") == 0
    capsys.readouterr()
    assert main(["--store", url, "--list"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "{user=%3Cdefault%3E}",
        "producer_byte_rate:broker_bps=5",
        "",
        "{user=%1B%5B31mred%0Ax}",
        "producer_byte_rate:broker_bps=6",
        "",
        "{user=<default>}",
        "producer_byte_rate:broker_bps=7",
    ]


def test_most_specific_first_then_names_from_the_last() -> None:
    pairs = [QuotaEntity.of(user=u, client_id="c") for u in ("b", "a", DEFAULT)]
    users = [QuotaEntity.of(user=u) for u in ("b", "a", DEFAULT)]
    ips = [QuotaEntity.of(ip=ip) for ip in ("10.0.0.1", DEFAULT)]
    wanted = [*pairs[:2], *users[:2], pairs[2], users[2], QuotaEntity.of(client_id="c"), *ips]
    assert list_order(dict.fromkeys(reversed(wanted))) == wanted


@pytest.mark.parametrize(
    ("value", "text"),
    [(5.0, "5"), (12.75, "12.75"), (2.0**63, "9223372036854775807"), (float("inf"), "Infinity")],
)
def test_whole_numbers_have_no_point(value: float, text: str) -> None:
    assert value_text(value) == text


def test_validate_only_checks_and_changes_nothing(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    SqliteStore(url.removeprefix("sqlite:")).close()
    assert alter(url, "--names=user=a", "--add=producer_byte_rate=5", "--validate-only") == 0
    assert alter(url, "--names=user=a", "--add=producer_byte_rate=0", "--validate-only") == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == (
        "kafka-quotas: INVALID_REQUEST: Quota producer_byte_rate must be greater than 0\n"
    )
    assert main(["--store", url, "--list"]) == 0
    assert capsys.readouterr().out == ""


def test_the_history_knows_the_tool(url: str) -> None:
    assert alter(url, "--names=user=a", "--add=producer_byte_rate=5") == 0
    with SqliteStore(url.removeprefix("sqlite:")) as store:
        [entry] = store.history.entries()
    assert entry.tool == "kafka-quotas"
    assert "@" in entry.who


def test_546_3_a_client_without_client_id_can_be_described_and_gets_a_note(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert alter(url, "--names=user=u", "--add=producer_byte_rate=6") == 0
    assert alter(url, "--names=user=u", "--defaults=client-id", "--add=producer_byte_rate=5") == 0
    assert main(["--store", url, "--describe", "--names=user=u,client-id="]) == 0
    printed = capsys.readouterr()
    assert printed.out == "producer_byte_rate:broker_bps=6 {user=u}\n"
    assert printed.err.startswith("kafka-quotas: note: {user=u, client-id=<default>} matches")


def test_546_9_describe_says_when_shares_hold(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    from headgate.cli.kafka_configs.kafka_configs import main as kafka_configs

    assert alter(url, "--names=user=u", "--add=producer_byte_rate:shares=6") == 0
    capsys.readouterr()
    note = (
        "note: producer_byte_rate:shares is enforced only where "
        "headgate.capacity.producer_byte_rate is set, by a gateway\n"
    )
    assert main(["--store", url, "--describe", "--names=user=u"]) == 0
    printed = capsys.readouterr()
    assert "producer_byte_rate:shares=6" in printed.out
    assert printed.err == f"kafka-quotas: {note}"
    assert kafka_configs(["--store", url, "--describe", "--entity-type", "users"]) == 0
    assert note in capsys.readouterr().err
    assert alter(url, "--names=user=u", "--delete=producer_byte_rate:shares") == 0
    assert alter(url, "--names=user=u", "--add=producer_byte_rate=6") == 0
    capsys.readouterr()
    assert main(["--store", url, "--describe", "--names=user=u"]) == 0
    assert capsys.readouterr().err == ""


def test_json_has_raw_names_and_null_defaults(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    name = "a\x1b[0m"
    assert alter(url, f"--names=user={name}", "--add=producer_byte_rate=5", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["ops"] == {"producer_byte_rate:broker_bps": 5}
    assert alter(url, "--defaults=user", "--add=producer_byte_rate=3,consumer_byte_rate=9") == 0
    capsys.readouterr()
    assert main(["--store", url, "--list", "--json"]) == 0
    text = capsys.readouterr().out
    assert "\x1b" not in text
    assert json.loads(text)["entities"] == [
        {"entity": {"user": name}, "quotas": {"producer_byte_rate:broker_bps": 5}},
        {
            "entity": {"user": None},
            "quotas": {"consumer_byte_rate:broker_bps": 9, "producer_byte_rate:broker_bps": 3},
        },
    ]
    words = ["--describe", f"--names=user={name}", "--include-overrides", "--json"]
    assert main(["--store", url, *words]) == 0
    assert json.loads(capsys.readouterr().out)["quotas"] == [
        {
            "key": "consumer_byte_rate:broker_bps",
            "value": 9,
            "source": {"user": None},
            "overridden": [],
        },
        {
            "key": "producer_byte_rate:broker_bps",
            "value": 5,
            "source": {"user": name},
            "overridden": [{"value": 3, "source": {"user": None}}],
        },
    ]


@pytest.mark.parametrize("key", [PRODUCER_BPS, PRODUCER_SHARES, PRODUCER_IDS])
def test_a_plain_kafkas_refusal_gets_the_way_out(key: QuotaKey) -> None:
    name = key.name
    refusal = ApiError(KafkaError.INVALID_REQUEST, f"Invalid configuration key {name}")
    told = with_way_out(refusal, [PRODUCER, key])
    assert str(told).startswith(f"Invalid configuration key {name}: Apache Kafka has no ")
    assert "--store" in str(told)


def test_other_refusals_stay_as_they_are() -> None:
    refusal = ApiError(KafkaError.INVALID_REQUEST, "Invalid configuration key producer_byte_rate")
    assert with_way_out(refusal, [PRODUCER]) is refusal


def test_546_36_the_released_tool_is_neither_hidden_nor_called_old(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = ["--store", f"sqlite:{tmp_path / 'quotas.db'}"]
    released = [*store, "--entity-type", "users", "--entity-name", "alice"]
    rate = "producer_byte_rate"
    assert kafka_configs.main([*released, "--alter", "--add-config", f"{rate}=1024"]) == 0
    assert main([*store, "--list"]) == 0
    assert main([*store, "--alter", "--names=user=alice", f"--add={rate}=2048"]) == 0
    assert kafka_configs.main([*released, "--describe"]) == 0
    assert kafka_configs.main([*released, "--alter", "--delete-config", rate]) == 0
    assert main([*store, "--list"]) == 0
    printed = capsys.readouterr()
    assert printed.out.splitlines() == [
        "Completed updating config for user alice.",
        "{user=alice}",
        "producer_byte_rate:broker_bps=1024",
        "Quota configs for user-principal 'alice' are producer_byte_rate=2048.0",
        "Completed updating config for user alice.",
    ]
    assert printed.err == ""


def test_546_32_a_value_that_no_double_holds_is_refused(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert alter(url, "--names=user=a", "--add=producer_byte_rate=9007199254740993") == 2
    assert "none holds 9007199254740993 as it is" in capsys.readouterr().err
    file = tmp_path / "quotas.yaml"
    file.write_text("quotas: [{entity: {user: a}, producer_byte_rate: 9007199254740993}]")
    assert load("apply")(["--store", url, str(file)]) == 1
    assert "none holds 9007199254740993 as it is" in capsys.readouterr().err
    assert alter(url, "--names=user=a", "--add=producer_byte_rate=9223372036854775807") == 0


@pytest.mark.parametrize("ops", [["--add=producer_byte_rate=5"], ["--delete=producer_byte_rate"]])
def test_validating_makes_no_store(url: str, ops: list[str], tmp_path: Path) -> None:
    assert alter(url, "--names=user=a", *ops, "--validate-only") == 0
    assert list(tmp_path.iterdir()) == []
    assert alter(url, "--names=user=a", "--add=producer_byte_rate=-5", "--validate-only") == 1
    assert list(tmp_path.iterdir()) == []
    assert alter(url, "--names=user=a", "--add=producer_byte_rate=5") == 0
    assert list(tmp_path.iterdir()) != []


def test_until_a_time_the_quota_is_another(
    url: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert alter(url, "--names=user=bob", "--add=producer_byte_rate=300") == 0
    words = ["--names=user=bob", "--add=producer_byte_rate=600"]
    assert alter(url, *words, "--until=2000-01-01") == 1
    assert "until 2000-01-01 00:00:00 UTC: that has passed" in capsys.readouterr().err
    assert alter(url, *words, "--until=2100-01-01T00:00:00Z", "--validate-only") == 0
    assert alter(url, *words, "--until=2100-01-01T00:00:00Z") == 0
    with SqliteStore(tmp_path / "quotas.db") as store:
        [end] = store.ends.kept()
    assert (end.value, end.former, end.until_ms) == (600.0, 300.0, 4_102_444_800_000)
    assert load("quotas")(["--store", url, "--json"]) == 0
    [row] = json.loads(capsys.readouterr().out)["quotas"]
    assert (row["value"], row["until_ms"], row["then"]) == (600, end.until_ms, 300)
    assert load("quotas")(["--store", url]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "600 B/s until" in told and "then 300 B/s" in told
    target = f"sqlite:{tmp_path}/other.db"
    assert load("store")(["copy", "--from", url, "--to", target]) == 0
    told = capsys.readouterr().err
    assert "Not copied: the end of {user=bob} producer_byte_rate:broker_bps, 600 until" in told
    with SqliteStore(tmp_path / "other.db") as store:
        assert store.ends.kept() == []

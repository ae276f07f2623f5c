"""`headgate quotas`: the rows of the console's page as a table, as JSON and as CSV."""

from __future__ import annotations

import csv
import io
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from headgate.cli.main import load
from headgate.cli.pipeline import print as printing
from headgate.cli.quotas import quotas
from headgate.live.picture import BrokerPicture, Picture, QuotaUse
from headgate.quota.alteration import Op, QuotaAlteration
from headgate.quota.entity import DEFAULT, QuotaEntity
from headgate.quota.key import CONNECTION, PRODUCER, REQUEST
from headgate.store.sqlite.store import SqliteStore

GOLDEN = Path(__file__).parents[2] / "data" / "quotas_listed.txt"
AT = 1_800_000_000_000
ETL = QuotaEntity.of(user="alice", client_id="etl")


def picture(other: int = 0) -> Picture:
    """A broker and another, at which alice's etl waits; bob is under the default."""
    etl = QuotaUse(
        PRODUCER.name, "alice", "etl", quota=1e6, rate=1.4e6, held=2, held_until_ms=AT + 900,
        held_since_ms=AT - 9,
    )  # fmt: skip
    less = QuotaUse(PRODUCER.name, "alice", "etl", quota=1e6, rate=2e5)
    bob = QuotaUse(PRODUCER.name, "bob", quota=5e5, rate=1e5)
    address = QuotaUse(CONNECTION.name, ip="0:0:0:0:0:0:0:1", quota=7.0, rate=0.5)
    brokers = (BrokerPicture(1, quotas=(less,)), BrokerPicture(2, quotas=(etl, bob, address)))
    return Picture(AT, brokers=(*brokers, BrokerPicture(3, other_quotas=other)))


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    change = [
        QuotaAlteration(ETL, (Op(PRODUCER, 1e6), Op(REQUEST, 50.0))),
        QuotaAlteration(QuotaEntity.of(user=DEFAULT), (Op(PRODUCER, 5e5),)),
        QuotaAlteration(QuotaEntity.of(ip="::1"), (Op(CONNECTION, 7.0),)),
        QuotaAlteration(QuotaEntity.of(ip="localhost"), (Op(CONNECTION, 3.0),)),
    ]
    path = tmp_path / "quotas.db"
    with SqliteStore(path, clock_ms=lambda: AT - 60_000) as store:
        store.alter(change, who="ada", tool="test", message="ticket 17: until the move is done")
    monkeypatch.setattr(quotas, "_picture", lambda *_: picture())
    return f"sqlite:{path}"


def run(url: str, *words: str) -> int:
    return load("quotas")(["--store", url, "--bootstrap-server", "gateway:1", *words])


@pytest.mark.parametrize("width", [60, 80, 118, 160])
def test_the_table_in_terminals_and_in_a_pipe(
    url: str, width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(printing, "_PIPE_COLUMNS", width)
    assert run(url) == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= width
    golden = GOLDEN.read_text(encoding="utf-8") if GOLDEN.exists() else ""
    parts = dict(re.findall(r"== (\d+)\n(.*?)(?=== |\Z)", golden, re.DOTALL))
    if os.environ.get("HEADGATE_GOLDEN") == "write":
        parts[str(width)] = text
        told = (f"== {name}\n{parts[name]}" for name in sorted(parts, key=int))
        GOLDEN.write_text("".join(told), encoding="utf-8")
    assert text == parts[str(width)]


def listed(url: str, capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert run(url, "--json", *words) == 0
    return json.loads(capsys.readouterr().out)


def test_json_says_what_is_known_of_each_quota(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    told = listed(url, capsys, "--sort", "waits", "--limit", "1")
    assert (told["found"], told["notes"]) == (5, [])
    [row] = told["quotas"]
    assert (row["entity"], row["key"], row["value"]) == (
        {"user": "alice", "client-id": "etl"}, "producer_byte_rate:broker_bps", 1000000,
    )  # fmt: skip
    assert row["now"] == {
        "matched": 1, "rate": 1400000, "limit": 1000000, "waiting": 2,
        "waiting_until_ms": AT + 900, "throttled": True,
    }  # fmt: skip
    assert (row["last"]["who"], row["last"]["after"]) == ("ada", 1000000)
    by_name = listed(url, capsys, "--find", "localhost")["quotas"]
    assert [row["now"] for row in by_name] == [None]  # only a gateway resolves the name
    address = listed(url, capsys, "--find", "::1")["quotas"]
    assert [row["now"]["matched"] for row in address] == [1]


def test_rows_are_found_chosen_and_turned(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    def names(*words: str) -> list[str]:
        rows = listed(url, capsys, *words)["quotas"]
        return ["/".join(map(str, row["entity"].values())) for row in rows]

    assert names("--kind", "ip") == ["::1", "localhost"]
    assert names("--kind", "ip", "--reverse") == ["localhost", "::1"]
    assert names("--kind", "default") == ["None"]
    assert names("--only", "throttled") == ["alice/etl"]
    assert names("--only", "unmatched", "--key", "request_percentage") == ["alice/etl"]
    assert names("--find", "TICKET", "--limit", "2") == ["alice/etl", "alice/etl"]
    assert names("--sort", "value", "--reverse", "--limit", "1") == ["localhost"]


def test_csv_has_a_header_and_the_chosen_rows(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(url, "--csv", "--only", "throttled") == 0
    [row] = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert (row["entity"], row["use"], row["waiting"]) == (
        "users/alice/clients/etl",
        "1400000",
        "2",
    )


def test_what_is_not_known_is_noted(
    url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.undo()
    assert load("quotas")(["--store", url]) == 0
    printed = capsys.readouterr()
    assert "note: use and waits aren't known: give --bootstrap-server" in printed.err
    assert "?" in printed.out and "nobody" not in printed.out
    servers = "127.0.0.1:1"
    assert load("quotas")(["--store", url, "--bootstrap-server", servers]) == 0
    assert "note: use and waits aren't known: " in capsys.readouterr().err
    assert load("quotas")([]) == 2
    assert load("quotas")(["--store", url, "--limit", "-1"]) == 2
    assert load("quotas")(["--store", url, "--key", "nonsense"]) == 2
    assert "the keys are producer_byte_rate" in capsys.readouterr().err

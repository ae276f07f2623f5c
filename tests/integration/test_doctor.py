"""`headgate doctor --config`: what it finds in a set-up, and what it couldn't look at."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.cli.main import load
from headgate.quota.alteration import Op, QuotaAlteration
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import PRODUCER
from headgate.store import open_store

from .scripted_upstream import Start, Upstream, start, upstream

main_doctor = load("doctor")

__all__ = ["start", "upstream"]


def written(folder: Path, **named: str) -> list[str]:
    lines = {
        "headgate.broker.id.min": "1",
        "headgate.broker.id.max": "1",
        "headgate.data.dir": str(folder),
        "headgate.store": f"sqlite:{folder / 'quotas.db'}",
        **{name.replace("__", "."): value for name, value in named.items()},
    }
    file = folder / "headgate.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
    with open_store(lines["headgate.store"]) as store:
        store.alter([QuotaAlteration.of(QuotaEntity.of(user="a"), [Op(PRODUCER, 5.0)])])
    return ["--config", str(file)]


def test_a_cluster_and_a_gateway_that_are_not_there(
    tmp_path: Path, free_port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    words = written(
        tmp_path,
        listeners=f"PLAINTEXT://127.0.0.1:{free_port}",
        headgate__upstream="127.0.0.1:1",
        headgate__http__listener=f"127.0.0.1:{free_port + 1}",
    )
    assert main_doctor(words) == 3
    found = capsys.readouterr().out
    assert (
        "the upstream of listener PLAINTEXT doesn't answer: 127.0.0.1:1 can't be reached" in found
    )
    assert f"http://127.0.0.1:{free_port + 1}/readyz doesn't answer" in found


def test_ports_that_do_not_accept_and_brokers_without_one(
    tmp_path: Path, upstream: Upstream, free_port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    upstream.others = {7: upstream.port}
    words = written(
        tmp_path,
        listeners=f"PLAINTEXT://127.0.0.1:{free_port}",
        headgate__upstream=f"127.0.0.1:{upstream.port}",
    )
    assert main_doctor(words) == 3
    found = capsys.readouterr().out
    address = f"127.0.0.1:{free_port}"
    assert f"{address}, which clients of PLAINTEXT are told for broker 1, doesn't accept" in found
    assert "broker 7 has no port on listener PLAINTEXT and stays unexposed" in found
    assert "brokers 1, 7 are older than Kafka 2.6" in found


def test_a_gateway_that_runs_has_ports_that_accept_and_is_ready(
    tmp_path: Path,
    upstream: Upstream,
    start: Start,
    free_ports: object,
    capsys: pytest.CaptureFixture[str],
) -> None:
    port, http = free_ports(2)  # type: ignore[operator]
    named = {
        "listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "headgate__http__listener": f"127.0.0.1:{http}",
    }
    start(**named)
    words = written(tmp_path, **named, headgate__upstream=f"127.0.0.1:{upstream.port}")
    assert main_doctor(words) == 3
    found = capsys.readouterr().out
    assert "doesn't accept" not in found
    assert "isn't ready" not in found
    assert "clock" not in found


def test_mistakes_in_the_file_are_told_and_nothing_else_is_looked_at(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = written(tmp_path, listeners="PLAINTEXT://:9092", headgate__upstraem="x:1")
    assert main_doctor(words) == 1
    printed = capsys.readouterr()
    assert "unknown setting headgate.upstraem; did you mean headgate.upstream?" in printed.err
    assert printed.out == ""


def test_a_store_that_is_not_there_could_not_be_looked_at(
    tmp_path: Path, free_port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    words = written(
        tmp_path,
        listeners=f"PLAINTEXT://127.0.0.1:{free_port}",
        headgate__upstream="127.0.0.1:1",
    )
    (tmp_path / "quotas.db").unlink()
    assert main_doctor(words) == 3
    assert "headgate doctor: couldn't look: the store sqlite:" in capsys.readouterr().err
    assert not (tmp_path / "quotas.db").exists()

"""
Our kafka-configs beside Kafka's own: the same words, lists and exit status for the same line.

What Kafka's tool was recorded to refuse is in ``kafka-configs-refusals-4.3.1.json``; the slow test
asks it again.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from headgate.cli.kafka_configs.kafka_configs import main
from headgate.embedded import EmbeddedKafka
from headgate.embedded.tools import run_tool

from .gateway_kit import topic

pytestmark = pytest.mark.kafka4

REFUSALS = Path(__file__).parents[1] / "data/captures/kafka-configs-refusals-4.3.1.json"
Refusal = tuple[int, list[str], list[str]]
"""Exit status, lines printed, first two lines of the error."""

BESIDE = [
    "--describe --entity-type foo",
    "--describe --entity-type clients --entity-type users --entity-name X",
    "--describe --user u --user v",
    "--describe --entity-type users --entity-name a --entity-name b",
    "--describe --broker 9",
    "--describe --topic nope",
    "--describe --entity-type broker-loggers",
    "--describe --entity-name",
    "--alter --user zed --add-config producer_byte_rate=1,foo=2,bar=3",
    "--alter --user zed --delete-config foo,bar",
    "--alter --client zed --add-config SCRAM-SHA-256=[password=x]",
    "--alter --user zed --add-config SCRAM-SHA-256=[iterations=4,password=x]",
    "--alter --user-defaults --add-config SCRAM-SHA-256=[password=x]",
    "--alter --user zed --add-config producer_byte_rate=5 --delete-config producer_byte_rate",
    "--alter --entity-type topics --add-config a=b",
    "--alter --user zed --add-config foo=1,bar=2,baz=3,qux=4,quux=5",
    "--alter --ip 127.0.0.1 --add-config foo=1,bar=2,baz=3,qux=4,quux=5",
    "--alter --user zed --add-config ,producer_byte_rate=1",
    "--alter --user zed --add-config ,",
    "--alter --user zed --delete-config ,producer_byte_rate,,consumer_byte_rate,",
    "--alter --user zed --delete-config SCRAM-SHA-256",
    "--alter --user zed --add-config SCRAM-SHA-256=[iterations=99999,password=x]",
    "--alter --user zed --add-config SCRAM-SHA-256=[password=]",
    "--alter --topic nope --add-config retention.ms=1",
    "--alter --topic nope --delete-config retention.ms",
    "--describe --topic nope --all",
    "--describe --topic a;b",
    "--alter --group g --delete-config consumer.session.timeout.ms,nonsense",
    "--alter --group g --add-config nonsense=1",
    "--alter --client-metrics m --delete-config interval.ms",
    "--alter --broker 1 --delete-config nonsense",
    "--alter --broker-logger 1 --delete-config nonsense",
    "--describe --user zed --add-config-file /nowhere",
    "--alter --user zed --add-config-file /nowhere",
    "--describe --user zed --command-config /nowhere",
    "--describe --user zed --force",
    "--nope",
    "-nope",
]


LISTINGS = ["--describe --entity-type client-metrics", "--describe --entity-type groups"]
"""Answered with what the cluster holds."""


def kafkas_own(line: str, servers: str) -> Refusal:
    """Return what Kafka's own tool answers."""
    real = run_tool("kafka.admin.ConfigCommand", ["--bootstrap-server", servers, *line.split()])
    return refusal(real.returncode, real.stdout, real.stderr, servers)


def ours(line: str, servers: str, capsys: pytest.CaptureFixture[str]) -> Refusal:
    status = main(["--bootstrap-server", servers, *line.split()])
    printed = capsys.readouterr()
    lines = printed.err.splitlines(keepends=True)
    own = "".join(line for line in lines if not line.startswith("kafka-configs: note: "))
    return refusal(status, printed.out, own, servers)


def refusal(status: int, out: str, err: str, servers: str) -> Refusal:
    return status, sorted(out.splitlines()), said(err.replace(servers, "HOST:PORT"))


@pytest.mark.parametrize("line", BESIDE)
def test_refusals_beyond_the_captures_are_kafkas_own(
    line: str, kafka4: EmbeddedKafka, capsys: pytest.CaptureFixture[str]
) -> None:
    status, lines, error = json.loads(REFUSALS.read_text())[line]
    assert ours(line, kafka4.bootstrap("PLAINTEXT"), capsys) == (status, lines, error)


@pytest.mark.slow
@pytest.mark.parametrize("line", BESIDE)
def test_what_is_recorded_is_what_kafkas_tool_answers(line: str, kafka4: EmbeddedKafka) -> None:
    status, lines, error = json.loads(REFUSALS.read_text())[line]
    assert kafkas_own(line, kafka4.bootstrap("PLAINTEXT")) == (status, lines, error)


@pytest.mark.parametrize("line", LISTINGS)
def test_listings_are_kafkas_own(
    line: str, kafka4: EmbeddedKafka, capsys: pytest.CaptureFixture[str]
) -> None:
    servers = kafka4.bootstrap("PLAINTEXT")
    assert ours(line, servers, capsys) == kafkas_own(line, servers)


def said(text: str) -> list[str]:
    """Return an error's first two lines, the second being the exception's name and text."""
    return [line for line in text.splitlines() if not line.startswith("\tat ")][:2]


CONNECTIONS = [
    ["--bootstrap-server", ",{}"],
    ["--bootstrap-server", "{},"],
    ["--bootstrap-server", "{},,{}"],
    [],
    ["--bootstrap-server", "{}", "--bootstrap-controller", "{}"],
]


@pytest.mark.parametrize("words", CONNECTIONS, ids=" ".join)
def test_connections_that_cannot_be_are_refused_in_kafkas_words(
    words: list[str], kafka4: EmbeddedKafka, capsys: pytest.CaptureFixture[str]
) -> None:
    servers = kafka4.bootstrap("PLAINTEXT").split(",")[0]
    argv = [*(word.format(servers, servers) for word in words), "--describe", "--user", "u"]
    real = run_tool("kafka.admin.ConfigCommand", argv)
    assert main(argv) == real.returncode == 1
    told = [line for line in real.stderr.splitlines() if " WARN " not in line]
    assert said(capsys.readouterr().err) == said("\n".join(told))


@pytest.mark.parametrize("delete", ["retention.ms,nonsense", "retention.ms,,cleanup.policy"])
def test_what_is_not_set_may_be_deleted_from_a_topic(
    delete: str,
    kafka4: EmbeddedKafka,
    unique: Callable[[str], str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    servers = kafka4.bootstrap("PLAINTEXT")
    name = topic(servers, unique("deleted"), 1)
    argv = ["--bootstrap-server", servers, "--alter", "--topic", name]
    assert main([*argv, "--delete-config", delete]) == 0
    assert capsys.readouterr().out == f"Completed updating config for topic {name}.\n"


def test_a_controller_tells_of_named_brokers(
    kafka4: EmbeddedKafka, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--bootstrap-controller", f"127.0.0.1:{kafka4.brokers[1].ports.controller}"]
    rate = "max.connection.creation.rate"
    lines = [
        f"--alter --broker 1 --add-config {rate}=1234",
        "--describe --broker 1",
        "--describe --entity-type brokers",
        f"--alter --broker 1 --delete-config {rate}",
        "--describe --broker 77",
        "--alter --broker-logger 1 --add-config nonsense=INFO",
    ]
    for line in lines:
        argv = [*where, *line.split()]
        real = run_tool("kafka.admin.ConfigCommand", argv)
        assert main(argv) == real.returncode, line
        printed = capsys.readouterr()
        assert sorted(printed.out.splitlines()) == sorted(real.stdout.splitlines())
        assert said(printed.err) == said(real.stderr)

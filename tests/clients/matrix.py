"""
Which client is tried at what, before which broker, by which test: tests and docs are made of this.

``python -m clients.matrix ../docs/reference/clients.md`` in ``tests`` writes the docs' page.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

FILE: Final = "tests/integration/test_gateway_clients.py"
BROKERS: Final = {"4.3.1": "kafka4", "3.9.2": "kafka3"}
"""Version to the mark of its tests."""

CREATE: Final = "test_a_client_creates_a_topic"
RECORDS: Final = "test_a_client_produces_consumes_and_resets_its_offsets"
REBALANCE: Final = "test_a_group_shares_partitions_out_and_takes_over"
TRANSACTION: Final = "test_a_client_commits_and_aborts_transactions"
PERFORMANCE: Final = "test_performance_tools_produce_in_transactions_and_consume"

OPERATIONS: Final = (
    "topic creation",
    "produce",
    "consume",
    "offset reset",
    "group rebalance",
    "transaction",
)
SHOWN_BY: Final = {
    CREATE: ("topic creation",),
    RECORDS: ("produce", "consume", "offset reset"),
    REBALANCE: ("group rebalance",),
    TRANSACTION: ("transaction",),
    PERFORMANCE: ("produce", "consume", "transaction"),
}


@dataclass(frozen=True, slots=True)
class Row:
    """
    A client and what it is tried at.

    Attributes:
        id: in the tests' names.
        name: in the docs.
        tests: that it is put through.
        brokers: before which.
        slow: those of the tests that ``make test-all`` runs and ``.ci/run`` doesn't.
    """

    id: str
    name: str
    tests: tuple[str, ...]
    brokers: tuple[str, ...] = tuple(BROKERS)
    slow: tuple[str, ...] = ()


_LIBRARY: Final = (CREATE, RECORDS, REBALANCE, TRANSACTION)
_TOOLS: Final = (CREATE, RECORDS, REBALANCE)


def _old(version: str, *tests: str) -> Iterator[Row]:
    yield Row(f"console-{version}", f"console tools of {version}", tests, slow=tests)
    yield Row(f"perf-{version}", f"performance tools of {version}", (PERFORMANCE,),
              slow=(PERFORMANCE,))  # fmt: skip


ROWS: Final = (
    Row("console", "Apache Kafka's console tools, of the broker's version", _TOOLS),
    Row("perf", "its performance tools, of the broker's version", (PERFORMANCE,)),
    Row("confluent-kafka", "confluent-kafka", _LIBRARY),
    Row("aiokafka", "aiokafka", _LIBRARY),
    Row("kafka-python", "kafka-python", _LIBRARY),
    Row("console-kip-848", "console consumer, `group.protocol=consumer`", (REBALANCE,),
        ("4.3.1",), (REBALANCE,)),
    Row("confluent-kafka-kip-848", "confluent-kafka, `group.protocol=consumer`",
        (RECORDS, REBALANCE), ("4.3.1",), (REBALANCE,)),
    *_old("3.0.2", *_TOOLS),
    *_old("2.8.2", *_TOOLS),
    *_old("2.1.1", RECORDS, REBALANCE),
)  # fmt: skip


def trials(test: str) -> list[tuple[str, str, bool]]:
    """
    Return what a test is parametrised with.

    Args:
        test: its name.

    Returns:
        Broker, client's id, whether it's slow.
    """
    return [
        (broker, row.id, test in row.slow)
        for row in ROWS
        if test in row.tests
        for broker in row.brokers
    ]


_WHY_NOT: Final = (
    "A dash: the client has no such operation. Kafka's console tools have no transactions, its "
    "performance tools",
    "create no topics and reset nothing; `kafka-topics` of 2.1 speaks to ZooKeeper only. KIP-848 "
    "came with Kafka 4.0.",
    "aiokafka's admin client can't alter offsets: a consumer of the group commits them.",
)


def page() -> str:
    """Return docs/reference/clients.md."""
    lines = [
        "# Clients",
        "",
        "Apache Kafka clients from 2.1 to 4.x work through the gateway unchanged. What is shown of",
        "that, before real brokers: 4.3.1 (KRaft, two of them) and 3.9.2 (ZooKeeper). A version in",
        "plain is tried by every `.ci/run`, one with a star by `make test-all`.",
        "",
        f"| client | {' | '.join(OPERATIONS)} |",
        f"|---|{'---|' * len(OPERATIONS)}",
    ]
    for row in ROWS:
        cells = []
        for operation in OPERATIONS:
            by = [test for test in row.tests if operation in SHOWN_BY[test]]
            star = "\\*" if by and by[0] in row.slow else ""
            cells.append(", ".join(f"{broker}{star}" for broker in row.brokers) if by else "-")
        lines.append(f"| {row.name} | {' | '.join(cells)} |")
    lines += [
        "",
        *_WHY_NOT,
        "",
        f"The tests are in `{FILE}`, for each a name and `[broker-client]`:",
        "",
        "| shown | by | with |",
        "|---|---|---|",
    ]
    for test, shown in SHOWN_BY.items():
        clients = ", ".join(f"`{row.id}`" for row in ROWS if test in row.tests)
        lines.append(f"| {', '.join(shown)} | `{test}` | {clients} |")
    lines += ["", *_OTHERS]
    return "\n".join(lines) + "\n"


ELSEWHERE: Final = {
    "share groups of confluent-kafka, throttled": (
        "tests/integration/test_gateway_oracle.py::"
        "test_a_throttled_share_group_gets_each_record_at_its_first_delivery"
    ),
    "share groups by `kafka-console-share-consumer`\\*": (
        f"{FILE}::test_a_share_group_reads_through_the_gateway"
    ),
    "telemetry of confluent-kafka (KIP-714), before a scripted broker": (
        "tests/integration/test_gateway_telemetry.py::test_a_clients_telemetry_reaches_the_broker"
    ),
    "kafka-python's own test suite, before 4.3.1\\*": (
        "tests/integration/test_gateway_peer_suite.py::"
        "test_kafka_pythons_own_tests_pass_as_they_do_at_a_4_3_broker"
    ),
    "kafka-python's own test suite, before 3.9.2\\*": (
        "tests/integration/test_gateway_peer_suite.py::"
        "test_kafka_pythons_own_tests_pass_as_they_do_at_a_3_9_broker"
    ),
}
_OTHERS: Final = (
    "| shown besides | by |",
    "|---|---|",
    *(f"| {what} | `{node}` |" for what, node in ELSEWHERE.items()),
)

if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")

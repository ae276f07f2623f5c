"""The byte formulas against sizes computed from Kafka's message schemas."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headgate.pipeline.logs import charged_bytes as sizes

CASES: dict[str, list[dict[str, Any]]] = json.loads(
    (Path(__file__).parents[2] / "data/pipeline/log_sizes.json").read_text()
)["cases"]


@pytest.mark.parametrize("case", CASES["produce"], ids=lambda c: f"v{c['version']}")
def test_produce_bytes_equal_the_schemas(case: dict[str, Any]) -> None:
    topics = [(t["name"], t["records_sizes"]) for t in case["topics"]]
    version, client = case["version"], case["client_id"]
    got = sizes.produce_bytes(version, client, case["transactional_id"], topics)
    assert got == case["charged"]
    assert sizes.header_bytes(client, version >= 9) == case["header"]


@pytest.mark.parametrize("case", CASES["fetch"], ids=lambda c: f"v{c['version']}")
def test_fetch_bytes_equal_the_schemas(case: dict[str, Any]) -> None:
    topics = [
        (t["name"], [(p["records_size"], p["aborted"], 1) for p in t["partitions"]])
        for t in case["topics"]
    ]
    assert sizes.fetch_bytes(case["version"], topics) == case["charged"]


def test_there_are_cases_for_every_version() -> None:
    assert {c["version"] for c in CASES["produce"]} >= set(range(12))
    assert {c["version"] for c in CASES["fetch"]} >= set(range(18))


def test_produce_13_carries_topic_ids_instead_of_names() -> None:
    by_name = sizes.produce_bytes(12, "c", None, [("t", [84])])
    assert sizes.produce_bytes(13, "c", None, [(None, [84])]) == by_name - 2 + 16


@pytest.mark.parametrize(
    ("n", "length"),
    [(0, 1), (127, 1), (128, 2), (16383, 2), (16384, 3), (2097151, 3), (2**21, 4), (2**28, 5)],
)
def test_varint_bytes_at_the_borders(n: int, length: int) -> None:
    assert sizes.varint_bytes(n) == length


def test_names_count_in_utf8() -> None:
    assert sizes.header_bytes("zürich", False) == 10 + 7


def test_tagged_fields_of_a_fetch_partition_are_counted() -> None:
    assert sizes.fetch_tag_bytes(False, False, False) == 1
    assert sizes.fetch_tag_bytes(True, True, True) == 1 + 15 + 11 + 15

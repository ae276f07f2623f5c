"""The bytes of each topic: what lines hold, and sums that are those charged, to the byte."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.pipeline.bundled import bundled_log
from headgate.pipeline.logs import topics
from headgate.pipeline.logs.line_parser import BadLine, LineParser, LogRow
from headgate.pipeline.logs.time_stamps import sniff_nanos, zone_of
from headgate.pipeline.logs.topics import TopicBytes, TopicParser, TopicRow
from headgate.pipeline.schema import REQUESTS
from headgate.pipeline.sources.files import find_files
from headgate.pipeline.sources.heads import shifts_of
from headgate.pipeline.sources.pieces import pieces_of
from headgate.pipeline.workers.emit import EmitRequests
from headgate.pipeline.workers.log_reader import ReadOptions

DATA = Path(__file__).parents[2] / "data"
UTC = zone_of("UTC")
BYTES = ("producer_byte_rate", "consumer_byte_rate")
LOGS = [
    bundled_log(),
    *(DATA / "pipeline" / f"{name}.log.gz" for name in ("public", "precise")),
    DATA / "pipeline" / "others.jsonl.gz",
    *sorted(p for p in (DATA / "field").rglob("*.log*") if "events" not in p.name),
]


def lines_of(path: Path) -> list[bytes]:
    data = path.read_bytes()
    data = gzip.decompress(data) if path.suffix == ".gz" else data
    if path.name.endswith(".jsonl.gz"):
        return [json.loads(line)["line"].encode() for line in data.splitlines()]
    return data.split(b"\n")


def parsed(path: Path) -> Iterator[tuple[LogRow, TopicRow]]:
    """What both parsers make of a log's lines that can be read."""
    lines = lines_of(path)
    nanos = sniff_nanos(b"\n".join(lines[:200]))
    plain, with_topics = (
        kind(UTC, nanos=nanos, file=str(path), shifts_ms=shifts_of(b"\n".join(lines[:200])))
        for kind in (LineParser, TopicParser)
    )
    for line in lines:
        try:
            row = plain.parse(line)
        except BadLine as exc:
            with pytest.raises(BadLine) as again:
                with_topics.parse(line)
            assert str(again.value) == str(exc)
            continue
        found = with_topics.parse(line)
        if row is not None:
            assert isinstance(found, TopicRow)
            yield row, found


@pytest.mark.parametrize("path", LOGS, ids=lambda p: f"{p.parent.name}-{p.name}")
def test_topics_of_every_line_of_every_log_add_up_to_what_it_was_charged(path: Path) -> None:
    known: Counter[str] = Counter()
    for row, found in parsed(path):
        assert found == row
        entries = found.bytes_by_topic
        if row.quota_type not in BYTES:
            assert not any(entry.bytes for entry in entries or ())
        elif entries is None:
            assert row.api_name == "SHARE_FETCH"  # whose sizes Kafka doesn't log
            known["no"] += 1
        else:
            assert sum(entry.bytes for entry in entries) == row.bytes_charged
            assert all(entry.bytes >= 0 for entry in entries)
            assert [e.topic for e in entries].count(topics.NO_TOPIC) == 1
            known["yes"] += 1
    assert known["no"] == (16 if path.name == "others.jsonl.gz" else 0)
    expected = {
        "t51-docker-local-tz.log",
        "t52-cri-local-tz.log",
        "F04-several-brokers.log.gz",
        "docker-over-ecs.log",
        "audit.log",
        "note.log",
        "utf16-without-bom.log",
    }
    assert (known["yes"] == 0) == (path.name in expected)


def test_the_bundled_log_has_the_bytes_of_each_topic() -> None:
    sums: Counter[tuple[str, str | None, str | None]] = Counter()
    names = {}
    for _, row in parsed(bundled_log()):
        for entry in row.bytes_by_topic or ():
            sums[row.quota_type[:8], entry.topic, entry.topic_id] += entry.bytes
            if entry.topic and entry.topic_id:
                names[entry.topic_id] = entry.topic
    assert {key: sum_ for key, sum_ in sums.items() if sum_} == {
        ("producer", "orders", None): 6_761_099,
        ("producer", "events", None): 7_913_366,
        ("producer", "ledger", None): 1_055_050,
        ("producer", "", None): 339_958,
        ("consumer", None, "uKux5kytQzWFAS4pqbnEpQ"): 6_001_191,
        ("consumer", None, "Mmjhcaz0Qvuz3UD-wu-Vrg"): 4_452_382,
        ("consumer", "", None): 12_694,
    }
    assert names["uKux5kytQzWFAS4pqbnEpQ"] == "orders"
    assert names["Mmjhcaz0Qvuz3UD-wu-Vrg"] == "events"


def line(key: int, name: str, version: int, request: Any, response: Any, more: str = "") -> bytes:
    """A request line of Kafka's stock layout."""
    header = {"requestApiKey": key, "requestApiVersion": version, "correlationId": 1}
    header |= {"clientId": "app", "requestApiKeyName": name}
    value = {"isForwarded": False, "requestHeader": header, "request": request}
    value |= {"response": response, "connection": "127.0.0.1:9092-127.0.0.1:5-0-0"}
    value |= dict.fromkeys(("totalTimeMs", "requestQueueTimeMs", "localTimeMs"), 1.0)
    value |= dict.fromkeys(("remoteTimeMs", "responseQueueTimeMs", "sendTimeMs"), 0.0)
    value |= {"throttleTimeMs": 0, "securityProtocol": "PLAINTEXT", "principal": "User:alice"}
    value |= {"listener": "PLAINTEXT"}
    body = json.dumps(value, separators=(",", ":"))
    return f"[2026-11-21 11:48:19,675] DEBUG Completed request:{body}{more} (x)".encode()


def produced(*data: dict[str, Any], version: int = 10, more: str = "") -> bytes:
    request = {"transactionalId": None, "acks": -1, "timeoutMs": 1, "topicData": list(data)}
    return line(0, "PRODUCE", version, request, {"responses": [], "throttleTimeMs": 0}, more)


def part(size: int | None) -> dict[str, Any]:
    return {"index": 0, "recordsSizeInBytes": size} if size is not None else {"index": 0}


def entries(text: bytes, parser: TopicParser | None = None) -> list[TopicBytes] | None:
    row = (parser or TopicParser(UTC)).parse(text)
    assert isinstance(row, TopicRow)
    return row.bytes_by_topic


def test_a_topic_that_is_there_twice_has_one_entry() -> None:
    a, b = {"name": "a", "partitionData": [part(10)]}, {"name": "b", "partitionData": [part(0)]}
    again = {"name": "a", "partitionData": [part(5), part(7)]}
    found = entries(produced(a, b, again))
    assert found is not None
    assert found[:2] == [TopicBytes("a", None, 22), TopicBytes("b", None, 0)]
    assert found[2].topic == ""


def test_a_request_that_lacks_a_size_or_a_name_has_no_topics() -> None:
    known = {"name": "a", "partitionData": [part(10)]}
    assert entries(produced(known)) is not None
    assert entries(produced(known, {"name": "b", "partitionData": [part(None)]})) is None
    assert entries(produced({"partitionData": [part(3)]})) is None
    assert entries(produced({"topicId": 7, "partitionData": [part(3)]}, version=13)) is None


def test_records_that_are_null_are_of_no_bytes() -> None:
    null = {"name": "a", "partitionData": [{"index": 0, "records": None}]}
    found = entries(produced(null))
    assert found is not None
    assert found[0] == TopicBytes("a", None, 0)


def test_a_topic_is_its_id_where_the_version_has_no_names() -> None:
    found = entries(produced({"topicId": "uKux", "partitionData": [part(3)]}, version=13))
    assert found is not None
    assert found[0] == TopicBytes(None, "uKux", 3)


def test_what_a_layout_prints_behind_the_json_is_no_part_of_it() -> None:
    found = entries(produced({"name": "a", "partitionData": [part(3)]}, more=" {} "))
    assert found is not None
    assert found[0] == TopicBytes("a", None, 3)


@pytest.mark.parametrize("response", ['""', {"throttleTimeMs": 9, "responses": []}])
def test_a_fetch_that_nothing_was_sent_for_has_no_bytes_of_any_topic(response: Any) -> None:
    response = "" if response == '""' else response
    assert entries(line(1, "FETCH", 12, {"replicaId": -1}, response)) is not None


def test_names_are_told_with_their_ids_once() -> None:
    told = {"topics": [
        {"name": "a", "topicId": "id-a"}, {"name": "b", "topicId": "A" * 22},
        {"name": None, "topicId": "id-c"},
    ]}  # fmt: skip
    asked = line(3, "METADATA", 12, {"topics": None}, told)
    parser = TopicParser(UTC)
    assert entries(asked, parser) == [TopicBytes("a", "id-a", 0)]
    assert entries(asked, parser) is None
    assert entries(line(3, "METADATA", 12, {"topics": None}, "")) is None


def test_a_name_that_is_no_utf_8_is_no_topic_and_its_line_counts_all_the_same() -> None:
    key, version, at = 3, 13, {"errorCode": 0, "topicId": "A" * 21 + "B"}
    text = line(key, "METADATA", version, {}, {"topics": [at | {"name": "caf"}]})
    broken = text.replace(b'"caf"', b'"caf\xe9"')
    assert TopicParser(UTC).parse(broken) == LineParser(UTC).parse(broken)
    assert entries(broken) is None
    assert entries(produced({"name": "", "topicId": "id", "partitionData": [part(7)]})) == [
        TopicBytes(None, "id", 7),
        TopicBytes("", None, 32),
    ]


def test_no_more_names_are_remembered_than_have_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "_MOST_TOLD", 2)
    parser = TopicParser(UTC)
    for n in range(9):
        told = {"topics": [{"name": f"t{n}", "topicId": f"id-{n}"}]}
        assert entries(line(3, "METADATA", 12, {}, told), parser) == [
            TopicBytes(f"t{n}", f"id-{n}", 0)
        ]
        assert len(parser._told) <= 3


NAME = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
TOPIC = st.builds(
    lambda name, sizes: {"name": name, "partitionData": [part(size) for size in sizes]},
    NAME,
    st.lists(st.integers(0, 2**31 - 1), max_size=4),
)


@given(st.lists(TOPIC, max_size=5), st.integers(3, 12))
def test_topics_of_any_produce_request_add_up(data: list[dict[str, Any]], version: int) -> None:
    text = produced(*data, version=version)
    row = TopicParser(UTC).parse(text)
    assert isinstance(row, TopicRow)
    assert row == LineParser(UTC).parse(text)
    found = row.bytes_by_topic
    assert found is not None
    assert sum(entry.bytes for entry in found) == row.bytes_charged
    sums: Counter[str] = Counter()
    for topic in data:
        sums[topic["name"]] += sum(p["recordsSizeInBytes"] for p in topic["partitionData"])
    assert {e.topic: e.bytes for e in found[:-1]} == dict(sums)
    assert found[-1].topic == ""
    assert found[-1].bytes > 0


def rows_of(options: ReadOptions) -> list[dict[str, Any]]:
    batches = EmitRequests(options).read(options.pieces)
    return [r for b in batches for r in b.select(["kind", *REQUESTS.names]).to_pylist()]


def test_rows_with_topics_are_those_that_are_scanned_with_a_column_more() -> None:
    pieces = tuple(pieces_of(find_files([str(bundled_log())]), broker_id=1))
    scanned = rows_of(ReadOptions(pieces, scan=True))
    found = rows_of(ReadOptions(pieces, scan=True, topics=True))
    assert len(scanned) == len(found) == 9_701
    assert all(row["bytes_by_topic"] is None for row in scanned)
    told = [row.pop("bytes_by_topic") for row in found]
    assert found == [{k: v for k, v in r.items() if k != "bytes_by_topic"} for r in scanned]
    assert sum(t is not None for t in told) > 7_000

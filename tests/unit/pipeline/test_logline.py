"""One request line in, one row out; real logs to the byte; bad lines with their reason."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from headgate.pipeline.logline import BadLine, LineParser, LogRow
from headgate.pipeline.stamps import sniff_nanos

DATA = Path(__file__).parents[2] / "data/pipeline"
PRODUCE = (
    '{"isForwarded":false,"requestHeader":{"requestApiKey":0,"requestApiVersion":11,'
    '"correlationId":7,"clientId":"producer-1","requestApiKeyName":"PRODUCE"},"request":'
    '{"transactionalId":null,"acks":-1,"timeoutMs":30000,"topicData":[{"name":"t",'
    '"partitionData":[{"index":0,"recordsSizeInBytes":84}]}]},"response":{"responses":[],'
    '"throttleTimeMs":0},"connection":"10.0.0.1:9092-10.0.0.9:50312-1-5","totalTimeMs":1.204,'
    '"requestQueueTimeMs":0.061,"localTimeMs":0.711,"remoteTimeMs":0.301,"throttleTimeMs":12,'
    '"responseQueueTimeMs":0.041,"sendTimeMs":0.09,"securityProtocol":"SASL_SSL",'
    '"principal":"User:alice:x","listener":"EXTERNAL",'
    '"clientInformation":{"softwareName":"unknown","softwareVersion":"unknown"}}'
)
STOCK = f"[2024-10-25 10:15:30,123] DEBUG Completed request:{PRODUCE} (kafka.request.logger)"
AT = 1_729_851_330_123.0


def parse(line: str) -> LogRow:
    row = LineParser().parse(line.encode())
    assert row is not None
    return row


def test_a_produce_line() -> None:
    row = parse(STOCK)
    assert row == LogRow(
        record_ms=pytest.approx(AT - 0.131, abs=1e-3),
        listener="EXTERNAL",
        connection="10.0.0.1:9092-10.0.0.9:50312-1-5",
        principal="alice:x",
        client_id="producer-1",
        api_name="PRODUCE",
        api_version=11,
        is_forwarded=False,
        bytes_charged=124,
        bytes_exact=True,
        handler_ms=0.711,
        throttle_time_ms=12,
        quota_type="producer_byte_rate",
        amount=124.0,
        is_charged=True,
    )


@pytest.mark.parametrize("sample", ["public", "precise"])
def test_bytes_charged_of_a_real_log_are_exact(sample: str) -> None:
    log = gzip.decompress((DATA / f"{sample}.log.gz").read_bytes())
    parser = LineParser(nanos=sniff_nanos(log[:65536]))
    rows = [parser.parse(line) for line in log.split(b"\n") if line]
    events = gzip.decompress((DATA / f"{sample}.events.jsonl.gz").read_bytes()).splitlines()
    compared = 0
    for event in map(json.loads, events):
        row = rows[event["n"]]
        assert row is not None
        assert row.throttle_time_ms == event["throttle"]
        if event["api"] == "PRODUCE" or event["throttle"] == 0:
            assert (row.bytes_charged, row.bytes_exact) == (event["bytes"], True)
            compared += 1
        else:
            assert (row.bytes_charged, row.bytes_exact) == (0, False)
    assert compared == {"public": 22182, "precise": 2313}[sample]


ESCAPED = json.dumps(f"Completed request:{PRODUCE}")
LAYOUTS = {
    "T and no suffix": f"2024-10-25T10:15:30,123 Completed request:{PRODUCE}",
    "no mark": f"[2024-10-25 10:15:30,123] {PRODUCE}",
    "thread": f"[2024-10-25 10:15:30,123] DEBUG [thread-{{1}}] Completed request:{PRODUCE} (x)",
    "carriage return": STOCK + "\r",
    "spaces": STOCK.replace(PRODUCE, json.dumps(json.loads(PRODUCE))),
    "JsonLayout": '{"instant":{"epochSecond":1729851330,"nanoOfSecond":123000000},'
    f'"thread":"t","level":"DEBUG","loggerName":"kafka.request.logger","message":{ESCAPED}}}',
    "timeMillis": f'{{"timeMillis":1729851330123,"message":{ESCAPED},"level":"DEBUG"}}',
    "ECS": f'{{"@timestamp":"2024-10-25T10:15:30.123Z","log.level":"DEBUG","message":{ESCAPED}}}',
    "GELF": f'{{"version":"1.1","timestamp":1729851330.123,"short_message":{ESCAPED}}}',
    "docker": json.dumps({"log": STOCK + "\n", "time": "2024-10-25T11:00:00.1Z"}),
    "stamp before JSON": f'2024-10-25 10:15:30,123 {{"level":"DEBUG","message":{ESCAPED}}}',
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_that_operators_use(layout: str) -> None:
    row = parse(LAYOUTS[layout])
    assert row.bytes_charged == 124
    assert row.record_ms == pytest.approx(AT - 0.131, abs=2e-3)


def test_quotes_and_backslashes_in_names_survive() -> None:
    row = parse(STOCK.replace("producer-1", 'we\\"ird\\\\').replace("alice:x", "\\u00fc"))
    assert (row.client_id, row.principal) == ('we"ird\\', "ü")


def fetch(version: int, throttle: int, responses: str, request: str = "") -> str:
    return (
        '[2024-10-25 10:15:30,123] DEBUG Completed request:{"isForwarded":false,"requestHeader":'
        f'{{"requestApiKey":1,"requestApiVersion":{version},"correlationId":1,"clientId":"c",'
        f'"requestApiKeyName":"FETCH"}},"request":{{{request}"maxWaitMs":500}},'
        f'"response":{responses},"connection":"a:1-b:2-0-0",'
        f'"totalTimeMs":1.0E7,"requestQueueTimeMs":0.0,"localTimeMs":1,"remoteTimeMs":0,'
        f'"throttleTimeMs":{throttle},"responseQueueTimeMs":0.0,"sendTimeMs":0.0,'
        '"securityProtocol":"SSL","principal":"User:bob","listener":"L"}'
    )


ONE = (
    '{"throttleTimeMs":0,"errorCode":0,"sessionId":0,"responses":[{"topic":"t","partitions":'
    '[{"partitionIndex":0,"errorCode":0,"highWatermark":1,"lastStableOffset":1,"logStartOffset":0,'
    '"abortedTransactions":null,"preferredReadReplica":-1,"recordsSizeInBytes":84}]}]}'
)


def test_fetches_are_charged_by_their_response() -> None:
    row = parse(fetch(12, 0, ONE))
    assert (row.bytes_charged, row.bytes_exact, row.is_charged) == (141, True, True)
    assert row.quota_type == "consumer_byte_rate"


def test_a_throttled_fetch_has_no_size_in_the_log() -> None:
    row = parse(fetch(16, 500, '{"throttleTimeMs":500,"responses":[]}'))
    assert (row.bytes_charged, row.bytes_exact, row.throttle_time_ms) == (0, False, 500)


@pytest.mark.parametrize("request_", ['"replicaId":2,', '"replicaState":{"replicaId":2},'])
def test_a_followers_fetch_is_charged_to_nobody(request_: str) -> None:
    assert not parse(fetch(12, 0, ONE, request_)).is_charged


def test_a_share_fetch_is_an_estimate() -> None:
    one = '{"throttleTimeMs":0,"responses":[{"partitions":[{"recordsSizeInBytes":84,'
    line = fetch(1, 0, one + '"acquiredRecords":[{"firstOffset":0}]}]}],"nodeEndpoints":[]}')
    row = parse(line.replace('ApiKey":1,', 'ApiKey":78,').replace('"FETCH"', '"SHARE_FETCH"'))
    assert (row.api_name, row.quota_type, row.bytes_exact) == (
        "SHARE_FETCH",
        "consumer_byte_rate",
        False,
    )
    assert row.bytes_charged == 4 + 13 + 1 + 16 + 1 + 1 + 20 + 1 + 19 + 1 + 84


def test_a_fetch_without_an_answer_is_not_exact() -> None:
    row = parse(fetch(16, 0, '""'))
    assert (row.bytes_charged, row.bytes_exact) == (0, False)


def test_newer_versions_than_we_know_are_not_exact() -> None:
    assert not parse(fetch(99, 0, ONE)).bytes_exact
    assert not parse(STOCK.replace('Version":11', 'Version":99')).bytes_exact


def create_topics(forwarded: bool) -> str:
    return (
        "[2024-10-25 10:15:30,123] DEBUG Completed request:"
        f'{{"isForwarded":{str(forwarded).lower()},"requestHeader":'
        '{"requestApiKey":19,"requestApiVersion":7,"correlationId":1,"clientId":"c",'
        '"requestApiKeyName":"CREATE_TOPICS"},"request":{"topics":[{"name":"a","numPartitions":3,'
        '"assignments":[]},{"name":"b","numPartitions":-1,"assignments":[{"x":1},{"x":2}]}],'
        '"validateOnly":false},"response":{"throttleTimeMs":4741,"topics":[]},'
        '"connection":"a:1-b:2-0-0","totalTimeMs":1.0,"requestQueueTimeMs":0.0,"localTimeMs":1.0,'
        '"remoteTimeMs":0,"throttleTimeMs":0,"responseQueueTimeMs":0.0,"sendTimeMs":0.0,'
        '"securityProtocol":"SSL","principal":"User:bob","listener":"L"}'
    )


def test_a_forwarded_mutation_is_counted_once() -> None:
    client, controller = parse(create_topics(False)), parse(create_topics(True))
    assert (client.quota_type, client.amount) == ("controller_mutation_rate", 5.0)
    assert client.throttle_time_ms == 4741  # stands only inside the response
    assert (client.is_charged, controller.is_charged) == (True, False)


BAD = {
    STOCK[:400]: "cut off",
    STOCK.replace('"acks":-1', '"acks":-1,,'): "broken JSON",
    STOCK.replace('"recordsSizeInBytes":84', '"recordsSizeInBytes":"x"'): "not the JSON of a",
    STOCK.replace('"listener":"EXTERNAL",', ""): "missing required field `listener`",
    STOCK.replace("User:alice:x", "alice"): "isn't Type:name",
    STOCK.replace("[2024-10-25 10:15:30,123]", "now"): "no time stamp",
    "[2024-10-25 10:15:30,123] DEBUG Completed request:": "cut off before",
    "[2024-10-25 10:15:30,123] INFO Something else (kafka.server)": "not a request line",
    "\tat java.base/java.lang.Thread.run(Thread.java:833)": "not a request line",
    "[2020-10-25 10:15:30,123] DEBUG Completed request:RequestHeader(apiKey=PRODUCE) -- {}": "2.8",
    LAYOUTS["ECS"][:-40]: "cut off",
    "\x00\x01\x02": "not a request line",
}


@pytest.mark.parametrize("line", BAD)
def test_bad_lines_say_why(line: str) -> None:
    with pytest.raises(BadLine, match=BAD[line]):
        LineParser().parse(line.encode())


def test_a_line_that_is_not_utf8_says_so() -> None:
    with pytest.raises(BadLine, match="UTF-8"):
        LineParser().parse(STOCK.encode().replace(b"producer-1", b"\xff\xfe"))


def test_empty_lines_are_no_lines() -> None:
    assert LineParser().parse(b"  \r") is None

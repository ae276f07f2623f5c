"""One request line in, one row out; real logs to the byte; bad lines with their reason."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from headgate.pipeline.logs.api_names import API_NAMES, BROKERS_OWN, is_brokers_own
from headgate.pipeline.logs.line_parser import (
    BadLine,
    LineParser,
    LogRow,
)
from headgate.pipeline.logs.time_stamps import sniff_nanos

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
SPACED = PRODUCE.replace('":', '": ')
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
    "journald": json.dumps(
        {"__REALTIME_TIMESTAMP": "1729851330123000", "MESSAGE": f"Completed request:{PRODUCE}"}
    ),
    "microseconds": f'{{"ts":1729851330123000,"msg":{ESCAPED}}}',
    "nanoseconds": f'{{"ts":1729851330123000000,"msg":{ESCAPED}}}',
    "_source": f'{{"_source":{{"@timestamp":"2024-10-25T10:15:30.123Z","message":{ESCAPED}}}}}',
    "logfmt": f'time="2024-10-25T10:15:30.123Z" level=debug msg={ESCAPED} logger=x',
    "colours": f"\x1b[36m{STOCK}\x1b[m",
    "XML": f'<Event time="2024-10-25 10:15:30,123"><![CDATA[Completed request:{PRODUCE}]]></Event>',
    "context behind": f"{STOCK} {{}}",
    "a context's words behind": f"{STOCK} {{host=é, of={{b}}}} [main]",
    "JSON behind spaced JSON": f"[2024-10-25 10:15:30,123] Completed request:{SPACED} "
    '{"host":"x"}',
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


def share(responses: str, error: int = 0, throttle: int = 0) -> LogRow:
    response = f'{{"throttleTimeMs":0,"errorCode":{error},"responses":{responses}}}'
    line = fetch(1, throttle, response)
    return parse(line.replace('ApiKey":1,', 'ApiKey":78,').replace('"FETCH"', '"SHARE_FETCH"'))


def test_the_log_does_not_tell_what_a_share_fetch_brought() -> None:
    # Kafka writes no size of its records.
    acquired = (
        '{"partitionIndex":0,"errorCode":0,"records":"","acquiredRecords":[{"firstOffset":0}]}'
    )
    acknowledged = '{"partitionIndex":1,"errorCode":0,"records":"","acquiredRecords":[]}'
    row = share(f'[{{"partitions":[{acquired},{acknowledged}]}},{{"partitions":[{acknowledged}]}}]')
    assert (row.api_name, row.quota_type) == ("SHARE_FETCH", "consumer_byte_rate")
    around = 4 + 13 + 1 + 16 + 1 + 1 + 20 + 1 + 19 + 1
    assert (row.bytes_charged, row.bytes_exact) == (around, False)
    sized = acquired.replace('"records":""', '"recordsSizeInBytes":84')
    row = share(f'[{{"partitions":[{sized}]}}]')
    assert (row.bytes_charged, row.bytes_exact) == (around + 84, True)
    failed = sized.replace('"errorCode":0', '"errorCode":6')
    assert not share(f'[{{"partitions":[{failed}]}}]').bytes_exact


def test_a_share_fetch_that_brought_nothing_is_exact() -> None:
    row = share("[]")
    assert (row.bytes_charged, row.bytes_exact) == (18, True)
    row = share("[]", error=123)  # refused before it was charged
    assert (row.bytes_charged, row.bytes_exact) == (0, True)
    row = share("[]", throttle=7)
    assert (row.bytes_charged, row.bytes_exact) == (0, False)


OTHERS = [
    json.loads(line)
    for line in gzip.decompress((DATA / "others.jsonl.gz").read_bytes()).splitlines()
]


@pytest.mark.parametrize(
    ("broker", "exact", "estimates"),
    [
        ("2.8.2", 243, 50),
        ("3.4.1", 131, 43),
        ("3.9.2", 323, 50),
        ("4.3.1", 456, 33),
        ("4.3.1, ASCII", 152, 22),
    ],
)
def test_bytes_called_exact_are_what_went_over_the_wire(
    broker: str, exact: int, estimates: int
) -> None:
    rows = [(parse(o["line"]), o["charged"]) for o in OTHERS if o["broker"] == broker]
    for row, charged in rows:
        if row.bytes_exact and charged is not None:
            assert row.bytes_charged == charged, row
    assert sum(row.bytes_exact for row, _ in rows) == exact
    assert sum(not row.bytes_exact for row, _ in rows) == estimates
    # What is called an estimate, though it could be known: names with a question mark or U+FFFD,
    # and throttled fetches, whose net charge is 0.
    for row, charged in rows:
        if not row.bytes_exact and charged is not None and row.bytes_charged == charged:
            assert charged == 0 or "?" in row.client_id or "\ufffd" in row.client_id, row


def test_a_partition_whose_records_could_not_be_sent_was_charged_all_the_same() -> None:
    for version, error, exact in ((9, 76, False), (9, 35, False), (10, 76, True), (9, 3, True)):
        row = parse(
            fetch(
                version, 0, ONE.replace('Index":0,"errorCode":0', f'Index":0,"errorCode":{error}')
            )
        )
        assert row.bytes_exact is exact


def test_sizes_that_are_not_told_make_an_estimate() -> None:
    size = '"recordsSizeInBytes":84'
    assert not parse(fetch(12, 0, ONE.replace(f",{size}", ""))).bytes_exact
    assert parse(fetch(12, 0, ONE.replace(size, '"records":null'))).bytes_exact
    assert not parse(STOCK.replace(f",{size}", "")).bytes_exact
    assert parse(STOCK.replace(size, '"records":null')).bytes_exact


def test_fetches_of_kafka_2_8_have_other_names() -> None:
    old = ONE.replace('"partitions"', '"partitionResponses"')
    old = old.replace("recordsSizeInBytes", "recordSetSizeInBytes")
    row = parse(fetch(11, 0, old))
    assert (row.bytes_charged, row.bytes_exact) == (4 + 4 + 6 + 4 + 2 + 1 + 4 + 42 + 84, True)
    with pytest.raises(BadLine, match="missing required field `partitions`"):
        parse(fetch(11, 0, ONE.replace('"partitions"', '"parts"')))


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


def change(
    api: int, name: str, request: str, response: str, *, defaults: int = 1, validate: bool = False
) -> tuple[float, bool]:
    """Return (amount, exact) of a change of topics."""
    line = create_topics(False).replace('"requestApiKey":19', f'"requestApiKey":{api}')
    line = line.replace("CREATE_TOPICS", name)
    head, rest = line.split('"request":{', 1)
    tail = rest[rest.index('"connection"') :]
    only = str(validate).lower()
    line = f'{head}"request":{{{request},"validateOnly":{only}}},"response":{response},{tail}'
    row = LineParser(default_partitions=defaults).parse(line.encode())
    assert row is not None
    assert (row.quota_type, row.bytes_charged) == ("controller_mutation_rate", 0)
    return row.amount, row.bytes_exact


def created(*topics: tuple[str, int, int], asked: int = -1, **more: Any) -> tuple[float, bool]:
    """Return (amount, exact) of new topics, answered (name, error, partitions)."""
    wanted = [{"name": n, "numPartitions": asked, "assignments": []} for n, _, _ in topics]
    told = [{"name": n, "errorCode": e, "numPartitions": p} for n, e, p in reversed(topics)]
    request, response = json.dumps(wanted), json.dumps({"throttleTimeMs": 0, "topics": told})
    return change(19, "CREATE_TOPICS", f'"topics":{request}', response, **more)


def test_a_topic_with_default_partitions_counts_what_the_answer_says() -> None:
    assert created(("a", 0, 12), ("b", 0, 12)) == (24.0, True)
    # Versions before 5, and clients that may not describe configs, aren't told: it's an estimate.
    assert created(("a", 0, -1), ("b", 0, -1)) == (2.0, False)
    assert created(("a", 0, -1), ("b", 0, -1), defaults=6) == (12.0, False)
    assert created(("a", 0, -1), ("b", 0, -1), asked=5, defaults=6) == (10.0, True)


def test_a_topic_that_is_refused_isnt_charged() -> None:
    # TOPIC_ALREADY_EXISTS, THROTTLING_QUOTA_EXCEEDED: nothing was, or was to be, recorded.
    assert created(("a", 36, -1), ("b", 0, 3), ("c", 89, -1), asked=3) == (3.0, True)
    assert created(("a", 36, -1)) == (0.0, True)
    # REQUEST_TIMED_OUT: the controller may have done it.
    assert created(("a", 7, -1), asked=3) == (3.0, False)


def test_what_is_only_validated_counts_as_kraft_charges_it() -> None:
    assert created(("a", 0, 3), asked=3, validate=True) == (3.0, False)


@pytest.mark.parametrize(
    ("api", "request_", "response", "found"),
    [
        (20, '"topicNames":["a","b"]', '"responses":[{"name":"a","errorCode":0}]', (2.0, False)),
        (
            20,
            '"topics":[{"name":null,"topicId":"x"},{"name":"b","topicId":"0"}]',
            '"responses":[{"name":"b","topicId":"z","errorCode":0},'
            '{"name":"a","topicId":"x","errorCode":3}]',
            (1.0, False),
        ),
        (37, '"topics":[{"name":"a","count":6,"assignments":null}]', '"results":[]', (1.0, False)),
        (
            37,
            '"topics":[{"name":"a","count":6,"assignments":[{},{}]}]',
            '"results":[{"name":"a","errorCode":0}]',
            (2.0, True),
        ),
    ],
)
def test_deleted_and_enlarged_topics_are_estimates(
    api: int, request_: str, response: str, found: tuple[float, bool]
) -> None:
    name = {20: "DELETE_TOPICS", 37: "CREATE_PARTITIONS"}[api]
    assert change(api, name, request_, f'{{"throttleTimeMs":0,{response}}}') == found


def answered(*codes: int) -> str:
    """Return a produce line whose partitions were answered by these errors."""
    partitions = [{"index": i, "errorCode": code} for i, code in enumerate(codes)]
    body = json.dumps({"responses": [{"name": "t", "partitionResponses": partitions}]})
    start = STOCK.index('"response":') + len('"response":')
    end = STOCK.index(',"connection"')
    return STOCK[:start] + body.replace(" ", "") + STOCK[end:]


@pytest.mark.parametrize("code", [31, 53])
def test_a_produce_refused_as_a_whole_counts_against_the_request_quota_alone(code: int) -> None:
    row = parse(answered(code, code))
    assert (row.quota_type, row.bytes_charged, row.bytes_exact) == ("request_percentage", 0, True)
    assert row.amount == row.handler_ms / 10
    assert row.is_charged


@pytest.mark.parametrize("codes", [(0, 53), (53, 0), (29, 29), (0,), ()])
def test_a_produce_with_errors_of_partitions_is_charged(codes: tuple[int, ...]) -> None:
    row = parse(answered(*codes))
    assert (row.quota_type, row.bytes_charged) == ("producer_byte_rate", parse(STOCK).bytes_charged)


def test_an_answer_like_no_brokers_is_no_refusal() -> None:
    odd = answered(53).replace('"index":0', '"index":0,"errorCode":53,"errorCode":"x"')
    assert parse(odd).quota_type == "producer_byte_rate"


OLD = (
    "[2020-10-25 10:15:30,123] DEBUG Completed request:RequestHeader(apiKey={api}, apiVersion=8, "
    "clientId=a, b, correlationId=6) -- {request},response:{{responses=[],throttle_time_ms=7}} "
    "from connection 127.0.0.1:9094-127.0.0.1:61040-0;totalTime:2.42,requestQueueTime:0.112,"
    "localTime:2.15,remoteTime:0.0,throttleTime:7,responseQueueTime:0.04,sendTime:0.118,"
    "securityProtocol:SASL_SSL,principal:User:CN=a,OU=b,listener:SASL_SSL,clientInformation:"
    "ClientInformation(softwareName=x, softwareVersion=2.7.0) (kafka.request.logger)"
)
AT_2020 = 1603620930123.0


@pytest.mark.parametrize(
    ("api", "request_", "quota_type", "bytes_", "charged"),
    [
        ("PRODUCE", "{acks=-1,timeout=30000,numPartitions=1}", "producer_byte_rate", 0, True),
        (
            "PRODUCE",
            "{acks=-1,timeout=9,partitionSizes=[t-0=100,u-1=11]}",
            "producer_byte_rate",
            111,
            True,
        ),
        ("FETCH", "{replica_id=-1,max_wait_time=500}", "consumer_byte_rate", 0, True),
        ("FETCH", "FetchRequestData(replicaId=2, maxWait=5)", "consumer_byte_rate", 0, False),
        ("CREATE_TOPICS", "CreateTopicsRequestData()", "controller_mutation_rate", 0, True),
        ("METADATA", "MetadataRequestData()", "request_percentage", 0, True),
    ],
)
def test_lines_before_kafka_2_8_give_what_they_hold(
    api: str, request_: str, quota_type: str, bytes_: int, charged: bool
) -> None:
    row = parse(OLD.format(api=api, request=request_))
    assert row.record_ms == pytest.approx(AT_2020 - 0.158)
    assert (row.client_id, row.principal, row.listener) == ("a, b", "CN=a,OU=b", "SASL_SSL")
    assert row.connection == "127.0.0.1:9094-127.0.0.1:61040-0"
    assert (row.api_name, row.api_version, row.throttle_time_ms) == (api, 8, 7)
    assert (row.quota_type, row.bytes_charged, row.is_charged) == (quota_type, bytes_, charged)
    assert row.bytes_exact == (quota_type == "request_percentage")
    assert row.handler_ms == 2.15


BAD = {
    OLD.format(api="FETCH", request="{}")[:250]: "free text of Kafka before 2.8, cut off",
    STOCK[:400]: r"cut off: [1-9] braces",
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


def test_what_brokers_say_among_themselves_is_named_as_kafka_names_it() -> None:
    assert {"ALTER_ISR"} == BROKERS_OWN - set(API_NAMES)  # Kafka 2.8 to 3.1
    assert is_brokers_own("WRITE_TXN_MARKERS", 1)
    assert [is_brokers_own("ADD_PARTITIONS_TO_TXN", version) for version in (3, 4)] == [False, True]

"""
Name the shapes that people's request logs have. No reading depends on a name: see ``find``.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from headgate.pipeline.logs.bad_lines import HEADER
from headgate.pipeline.logs.old_text import OLD

_DATE: Final = r"\d{4}-\d\d-\d\d"
_TIME: Final = r"\d\d:\d\d:\d\d"


class Shape(NamedTuple):
    """
    A shape of a log.

    Attributes:
        name: as the documentation has it.
        sample: a line; ``%R`` stands for a request's JSON, ``%E`` for its text inside a JSON
            string, ``%C`` for it inside a cell of CSV, ``%K`` for its keys.
        pattern: what a line is recognised by; of several shapes the first counts.
        time: where the time is taken from.
    """

    name: str
    sample: str
    pattern: str
    time: str


SHAPES: Final = (
    Shape(
        "free text, Kafka 1.0 to 2.7",
        "[2024-10-25 10:15:30,123] DEBUG Completed request:RequestHeader(apiKey=METADATA, "
        "apiVersion=8, clientId=c, correlationId=6) -- {},response:{} from connection a:1-b:2-0;"
        "totalTime:2.4,requestQueueTime:0.1,localTime:2.1,remoteTime:0.0,throttleTime:0,"
        "responseQueueTime:0.0,sendTime:0.0,securityProtocol:SSL,principal:User:bob,listener:L",
        r"Completed request:RequestHeader\(",
        "the stamp",
    ),
    Shape(
        "CRI (containerd, CRI-O)",
        "2024-10-25T10:15:30.1234Z stdout F [2024-10-25 10:15:30,123] DEBUG Completed request:%R",
        rf"^{_DATE}T{_TIME}\S* std(out|err) [PF]",
        "the logger's stamp; the runtime's where that is finer, or has the zone",
    ),
    Shape(
        "kubectl logs --prefix",
        "[pod/kafka-0/kafka] [2024-10-25 10:15:30,123] DEBUG Completed request:%R",
        r"^\[pod/",
        "the logger's stamp",
    ),
    Shape(
        "the request as an object",
        '{"timestamp":"2024-10-25T10:15:30.123Z","host":"k1",%K',
        r'^\{.*(?<!\\)"requestHeader"\s*:\s*\{',
        "the time among its keys, or beside it",
    ),
    Shape(
        "docker json-file",
        '{"log":"[2024-10-25 10:15:30,123] DEBUG %E","stream":"stdout",'
        '"time":"2024-10-25T10:15:30.124Z"}',
        r'^\{"log":.*"stream":|"partial_message"',
        "the logger's stamp; `time` where that is finer, or has the zone",
    ),
    Shape(
        "journalctl -o json",
        '{"__REALTIME_TIMESTAMP":"1729851330123000","MESSAGE":"%E"}',
        r'"__REALTIME_TIMESTAMP"',
        "the logger's stamp, else `__REALTIME_TIMESTAMP`",
    ),
    Shape(
        "OpenTelemetry (otlp_json)",
        '{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"timeUnixNano":"1729851330123000000",'
        '"body":{"stringValue":"%E"}}]}]}]}',
        r'"(observedT|t)imeUnixNano"',
        "the logger's stamp, else `timeUnixNano`",
    ),
    Shape(
        "CloudWatch (subscription, get-log-events)",
        '{"logGroup":"g","logEvents":[{"id":"1","timestamp":1729851330123,"message":"%E"}]}',
        r'"logEvents"|"logStreamName"|"ingestionTime"|"nextForwardToken"|^\{?\s*"events"',
        "the logger's stamp, else `timestamp`",
    ),
    Shape(
        "Elastic's hits",
        '{"_index":"i","_source":{"@timestamp":"2024-10-25T10:15:30.123Z","message":"%E"}}',
        r'"_source"\s*:',
        "the logger's stamp, else `@timestamp`",
    ),
    Shape(
        "Splunk, JSON",
        '{"preview":false,"result":{"_raw":"[2024-10-25 10:15:30,123] DEBUG %E"}}',
        r'"_raw"\s*:',
        "the logger's stamp, else `_time`",
    ),
    Shape(
        "GELF",
        '{"version":"1.1","timestamp":1729851330.123,"short_message":"Completed","full_message":"%E"}',
        r'"short_message"',
        "`timestamp`",
    ),
    Shape(
        "log4j2 JsonLayout",
        '{"instant":{"epochSecond":1729851330,"nanoOfSecond":123000000},"message":"%E"}',
        r'"instant"\s*:\s*\{|"timeMillis"',
        "`instant`, `timeMillis`",
    ),
    Shape(
        "logstash",
        '{"@timestamp":"2024-10-25T10:15:30.123Z","@version":"1","message":"%E"}',
        r'"@version"',
        "`@timestamp`",
    ),
    Shape(
        "ECS, Filebeat",
        '{"@timestamp":"2024-10-25T10:15:30.123Z","log.level":"DEBUG","message":"%E"}',
        r'"@timestamp"',
        "the logger's stamp, else `@timestamp`",
    ),
    Shape(
        "Google Cloud",
        '{"severity":"DEBUG","timestamp":{"seconds":1729851330,"nanos":123000000},"message":"%E"}',
        r'"severity"',
        "the logger's stamp, else `timestamp`",
    ),
    Shape(
        "Loki",
        '{"streams":[{"stream":{"app":"kafka"},"values":[["1729851330123000000","%E"]]}]}',
        r'"streams"|"values"\s*:\s*\[\[|^\["\d{19}"',
        "the logger's stamp, else the nanoseconds in front of the line",
    ),
    Shape(
        "CSV",
        '2024-10-25 10:15:30.123,"Completed request:%C",kafka',
        r'""requestHeader""|^[@_\w"]+,[@_\w",]+$',
        "the logger's stamp, else the first cell that is a time",
    ),
    Shape(
        "other JSON (Fluent Bit, Vector, …)",
        '{"date":1729851330.123,"log":"%E"}',
        r'^\s*(\{\s*"|\[\s*["{\[]|").*requestHeader|^\s*[{\[]\s*$',
        "the logger's stamp, else the nearest time beside it",
    ),
    Shape(
        "syslog, journalctl",
        "Oct 25 10:15:30 broker-1 kafka[812]: [2024-10-25 10:15:30,123] DEBUG Completed request:%R",
        rf"^(<\d+>\d? ?)?([A-Z][a-z]{{2}} [ \d]\d {_TIME}|{_DATE}T{_TIME}\S+) \S+ \S+(\[\d+\])?:? ",
        "the logger's stamp, else syslog's",
    ),
    Shape(
        "logfmt",
        'time=2024-10-25T10:15:30.123Z level=debug msg="%E"',
        r"^\w+=\S+ .*\w+=",
        "the stamp in front of the request",
    ),
    Shape(
        "Kafka's own",
        "[2024-10-25 10:15:30,123] DEBUG Completed request:%R (kafka.request.logger)",
        rf"^\[{_DATE} {_TIME},\d+\] \w+ Completed request:\{{",
        "the stamp",
    ),
    Shape(
        "text of another layout (Strimzi, …)",
        "2024-10-25 10:15:30 DEBUG [kafka-request-handler-1] logger:283 - Completed request:%R",
        r"requestHeader",
        "the logger's stamp",
    ),
)
UNKNOWN: Final = Shape("no shape that is known", "", "", "")
_COMPILED: Final = [(re.compile(shape.pattern.encode()), shape) for shape in SHAPES]
_DOCUMENT: Final = re.compile(rb'\s*[{\[]\s*["{\[]')
_MOST_BYTES: Final = 4096


def shape_of(head: bytes) -> Shape:
    """
    Return the shape of a log.

    Args:
        head: its beginning, with its first request (``heads.head_of``).
    """
    lines = [line for line in head.split(b"\n") if HEADER in line or OLD in line]
    line = lines[0] if lines else head
    near = line[:_MOST_BYTES] + b" " + line[-_MOST_BYTES:] if len(line) > 2 * _MOST_BYTES else line
    if _DOCUMENT.match(head) and not near.startswith((b"{", b"[")):
        near = b"{" + head[:_MOST_BYTES].replace(b"\n", b"") + near  # JSON over several lines
    for pattern, shape in _COMPILED:
        if pattern.search(near):
            return shape
    return UNKNOWN

"""
Read one line of a broker's request log into the fields the pipeline needs.

Pure Python over msgspec, importable by Spark's workers. The line's API key is looked at first, by
position, so that only what that API needs is decoded: a produce request's topics, a fetch
response's, a topic change's count; the rest of the JSON is skipped. Layouts: anything in front of
the JSON object, and JSON layouts (log4j's, ECS, GELF, container runtimes) that wrap the message.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, tzinfo
from typing import Any, Final, NamedTuple

import msgspec

from headgate.pipeline import sizes
from headgate.pipeline.shapes import (
    DECODERS,
    FETCH_LINE,
    MUTATION_LINE,
    PLAIN,
    PRODUCE_LINE,
    SHARE,
    FetchLine,
    TopicsRequest,
)
from headgate.pipeline.stamps import StampError, StampReader


class BadLine(ValueError):
    """A line that holds no request we can read; the text is the reason."""


class LogRow(NamedTuple):
    """What one line gives, in the order of the ``requests`` table's first columns."""

    record_ms: float
    listener: str
    connection: str
    principal: str
    client_id: str
    api_name: str
    api_version: int
    is_forwarded: bool
    bytes_charged: int
    bytes_exact: bool
    handler_ms: float
    throttle_time_ms: int
    quota_type: str
    amount: float
    is_charged: bool


PRODUCE: Final = "producer_byte_rate"
FETCH: Final = "consumer_byte_rate"
MUTATION: Final = "controller_mutation_rate"
REQUEST: Final = "request_percentage"

# Requests between brokers and controllers: exempt from client quotas (KafkaApis, ControllerApis:
# CLUSTER_ACTION). ADD_PARTITIONS_TO_TXN from version 4 on is the brokers' own too (KIP-890).
_BROKERS_OWN: Final = frozenset(
    {
        "LEADER_AND_ISR",
        "STOP_REPLICA",
        "UPDATE_METADATA",
        "CONTROLLED_SHUTDOWN",
        "WRITE_TXN_MARKERS",
        "VOTE",
        "BEGIN_QUORUM_EPOCH",
        "END_QUORUM_EPOCH",
        "ALTER_PARTITION",
        "ENVELOPE",
        "FETCH_SNAPSHOT",
        "BROKER_REGISTRATION",
        "BROKER_HEARTBEAT",
        "ALLOCATE_PRODUCER_IDS",
        "CONTROLLER_REGISTRATION",
        "ASSIGN_REPLICAS_TO_DIRS",
        "UPDATE_RAFT_VOTER",
        "INITIALIZE_SHARE_GROUP_STATE",
        "READ_SHARE_GROUP_STATE",
        "WRITE_SHARE_GROUP_STATE",
        "DELETE_SHARE_GROUP_STATE",
        "READ_SHARE_GROUP_STATE_SUMMARY",
    }
)


def is_brokers_own(api_name: str, version: int) -> bool:
    """Say whether only brokers and controllers send it, so that no client quota counts it."""
    return api_name in _BROKERS_OWN or (api_name == "ADD_PARTITIONS_TO_TXN" and version >= 4)


# RequestConvertToJson writes the keys in this order (requestHeader's first is the API key).
_START: Final = b'{"isForwarded":'
_KEY: Final = b'"requestApiKey":'
_KEY_LEN: Final = len(_KEY)
_MARK: Final = b"Completed request:"
_ESCAPED: Final = re.compile(rb'Completed request:\s*\{\\"|\{\\"isForwarded\\"|\\"requestHeader\\"')
_OLD: Final = re.compile(rb"Completed request:\s*(?:RequestHeader\(|[A-Za-z])")


class LineParser:
    """
    Parse the lines of one file.

    Args:
        zone: the broker's time zone, where stamps print none.
        nanos: see ``stamps.sniff_nanos``.
        file: the file's name; gives the date where stamps have none.
    """

    def __init__(self, zone: tzinfo = UTC, *, nanos: bool = False, file: str = "") -> None:
        self._stamps = StampReader(zone, nanos=nanos, file=file)
        self._names: dict[str, str] = {}

    def parse(self, line: bytes) -> LogRow | None:
        """
        Return what ``line`` holds; None for an empty line.

        Raises:
            BadLine: with the reason, if it isn't a whole request line.
        """
        start = line.find(_START)
        if start < 0:
            return self._parse_unusual(line)
        try:
            return self._row(line[start:] if start else line, self._stamps.read(line[:start]))
        except StampError as exc:
            raise BadLine(str(exc)) from exc

    def _row(self, body: bytes, log_ms: float) -> LogRow:
        key = body.find(_KEY, 0, 160) + _KEY_LEN
        decoder = DECODERS.get(body[key : body.find(b",", key) + 1], PLAIN)
        end = body.rfind(b"}") + 1
        try:
            line = decoder.decode(body[:end])
            if decoder is PLAIN:  # a layout with spaces, or keys in another order
                decoder = DECODERS.get(b"%d," % line.requestHeader.requestApiKey, PLAIN)
                if decoder is not PLAIN:
                    line = decoder.decode(body[:end])
        except (msgspec.MsgspecError, UnicodeDecodeError) as exc:
            raise BadLine(_why(body, exc)) from exc
        header = line.requestHeader
        api = header.requestApiKeyName
        version = header.requestApiVersion
        client = header.clientId or ""
        principal = self._names.get(line.principal)
        if principal is None:
            principal = line.principal.partition(":")[2] if ":" in line.principal else ""
            if not principal and line.principal != "User:":
                raise BadLine(f"principal {line.principal!r} isn't Type:name")
            self._names[line.principal] = principal
        throttle = line.throttleTimeMs
        forwarded = line.isForwarded
        charged, exact, bytes_ = not forwarded, True, 0
        if decoder is PRODUCE_LINE:
            request = line.request
            bytes_ = sizes.produce_bytes(
                version,
                client,
                request.transactionalId,
                [
                    (t.name, [p.recordsSizeInBytes for p in t.partitionData])
                    for t in request.topicData
                ],
            )
            exact = version <= sizes.NEWEST_PRODUCE
            quota_type, amount = PRODUCE, float(bytes_)
        elif decoder is FETCH_LINE:
            quota_type = FETCH
            bytes_, exact, follower = _fetch(line, version)
            charged = charged and not follower
            amount = float(bytes_)
        elif decoder is SHARE:
            if not isinstance(line.response, str):
                topics = [
                    [(p.recordsSizeInBytes, len(p.acquiredRecords or ())) for p in t.partitions]
                    for t in line.response.responses
                ]
                bytes_ = sizes.share_fetch_bytes(version, topics)
            quota_type, amount, exact = FETCH, float(bytes_), False
        elif decoder is MUTATION_LINE:
            quota_type, amount = MUTATION, _mutations(line.request)
            if not isinstance(line.response, str):
                throttle = max(throttle, line.response.throttleTimeMs)
        else:
            quota_type, amount = REQUEST, line.localTimeMs / 10.0
            charged = charged and not is_brokers_own(api, version)
        return LogRow(
            log_ms - line.sendTimeMs - line.responseQueueTimeMs,
            line.listener,
            line.connection,
            principal,
            client,
            api,
            version,
            forwarded,
            bytes_,
            exact,
            line.localTimeMs,
            throttle,
            quota_type,
            amount,
            charged,
        )

    def _parse_unusual(self, line: bytes) -> LogRow | None:
        """Return the row of a line whose JSON is wrapped, spaced, or not there at all."""
        if not line.strip():
            return None
        if _ESCAPED.search(line):
            message, log_ms = self._unwrap(line)
            start = message.find(b"{")
            return self._row(message[start:], log_ms)
        if _OLD.search(line):
            msg = "free text line of Kafka before 2.8; its sizes can't be recovered"
            raise BadLine(msg)
        mark = line.find(_MARK)
        start = line.find(b"{", mark + len(_MARK)) if mark >= 0 else line.find(b"{")
        if start < 0 or (mark < 0 and b'"requestHeader"' not in line):
            reason = "cut off before its JSON" if mark >= 0 else "not a request line"
            raise BadLine(reason)
        try:
            log_ms = self._stamps.read(line[:start])
        except StampError as exc:
            raise BadLine(str(exc)) from exc
        body = line[start:]
        if b'"requestHeader"' not in body:
            raise BadLine(_why(body, None))
        try:  # spaces after colons: put it into the form the fast way knows
            value = json.loads(body[: body.rfind(b"}") + 1])
        except ValueError as exc:
            raise BadLine(_why(line[start:], exc)) from exc
        return self._row(json.dumps(value, separators=(",", ":")).encode(), log_ms)

    def _unwrap(self, line: bytes) -> tuple[bytes, float]:
        """Return the message inside a JSON layout's object, and its time."""
        for start in (m.start() for m in re.finditer(rb"\{", line)):
            try:
                outer = json.loads(line[start : line.rfind(b"}") + 1])
            except ValueError as exc:
                raise BadLine(_why(line[start:], exc)) from exc
            if isinstance(outer, dict):
                break
        message = next((v for v in _strings(outer) if "requestHeader" in v), None)
        if message is None:
            msg = "no request in the JSON layout's fields"
            raise BadLine(msg)
        raw = message.encode()
        try:  # a pattern line inside (container runtimes) has the logger's own time
            return raw, self._stamps.read(raw[: raw.find(b"{")])
        except StampError:
            pass
        log_ms = _wrapper_ms(outer, self._stamps)
        if log_ms is None:
            try:
                log_ms = self._stamps.read(line[: line.find(b"{")])
            except StampError as exc:
                msg = "no time in the JSON layout's fields"
                raise BadLine(msg) from exc
        return raw, log_ms


def _fetch(line: FetchLine, version: int) -> tuple[int, bool, bool]:
    """Return (bytes charged, exact, is a follower's) of a fetch."""
    request, response = line.request, line.response
    replica = request.replicaId if request.replicaState is None else request.replicaState.replicaId
    if isinstance(response, str):
        return 0, False, replica >= 0  # the connection closed: nothing was answered
    if line.throttleTimeMs > 0 and not response.responses:
        return 0, False, replica >= 0  # charged and taken back, and its size isn't logged
    bytes_ = sizes.fetch_bytes(
        version,
        [
            (
                t.topic,
                [
                    (
                        p.recordsSizeInBytes,
                        None if p.abortedTransactions is None else len(p.abortedTransactions),
                        1
                        if p.divergingEpoch is p.currentLeader is p.snapshotId is msgspec.UNSET
                        else sizes.fetch_tag_bytes(
                            p.divergingEpoch is not msgspec.UNSET,
                            p.currentLeader is not msgspec.UNSET,
                            p.snapshotId is not msgspec.UNSET,
                        ),
                    )
                    for p in t.partitions
                ],
            )
            for t in response.responses
        ],
    )
    exact = (
        version <= sizes.NEWEST_FETCH
        and line.throttleTimeMs == 0
        and line.messageConversionsTime == 0.0
    )
    return bytes_, exact, replica >= 0


def _mutations(request: TopicsRequest) -> float:
    """
    Return the partitions a topic change is charged, as far as the line tells.

    Exact for new topics with a stated number of partitions; a default number (-1), a deleted
    topic and an enlarged one count 1, for the log doesn't say how many they have.
    """
    if request.validateOnly:
        return 0.0
    total = len(request.topicNames or ())
    for topic in request.topics or ():
        total += len(topic.assignments or ()) or max(topic.numPartitions, 1)
    return float(total)


def _strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [s for v in value.values() for s in _strings(v)]
    return []


# Where JSON layouts keep the time: log4j2 JsonLayout, JsonTemplateLayout (ECS, GELF), logstash.
_TIME_KEYS: Final = ("@timestamp", "timestamp", "timeMillis", "time", "ts", "date", "asctime")


def _wrapper_ms(outer: dict[str, Any], stamps: StampReader) -> float | None:
    instant = outer.get("instant")
    if isinstance(instant, dict) and "epochSecond" in instant:
        return float(instant["epochSecond"]) * 1000.0 + instant.get("nanoOfSecond", 0) / 1e6
    for key in _TIME_KEYS:
        value = outer.get(key)
        if isinstance(value, bool) or value is None:
            continue
        if isinstance(value, int | float):
            return float(value) if value > 1e11 else float(value) * 1000.0
        try:
            return stamps.read(str(value).encode())
        except StampError:
            continue
    return None


def _why(body: bytes, error: Exception | None) -> str:
    """Say what is wrong with a JSON body: cut off, garbled, or a field missing."""
    depth = body.count(b"{") - body.count(b"}")
    if depth > 0 or not body:
        return f"cut off: {depth} braces of its JSON are open at the end"
    try:
        value = json.loads(body[: body.rfind(b"}") + 1])
    except UnicodeDecodeError as exc:
        return f"not UTF-8 at byte {exc.start} of the JSON"
    except ValueError as exc:
        return f"broken JSON: {exc}"
    if not isinstance(value, dict):
        return "the JSON isn't an object"
    return f"not the JSON of a request: {error}" if error else "the JSON holds no requestHeader"

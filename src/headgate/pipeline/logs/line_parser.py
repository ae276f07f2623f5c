"""
Read one line of a broker's request log into the fields the pipeline needs.

Pure Python over msgspec, importable by Spark's workers. The line's API key is looked at first, by
position, so that only what that API needs is decoded: a produce request's topics, a fetch
response's, a topic change's count; the rest of the JSON is skipped. Layouts: anything in front of
the JSON object, and JSON layouts (log4j's, ECS, GELF, container runtimes) that wrap the message.
"""

from __future__ import annotations

import re
from datetime import UTC, tzinfo
from typing import Final, NamedTuple

import msgspec

from headgate.pipeline.logs import charged_bytes
from headgate.pipeline.logs.api_names import is_brokers_own
from headgate.pipeline.logs.bad_lines import (
    ARRIVAL,
    HEADER,
    START,
    BadLine,
    is_arrival,
    is_field,
    not_a_request,
    reason_of,
)
from headgate.pipeline.logs.find import Found, find
from headgate.pipeline.logs.line_json import (
    FETCH_LINE,
    MUTATION_LINE,
    PRODUCE_LINE,
    PRODUCE_RESPONSE,
    SHARE,
    ChangedTopic,
    FetchLine,
    FetchPartition,
    MutationLine,
    NewTopic,
    ProduceLine,
    ShareLine,
    decoded,
)
from headgate.pipeline.logs.old_text import OLD, OldRequest
from headgate.pipeline.logs.principals import Principals
from headgate.pipeline.logs.time_stamps import StampError, StampReader

__all__ = [
    "FETCH",
    "MUTATION",
    "PRODUCE",
    "REQUEST",
    "BadLine",
    "LineParser",
    "LogRow",
]


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

_OLD_TYPES: Final = {
    "PRODUCE": PRODUCE,
    "FETCH": FETCH,
    "CREATE_TOPICS": MUTATION,
    "DELETE_TOPICS": MUTATION,
    "CREATE_PARTITIONS": MUTATION,
}
_END_MS: Final = 253_402_300_800_000.0  # the year 10000
_BYTES: Final = re.compile(rb"114, ?101, ?113, ?117, ?101, ?115, ?116, ?72")  # requestH
_UNREADABLE: Final = (StampError, RecursionError, OverflowError)


class LineParser:
    """
    Parse the lines of one file.

    Args:
        zone: the broker's time zone, where stamps print none.
        nanos: see ``time_stamps.sniff_nanos``.
        file: the file's name; gives the date where stamps have none.
        default_partitions: the cluster's ``num.partitions``.
        shifts_ms, watching: see ``time_stamps.StampReader``.
        principal_pattern: see ``principals.Principals``.
        columns: what the columns of a file of CSV are called, where it says so.

    Attributes:
        stamps: the reader of time stamps.
        columns: as given.
    """

    def __init__(
        self,
        zone: tzinfo = UTC,
        *,
        nanos: bool = False,
        file: str = "",
        default_partitions: int = 1,
        shifts_ms: tuple[float, ...] = (),
        watching: bool = False,
        principal_pattern: str = "",
        columns: tuple[str, ...] = (),
    ) -> None:
        self.stamps = StampReader(
            zone, nanos=nanos, file=file, shifts_ms=shifts_ms, watching=watching
        )
        self.columns = columns
        self._default_partitions = default_partitions
        self._principals = Principals(principal_pattern)

    def parse(self, line: bytes) -> LogRow | None:
        """
        Return what the only request in ``line`` holds; None for an empty line.

        Raises:
            BadLine: with the reason, if it holds no whole request, or several.
        """
        found = self.rows(line)
        if len(found) > 1:
            raise BadLine(f"{len(found)} requests")
        first = found[0] if found else None
        if isinstance(first, BadLine):
            raise first
        return first

    def rows(self, line: bytes) -> list[LogRow | BadLine]:
        """Return what the requests in ``line`` hold, or why not; nothing for an empty line."""
        start = line.find(START)
        reason: BadLine | None = None
        before = line[: max(start, 0)]
        if start >= 0 and not is_field(before) and OLD not in before:
            try:
                return [self._row(line[start:], self.stamps.read(before))]
            except BadLine as exc:
                reason = exc
            except _UNREADABLE as exc:
                reason = reason_of(exc)
        elif not (HEADER in line or OLD in line or _BYTES.search(line)):
            if not line.strip():
                return []
            return [BadLine(not_a_request(line))]
        if reason is not None and is_arrival(line):
            return [BadLine(ARRIVAL)]
        found = self._found(line)
        if reason is not None and len(found) == 1 and isinstance(found[0], BadLine):
            return [reason]
        return found or [BadLine(not_a_request(line))]

    def _found(self, line: bytes) -> list[LogRow | BadLine]:
        """Return what the requests hold that stand anywhere in a line."""
        rows: list[LogRow | BadLine] = []
        try:
            for each in find(line, self.stamps, self.columns):
                if isinstance(each, Found):
                    rows.append(self._found_row(each))
                else:
                    rows.append(each if isinstance(each, BadLine) else BadLine(str(each)))
        except RecursionError as exc:
            rows.append(reason_of(exc))
        return rows

    def _found_row(self, found: Found) -> LogRow | BadLine:
        try:
            row = self._row(found.body, self.stamps.agreed(found.own, found.others))
        except BadLine as exc:
            return exc
        except _UNREADABLE as exc:
            return reason_of(exc)
        return row if found.old is None else _unsized(row, found.old)

    def _row(self, body: bytes, log_ms: float) -> LogRow:
        line, decoder = decoded(body)
        header = line.requestHeader
        api = header.requestApiKeyName
        version = header.requestApiVersion
        client = header.clientId or ""
        principal = self._name_of(line.principal)
        throttle = line.throttleTimeMs
        charged, exact, bytes_ = not line.isForwarded, True, 0
        if decoder is PRODUCE_LINE:
            quota_type = PRODUCE
            bytes_, exact = _produce(line, version, client)
            amount = float(bytes_)
            if _is_refused(line.response):
                quota_type, amount = REQUEST, line.localTimeMs / 10.0
                bytes_, exact = 0, True
        elif decoder is FETCH_LINE:
            quota_type = FETCH
            bytes_, exact, follower = _fetch(line, version)
            charged = charged and not follower
            amount = float(bytes_)
        elif decoder is SHARE:
            bytes_, exact = _share_fetch(line, version)
            quota_type, amount = FETCH, float(bytes_)
        elif decoder is MUTATION_LINE:
            quota_type = MUTATION
            amount, exact = _mutations(line, self._default_partitions)
            answer = line.response
            throttle = max(throttle, 0 if isinstance(answer, str) else answer.throttleTimeMs)
        else:
            quota_type, amount = REQUEST, line.localTimeMs / 10.0
            charged = charged and not is_brokers_own(api, version)
        record_ms = log_ms - line.sendTimeMs - line.responseQueueTimeMs
        if not 0.0 <= record_ms < _END_MS:
            msg = f"impossible time: {record_ms:.0f} ms since 1970"
            raise BadLine(msg)
        return LogRow(
            record_ms,
            line.listener,
            line.connection,
            principal,
            client,
            api,
            version,
            line.isForwarded,
            bytes_,
            exact,
            line.localTimeMs,
            throttle,
            quota_type,
            amount,
            charged,
        )

    def _name_of(self, principal: str) -> str:
        """Return the name in a principal."""
        name = self._principals.name_of(principal)
        if name is None:
            raise BadLine(
                f"principal {principal!r} isn't Type:name, nor of another form that is known; "
                "--principal-pattern says where its name is"
            )
        return name


def _unsized(row: LogRow, old: OldRequest) -> LogRow:
    """Return the row of a line of Kafka before 2.8: it holds no sizes."""
    quota_type = _OLD_TYPES.get(row.api_name)
    if quota_type is None:
        return row
    bytes_ = old.bytes_ if quota_type == PRODUCE else 0
    return row._replace(
        quota_type=quota_type,
        bytes_charged=bytes_,
        bytes_exact=False,
        amount=1.0 if quota_type == MUTATION else float(bytes_),
        is_charged=row.is_charged and not old.is_brokers,
    )


def _produce(line: ProduceLine, version: int, client: str) -> tuple[int, bool]:
    """Return (bytes charged, exact) of a produce request."""
    request = line.request
    topics = []
    names, told = f"{client}{request.transactionalId}", True
    for topic in request.topicData:
        records = [p.recordsSizeInBytes for p in topic.partitionData]
        topics.append((topic.name, records))
        names += topic.name or ""
        if None in records:
            told = told and all(p.is_sized for p in topic.partitionData)
    bytes_ = charged_bytes.produce_bytes(version, client, request.transactionalId, topics)
    return bytes_, version <= charged_bytes.NEWEST_PRODUCE and told and not _lacks(names)


def _fetch(line: FetchLine, version: int) -> tuple[int, bool, bool]:
    """Return (bytes charged, exact, is a follower's) of a fetch."""
    request, response = line.request, line.response
    replica = request.replicaId if request.replicaState is None else request.replicaState.replicaId
    if isinstance(response, str):
        return 0, False, replica >= 0  # the connection closed: nothing was answered
    if line.throttleTimeMs > 0 and not response.responses:
        return 0, False, replica >= 0  # charged and taken back, and its size isn't logged
    bytes_ = charged_bytes.fetch_bytes(
        version,
        [
            (
                t.topic,
                [
                    (
                        p.size,
                        None if p.abortedTransactions is None else len(p.abortedTransactions),
                        1
                        if p.divergingEpoch is p.currentLeader is p.snapshotId is msgspec.UNSET
                        else charged_bytes.fetch_tag_bytes(
                            p.divergingEpoch is not msgspec.UNSET,
                            p.currentLeader is not msgspec.UNSET,
                            p.snapshotId is not msgspec.UNSET,
                        ),
                    )
                    for p in t.partitions or ()
                ],
            )
            for t in response.responses
        ],
    )
    exact = (
        charged_bytes.OLDEST_EXACT_FETCH <= version <= charged_bytes.NEWEST_FETCH
        and line.throttleTimeMs == 0
        and line.messageConversionsTime == 0.0
        and not any("?" in (t.topic or "") for t in response.responses)
        and all(_is_whole(p, version) for t in response.responses for p in t.partitions or ())
    )
    return bytes_, exact, replica >= 0


_UNSENT: Final = (charged_bytes.UNSUPPORTED_VERSION, charged_bytes.UNSUPPORTED_COMPRESSION)


def _is_whole(partition: FetchPartition, version: int) -> bool:
    """Say whether what was sent of a partition, and so logged, is what was charged."""
    unsent = version < charged_bytes.UNSENT_BELOW and partition.errorCode in _UNSENT
    return partition.is_sized and not unsent


def _share_fetch(line: ShareLine, version: int) -> tuple[int, bool]:
    """
    Return (bytes charged, exact) of a share fetch: exact only where it brought nothing.

    Kafka 4.0 to 4.3 log ``"records":""`` whatever there was, so only the frame around the records
    is counted. Partitions that only acknowledge get into the answer after the charge (KafkaApis).
    """
    response = line.response
    if isinstance(response, str) or line.throttleTimeMs > 0:
        return 0, False  # not answered; or charged and taken back, and its size isn't logged
    if response.errorCode:
        return 0, True  # refused before anything was fetched
    topics, exact = [], version in charged_bytes.EXACT_SHARE
    for topic in response.responses:
        fetched = [
            p for p in topic.partitions if p.recordsSizeInBytes is not None or p.acquiredRecords
        ]
        exact = exact and all(
            p.recordsSizeInBytes is not None and not p.errorCode for p in topic.partitions
        )
        if fetched:
            topics.append([(p.recordsSizeInBytes, len(p.acquiredRecords or ())) for p in fetched])
    return charged_bytes.share_fetch_bytes(version, topics), exact


def _lacks(names: str) -> bool:
    """
    Say whether names may have lost characters, and so their length in bytes.

    U+FFFD stands for bytes that weren't UTF-8 on the way in, a question mark for a character that
    the log's encoding lacks on the way out (Java up to 17 without a UTF-8 locale writes ASCII).
    """
    return "?" in names or "\ufffd" in names


# What a produce request is refused with as a whole, before its bytes are charged (KafkaApis,
# handleProduceRequest): CLUSTER_AUTHORIZATION_FAILED (an idempotent one, before Kafka 3) and
# TRANSACTIONAL_ID_AUTHORIZATION_FAILED. Only the request quota counts it.
_REFUSED: Final = (31, 53)
_MAYBE_REFUSED: Final = re.compile(rb'"errorCode":\s*(?:31|53)\b')


def _is_refused(response: msgspec.Raw) -> bool:
    """Say whether a produce request was refused before it was charged, by its answer."""
    text = bytes(response)
    if not _MAYBE_REFUSED.search(text):
        return False
    try:
        answers = PRODUCE_RESPONSE.decode(text).responses
    except (msgspec.MsgspecError, UnicodeDecodeError):  # none of Kafka's: it counts as any other
        return False
    codes = {p.errorCode for topic in answers for p in topic.partitionResponses}
    return len(codes) == 1 and codes <= set(_REFUSED)


# An answer that doesn't say whether the controller has done it, and so charged it.
_TIMED_OUT: Final = 7


def _mutations(line: MutationLine, default_partitions: int) -> tuple[float, bool]:
    """
    Return (partitions that a topic change is charged, exact).

    A controller charges each topic once it has found nothing wrong with it, so one with an error
    isn't charged (``ReplicationControlManager``). The line doesn't say how many partitions a
    deleted topic had (counts 1), or an enlarged one had before (1, without assignments), or a new
    one got by default, unless the answer does. Nor does it say whether a controller charges what it
    only validates: KRaft's does, ZooKeeper's didn't.
    """
    request, response = line.request, line.response
    topics = [NewTopic(name=name) for name in request.topicNames or ()] + (request.topics or [])
    told: list[ChangedTopic] = []
    if not isinstance(response, str):
        told = response.topics or response.responses or response.results or []
    answers = {bytes(t.topicId): t for t in told} | {bytes(t.name): t for t in told}
    done = len(told) == len(topics) and not any(t.errorCode for t in told)
    total, exact = 0, bool(told) and not request.validateOnly
    for topic in topics:
        name = bytes(topic.name)
        found = answers.get(bytes(topic.topicId) if name == b"null" else name)
        if found is not None and found.errorCode not in (0, _TIMED_OUT):
            continue
        exact = exact and (done or (found is not None and found.errorCode == 0))
        if topic.assignments:
            total += len(topic.assignments)
        elif topic.numPartitions is not None and topic.numPartitions > 0:
            total += topic.numPartitions
        elif topic.numPartitions is not None and found is not None and found.numPartitions > 0:
            total += found.numPartitions
        else:
            total += 1 if topic.numPartitions is None else default_partitions
            exact = False
    return float(total), exact

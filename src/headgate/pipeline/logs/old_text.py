"""
Read the request lines of Kafka 1.0 to 2.7, which are free text: all they hold but sizes.

``Completed request:RequestHeader(apiKey=…) -- {…},response:{…} from connection …;totalTime:…``
(kafka.network.RequestChannel). A produce request's records are in it at TRACE (``partitionSizes``).
Nothing in such a line is escaped, so a client's name may look like what Kafka prints behind it. A
line in which more than one place looks like that is refused: none says which is Kafka's.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

from headgate.pipeline.logs.bad_lines import MARK, BadLine

OLD: Final = b"Completed request:RequestHeader(apiKey="
_MARK: Final = MARK.decode()
_HEADER: Final = re.compile(
    r"RequestHeader\(apiKey=(?P<requestApiKeyName>\w+), apiVersion=(?P<requestApiVersion>\d+), "
    r"clientId="
)
_HEADER_END: Final = re.compile(r", correlationId=-?\d+(?:, headerVersion=\d+)?\) -- ")
_NUMBER: Final = r"-?\d+(?:\.\d+)?(?:E-?\d+)?"
_TAIL: Final = re.compile(
    r" from connection (?P<connection>[^;\s]+);"
    rf"totalTime:{_NUMBER},requestQueueTime:{_NUMBER},localTime:(?P<localTime>{_NUMBER}),"
    rf"remoteTime:{_NUMBER},throttleTime:(?P<throttleTime>{_NUMBER}),"
    rf"responseQueueTime:(?P<responseQueueTime>{_NUMBER}),sendTime:(?P<sendTime>{_NUMBER}),"
    r"securityProtocol:\w+,principal:"
)
_LISTENER: Final = re.compile(r",listener:([\w.-]+)")
_SIZES: Final = re.compile(r"\{acks=-?\d+,timeout=-?\d+,partitionSizes=\[([^\]]*)\]")
_REPLICA: Final = re.compile(r"(?:\{|\w*\()(?:type=\w+, |clusterId=null, )?replica_?[iI]d=(-?\d+)")
_TIMES: Final = ("localTime", "throttleTime", "responseQueueTime", "sendTime")


class OldRequest(NamedTuple):
    """
    What a line holds.

    Attributes:
        request: the fields of a request's JSON that are in it.
        bytes_: of the records that it names.
        is_brokers: whether another broker sent it.
    """

    request: dict[str, Any]
    bytes_: int
    is_brokers: bool


def read_old(text: str) -> OldRequest:
    """
    Read a line's text from ``RequestHeader(`` on.

    Raises:
        BadLine: the line isn't whole, or names in it look like fields.
    """
    header = _HEADER.match(text)
    ends, tails = list(_HEADER_END.finditer(text)), list(_TAIL.finditer(text))
    listeners = list(_LISTENER.finditer(text, tails[0].end())) if tails else []
    if header is None or not (ends and tails and listeners):
        raise BadLine("free text of Kafka before 2.8, cut off, or of Kafka before 1.0")
    if len(ends) > 1 or len(tails) > 1 or len(listeners) > 1 or _MARK in text:
        raise BadLine("free text of Kafka before 2.8 in which a name looks like a field")
    (end,), (tail,), (listener,) = ends, tails, listeners
    if end.start() < header.end() or end.end() > tail.start():
        raise BadLine("free text of Kafka before 2.8, cut off, or of Kafka before 1.0")
    sizes = _SIZES.match(text, end.end(), tail.start())
    sized = [part.rpartition("=")[2] for part in sizes[1].split(",")] if sizes else []
    is_fetch = header["requestApiKeyName"] == "FETCH"
    replica = _REPLICA.match(text, end.end(), tail.start()) if is_fetch else None
    client = text[header.end() : end.start()]
    request = {
        "requestHeader": {
            "requestApiKey": -1,
            "requestApiKeyName": header["requestApiKeyName"],
            "requestApiVersion": int(header["requestApiVersion"]),
            "clientId": "" if client == "null" else client,
        },
        "connection": tail["connection"],
        "principal": text[tail.end() : listener.start()],
        "listener": listener[1],
    } | {f"{name}Ms": float(tail[name]) for name in _TIMES}
    request["throttleTimeMs"] = int(float(tail["throttleTime"]))
    is_brokers = replica is not None and int(replica[1]) >= 0
    bytes_ = sum(int(size) for size in sized if size.isdigit())
    return OldRequest(request, bytes_, is_brokers)

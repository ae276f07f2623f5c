"""
Read the request lines of Kafka 1.0 to 2.7, which are free text: all they hold but sizes.

``Completed request:RequestHeader(apiKey=…) -- {…},response:{…} from connection …;totalTime:…``
(kafka.network.RequestChannel). A produce request's records are in it at TRACE (``partitionSizes``).
"""

from __future__ import annotations

import re
from typing import Any, Final

from headgate.pipeline.logs.bad_lines import BadLine

OLD: Final = b"Completed request:RequestHeader(apiKey="
_HEADER: Final = re.compile(
    r"RequestHeader\(apiKey=(?P<requestApiKeyName>\w+), apiVersion=(?P<requestApiVersion>\d+), "
    r"clientId=(?P<clientId>.*?), correlationId=-?\d+(?:, headerVersion=\d+)?\) -- "
)
_FROM: Final = " from connection "
_TIME: Final = re.compile(r"(\w+):(-?\d+(?:\.\d+)?(?:E-?\d+)?)(?=,)")
_WHO: Final = re.compile(r"principal:(.*),listener:([^,\s]+)")
_SIZES: Final = re.compile(r"partitionSizes=\[([^\]]*)\]")
_REPLICA: Final = re.compile(r"replica_?[iI]d=(-?\d+)")
_TIMES: Final = ("localTime", "throttleTime", "responseQueueTime", "sendTime")


def read_old(text: str) -> tuple[dict[str, Any], int, bool]:
    """
    Read a line's text from ``RequestHeader(`` on.

    Returns:
        (the fields of a request's JSON that the line holds; bytes of the records that it names;
        whether another broker sent it).

    Raises:
        BadLine: the line isn't whole.
    """
    header = _HEADER.match(text)
    at = text.rfind(_FROM)
    connection, _, rest = text[at + len(_FROM) :].partition(";")
    times = dict(_TIME.findall(rest))
    who = _WHO.search(rest)
    if header is None or at < 0 or who is None or not all(name in times for name in _TIMES):
        raise BadLine("free text of Kafka before 2.8, cut off, or of Kafka before 1.0")
    sizes = _SIZES.search(text, header.end(), at)
    sized = [part.rpartition("=")[2] for part in sizes[1].split(",")] if sizes else []
    replica = _REPLICA.search(text, header.end(), at)
    client = header["clientId"]
    request = {
        "requestHeader": {
            "requestApiKey": -1,
            "requestApiKeyName": header["requestApiKeyName"],
            "requestApiVersion": int(header["requestApiVersion"]),
            "clientId": "" if client == "null" else client,
        },
        "connection": connection,
        "principal": who[1],
        "listener": who[2],
    } | {f"{name}Ms": float(times[name]) for name in _TIMES}
    request["throttleTimeMs"] = int(float(times["throttleTime"]))
    is_brokers = replica is not None and int(replica[1]) >= 0
    return request, sum(int(size) for size in sized if size.isdigit()), is_brokers

"""Request-log lines of one request whose parts a test chooses, and what is read of them."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from headgate.pipeline.sources.files import find_files
from headgate.pipeline.sources.pieces import pieces_of
from headgate.pipeline.workers.log_reader import ReadOptions, RequestsOfLogs

BEGIN = datetime(2024, 10, 25, 10, 15, 30, 123000, UTC)


def body(client: str = "c", number: int = 6, principal: str = "User:bob") -> str:
    """Return a request's JSON."""
    return (
        '{"isForwarded":false,"requestHeader":{"requestApiKey":3,"requestApiVersion":12,'
        f'"correlationId":{number},"clientId":"{client}","requestApiKeyName":"METADATA"}},'
        '"request":{},"response":{},"connection":"10.0.0.1:9092-10.0.0.2:5000-1",'
        '"totalTimeMs":0.5,"requestQueueTimeMs":0.1,"localTimeMs":0.2,"remoteTimeMs":0.0,'
        '"throttleTimeMs":0,"responseQueueTimeMs":0.0,"sendTimeMs":0.0,"securityProtocol":"P",'
        f'"principal":"{principal}","listener":"L"}}'
    )


def stock(at: datetime = BEGIN, **named: Any) -> str:
    """Return a line as Kafka writes it."""
    stamp = f"{at:%Y-%m-%d %H:%M:%S},{at.microsecond // 1000:03d}"
    return f"[{stamp}] DEBUG Completed request:{body(**named)} (kafka.request.logger)"


def ms(at: datetime) -> float:
    """Return epoch ms."""
    return at.timestamp() * 1000


def read(
    tmp_path: Path,
    lines: list[str],
    *,
    scan: bool = False,
    piece_bytes: int = 1 << 30,
    **given: Any,
) -> list[dict[str, Any]]:
    """Return the requests and bad lines of a log."""
    log = tmp_path / "kafka.log"
    log.write_text("".join(f"{line}\n" for line in lines))
    pieces = tuple(pieces_of(find_files([str(log)]), piece_bytes=piece_bytes))
    told = ReadOptions(pieces, scan=scan, **given)
    batches = [b for piece in pieces for b in RequestsOfLogs(told).read(piece)]
    return [row for batch in batches for row in batch.to_pylist() if row["kind"] != "stat"]


HEAD = "RequestHeader(apiKey={api}, apiVersion=8, clientId={client}, correlationId=6) -- {request}"
TAIL = (
    " from connection {connection};totalTime:2.4,requestQueueTime:0.1,localTime:2.1,remoteTime:0.0,"
    "throttleTime:{throttle},responseQueueTime:0.0,sendTime:0.0,securityProtocol:SSL,"
    "principal:{principal},listener:L"
)
NAMED = {"api": "FETCH", "client": "c", "request": "{replica_id=-1}", "response": "{}"}
NAMED |= {"connection": "a:1-b:2-0", "throttle": "7", "principal": "User:bob"}


def old(**named: str) -> str:
    """Return a line of Kafka 2.7."""
    form = f"[2024-10-25 10:15:30,123] DEBUG Completed request:{HEAD},response:{{response}}{TAIL}"
    given = NAMED | named
    return form.format(**given)

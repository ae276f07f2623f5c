"""The HTTP listener under bad input: answered or closed, and proper requests are served."""

from __future__ import annotations

import socket
import time

import pytest

from headgate.gateway import GatewayThread
from headgate.gateway import health_and_metrics as http_listener
from headgate.gateway.health_and_metrics import MOST_CONNECTIONS
from headgate.quota.entity import DEFAULT, QuotaEntity
from headgate.quota.key import CONNECTION, PRODUCER

from .scripted_upstream import Start, connect, produce, read_answer, start, upstream

__all__ = ["start", "upstream"]


def ask(gateway: GatewayThread, raw: bytes) -> bytes:
    """Say something to the HTTP listener; return all it answers until it closes."""
    http = gateway.gateway.http
    assert http is not None
    with socket.create_connection(http.address, 60) as client:
        found = b""
        try:
            client.sendall(raw)
            while piece := client.recv(65_536):
                found += piece
        except ConnectionError:  # it was closed before everything was said
            pass
    return found


def get(path: str, *, method: str = "GET", more: str = "") -> bytes:
    return f"{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{more}\r\n".encode()


CHUNKED = b"POST /healthz HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (get("/"), b"404"),
        (get("/../../etc/passwd"), b"404"),
        (get("/metrics/x"), b"404"),
        (get("/metrics", method="POST", more="Content-Length: 3\r\n") + b"abc", b"405"),
        (get("/healthz", method="DELETE"), b"405"),
        (get("/readyz", method="BREW"), b"405"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 hello\r\n\r\n", b"400"),
        (b"GET /healthz?\xff\x00 HTTP/1.1\r\nHost: x\r\n\r\n", b"400"),
        (b"GET /healthz HTTP/1.1\r\n\r\n", b"400"),
        (b"GET /healthz HTTP/1.1\r\nHost: x\r\nA: " + b"b" * 300_000, b"400"),
        (b"GET /" + b"a" * 300_000, b"400"),
        (b"GET /healthz HTTP/1.1\r\nHost: x\r\n" + b"a:\r\n" * 15_000 + b"\r\n", b"400"),
        (CHUNKED + b"1\r\na\r\n" * 40_000, b"400"),
    ],
    ids=lambda value: repr(value[:24]),
)
def test_bad_input_is_refused_and_the_next_is_served(
    start: Start, raw: bytes, status: bytes
) -> None:
    gateway = start(headgate__http__listener="127.0.0.1:0")
    answer = ask(gateway, raw)
    assert answer.startswith(b"HTTP/1.1 " + status) or (status == b"400" and not answer)
    assert ask(gateway, get("/healthz")).endswith(b"\r\n\r\nok\n")


def test_questions_that_never_end_keep_nobody_else_out(start: Start) -> None:
    gateway = start(headgate__http__listener="127.0.0.1:0")
    http = gateway.gateway.http
    assert http is not None
    half = [socket.create_connection(http.address, 60) for _ in range(MOST_CONNECTIONS + 5)]
    for client in half:
        client.sendall(b"GET /heal")
    assert ask(gateway, get("/readyz")).endswith(b"\r\n\r\nready\n")
    for client in half:
        client.close()


def test_answers_that_are_never_read_keep_nobody_else_out(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_listener, "page", lambda _: b"#" * 200_000)
    gateway = start(headgate__http__listener="127.0.0.1:0")
    http = gateway.gateway.http
    assert http is not None
    deaf: list[socket.socket] = []
    for _ in range(MOST_CONNECTIONS):
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        client.connect(http.address)
        client.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" * 50)
        deaf.append(client)
    time.sleep(0.5)  # until every buffer is full
    for _ in range(20):
        assert ask(gateway, get("/healthz")).endswith(b"\r\n\r\nok\n")
    for client in deaf:
        client.close()


def test_a_client_id_can_forge_no_series(start: Start) -> None:
    forged = 'a"} 1\nheadgate_store_up{broker="1"} 0\n'
    gateway = start(
        {QuotaEntity.of(client_id=forged): {PRODUCER: 1_000.0}},
        headgate__http__listener="127.0.0.1:0",
    )
    frame = produce(50_000)
    name = forged.encode()
    body = frame[4:12] + len(name).to_bytes(2, "big") + name + frame[17:]
    with connect(gateway) as client:
        client.sendall(len(body).to_bytes(4, "big") + body)
        read_answer(client)
    lines = ask(gateway, get("/metrics")).decode().splitlines()
    assert 'headgate_store_up{broker="1"} 1.0' in lines
    assert 'headgate_store_up{broker="1"} 0' not in lines
    assert any(line.startswith("kafka_server_produce_byte_rate{") for line in lines)


def test_addresses_without_series_are_counted_and_summed_up(start: Start) -> None:
    everybody = QuotaEntity.of(ip=DEFAULT)
    gateway = start(
        {everybody: {CONNECTION: 1_000.0}},
        headgate__http__listener="127.0.0.1:0",
        headgate__metrics__quota__ids="2",
    )
    for n in range(2, 7):
        source = (f"127.0.0.{n}", 0)
        at = gateway.gateway.addresses("PLAINTEXT")[1]
        with socket.create_connection(at, 60, source) as client:
            client.sendall(produce(1_000))
            read_answer(client)

    def found(text: str) -> dict[str, float]:
        lines = ask(gateway, get("/metrics")).decode().splitlines()
        named = (line.rpartition(" ") for line in lines if text in line and line[0] != "#")
        return {name: float(value) for name, _, value in named}

    kind = 'broker="1",quota_type="connection_creation_rate"'
    ids = {f'headgate_quota_ids{{{kind},series="{s}"}}': n for s, n in (("own", 2), ("others", 3))}
    assert found(f"headgate_quota_ids{{{kind}") == ids
    [rest] = found(f"headgate_others_rate{{{kind}").values()
    own = found('connection_accept_rate{broker="1",ip=')
    assert len(own) == 2
    # Rates of addresses are asked for one after another, and fall meanwhile.
    assert 0 < min(own.values()) <= rest <= 3.01 * max(own.values())
    assert set(found("headgate_quota_value").values()) == {1_000.0}
    quotas = gateway.gateway.brokers[1].quotas
    gateway.call(lambda: quotas.set_ip_rate(None, None))
    assert not found("headgate_quota_value")  # addresses are still measured, by no limit

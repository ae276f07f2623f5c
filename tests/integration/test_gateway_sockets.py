"""The gateway on real sockets, with a scripted upstream: mutes, bounds, idle clients, leases."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from pathlib import Path
from typing import Any

import pytest

from headgate.clock import now_ms
from headgate.config import Settings
from headgate.gateway import Gateway, GatewayError, GatewayThread, periodic_work
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import PRODUCER, QuotaKey
from headgate.store import open_store

from .gateway_kit import wait_for
from .scripted_upstream import (
    PRODUCED,
    SLOW,
    VERSIONS,
    Start,
    Upstream,
    connect,
    links,
    produce,
    read_answer,
    start,
    upstream,
)

__all__ = ["start", "upstream"]


def test_a_client_that_goes_while_muted_is_noticed(start: Start) -> None:
    gateway = start(SLOW)
    with connect(gateway) as client:
        client.sendall(produce(50_000))
        told = int.from_bytes(read_answer(client)[-4:], "big")
        assert 0 < told <= 40_000  # what is left when it is answered
        client.sendall(produce(60_000, 2))  # held while muted
        assert gateway.call(lambda: links(gateway)) == 1
    wait_for(lambda: gateway.call(lambda: links(gateway)) == 0, "the connection to be let go")


def test_a_muted_client_that_sends_megabytes_and_goes_is_noticed(start: Start) -> None:
    gateway = start(SLOW)
    with connect(gateway) as client:
        client.sendall(produce(50_000))
        read_answer(client)
        client.sendall(produce(700_000, 2))
        front = gateway.gateway.brokers[1]
        wait_for(
            lambda: gateway.call(lambda: any(k._paused for k in front.links)), "reading to stop"
        )
        held = gateway.call(lambda: max(k.session.held_bytes for k in front.links))
        assert held <= 2 * 262_144
    wait_for(lambda: gateway.call(lambda: links(gateway)) == 0, "the connection to be let go")
    assert gateway.gateway.brokers[1].meters.listeners["PLAINTEXT"].closed["client-gone"] == 1


def test_a_client_that_never_reads_is_not_buffered_without_bound(
    start: Start, upstream: Upstream
) -> None:
    gateway = start()
    with connect(gateway) as client:
        client.sendall(VERSIONS)
        read_answer(client)
        client.settimeout(1.0)
        request = b"".join(produce(70, number) for number in range(1_000))
        # Answers are as big as requests here; nobody takes them, so in the end nobody may send.
        with pytest.raises(TimeoutError):
            for _ in range(5_000):
                client.sendall(request)
        front = gateway.gateway.brokers[1]

        def waiting() -> int:
            return max(
                k.client.transport.get_write_buffer_size()
                + k.broker.transport.get_write_buffer_size()
                + k.session.held_bytes
                for k in front.links
            )

        assert gateway.call(waiting) < 4_000_000


def test_idle_connections_are_closed(start: Start) -> None:
    gateway = start(connections__max__idle__ms="1500")
    with connect(gateway) as client:
        client.sendall(VERSIONS)
        read_answer(client)
        client.settimeout(60)
        assert client.recv(1) == b""
    closed = gateway.gateway.brokers[1].meters.listeners["PLAINTEXT"].closed
    assert gateway.call(lambda: closed["idle"]) == 1


@pytest.mark.parametrize("set_by_ms", [3_600_000, -3_600_000], ids=["forward", "back"])
def test_setting_the_clock_closes_nobody_and_keeps_nobody(
    start: Start, monkeypatch: pytest.MonkeyPatch, set_by_ms: int
) -> None:
    monkeypatch.setattr(periodic_work, "_SWEEP_S", 3_600)  # the looks are the test's own
    gateway = start(connections__max__idle__ms="600000")

    def look(passed_ms: int, skew_ms: int) -> list[str]:
        """Look after connections; return why those were closed that are."""
        broker = gateway.gateway.brokers[1]
        for _ in broker.sweep(began_ms + passed_ms + skew_ms, skew_ms):
            pass
        return list(broker.meters.listeners["PLAINTEXT"].closed)

    with connect(gateway) as quiet, connect(gateway) as slow:
        quiet.sendall(VERSIONS)
        read_answer(quiet)
        slow.sendall(VERSIONS[:-1])
        wait_for(
            lambda: gateway.call(
                lambda: any(
                    link.session.partial_since_ms for link in gateway.gateway.brokers[1].links
                )
            ),
            "the request's beginning",
        )
        began_ms = now_ms()
        assert gateway.call(lambda: look(0, 0)) == []
        assert gateway.call(lambda: look(1_000, set_by_ms)) == []
        assert gateway.call(lambda: look(290_000, set_by_ms)) == []
        assert gateway.call(lambda: look(302_000, set_by_ms)) == ["slow-request"]
        assert gateway.call(lambda: look(602_000, set_by_ms)) == ["slow-request", "idle"]


def test_an_upstream_that_goes_closes_its_clients_and_invents_no_answer(
    start: Start, upstream: Upstream
) -> None:
    gateway = start()
    with connect(gateway) as client:
        client.sendall(VERSIONS)
        read_answer(client)
        upstream._loop.call_soon_threadsafe(
            lambda: [writer.transport.abort() for writer in list(upstream._writers)]
        )
        client.settimeout(60)
        assert client.recv(1) == b""


def test_draining_finishes_what_is_in_flight(start: Start) -> None:
    gateway = start()
    with connect(gateway) as client:
        client.sendall(VERSIONS)
        read_answer(client)
        client.sendall(produce(1_000)[:500])
        front = gateway.gateway.brokers[1]
        wait_for(
            lambda: gateway.call(lambda: any(k.session.begun for k in front.links)),
            "the half",
        )
        ender = threading.Thread(target=gateway.stop, args=(20_000,))
        ender.start()
        client.sendall(produce(1_000)[500:])
        assert read_answer(client)[4:8] == struct.pack(">i", 1)
        assert client.recv(1) == b""
        ender.join(60)


def test_the_newcomer_stands_by_and_takes_over_when_the_first_goes(
    start: Start, tmp_path: Path, free_port: int
) -> None:
    path = f"sqlite:{tmp_path / 'quotas.db'}"
    here = {"listeners": f"PLAINTEXT://127.0.0.1:{free_port}", "headgate__lease__ttl__ms": "6000"}
    one_store, two_store = open_store(path), open_store(path)
    one = start(store=one_store, headgate__worker__id="one", **here)
    two = start(store=two_store, headgate__worker__id="two", **here)
    assert set(one.gateway.brokers) == {1}
    assert set(two.gateway.brokers) == set()
    assert two.gateway.not_ready() == "standing by"
    one.stop(0)
    # Asked on the loop's own thread: there a front that is seen listens already.
    wait_for(lambda: two.call(lambda: set(two.gateway.brokers)) == {1}, "the standby to take over")
    with socket.create_connection(("127.0.0.1", free_port), 10) as client:
        client.sendall(VERSIONS)
        assert read_answer(client)[4:8] == struct.pack(">i", 9)
    two.stop(0)
    one_store.close()
    two_store.close()


def test_many_connections_come_and_go(start: Start) -> None:
    gateway = start()
    clients = [connect(gateway) for _ in range(300)]
    for client in clients:
        client.sendall(VERSIONS)
    for client in clients:
        assert read_answer(client)[4:8] == struct.pack(">i", 9)
    assert gateway.call(lambda: links(gateway)) == 300
    for client in clients:
        client.close()
    wait_for(lambda: gateway.call(lambda: links(gateway)) == 0, "all to be let go")
    assert gateway.gateway.brokers[1].quotas.total == 0


def test_a_broker_that_isnt_kafka_is_named(tmp_path: Path) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        port = silent.getsockname()[1]
        settings = Settings.from_properties(
            {
                "headgate.upstream": f"127.0.0.1:{port}",
                "headgate.upstream.connect.timeout.ms": "300",
                "headgate.broker.id.min": "1",
                "headgate.broker.id.max": "1",
                "headgate.data.dir": str(tmp_path),
                "headgate.usage": "none",
            }
        )
        with pytest.raises(GatewayError, match=f"127.0.0.1:{port}"):
            GatewayThread(lambda: Gateway(settings)).start()


def test_without_its_store_a_gateway_serves_the_snapshot_until_the_store_answers(
    tmp_path: Path, upstream: Upstream
) -> None:
    from headgate.errors import StoreError
    from headgate.gateway.store_link.guard import Snapshot, save_snapshot
    from headgate.quota.alteration import Op, QuotaAlteration

    settings = Settings.from_properties(
        {
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "headgate.upstream": f"127.0.0.1:{upstream.port}",
            "headgate.broker.id.min": "1",
            "headgate.broker.id.max": "1",
            "headgate.data.dir": str(tmp_path),
            "headgate.usage": "none",
        }
    )
    url = f"sqlite:{tmp_path / 'quotas.db'}"
    with contextlib.closing(open_store(url)) as store:
        slow = [(e, tuple(Op(k, v) for k, v in values.items())) for e, values in SLOW.items()]
        store.alter([QuotaAlteration(*each) for each in slow])
        save_snapshot(settings, Snapshot(store.snapshot(), {}, store.home.identity()))
        store.alter([QuotaAlteration(e, tuple(Op(k, None) for k, _ in ops)) for e, ops in slow])
    up = threading.Event()

    def reopen() -> Any:
        if not up.is_set():
            raise StoreError("not yet", retriable=True)
        return open_store(url)

    with GatewayThread(lambda: Gateway(settings, None, reopen=reopen)) as gateway:
        with connect(gateway) as client:
            client.sendall(produce(50_000))
            assert 0 < int.from_bytes(read_answer(client)[-4:], "big") <= 40_000
        assert gateway.views()[0].meters.store_up is False
        assert "can't be opened" in str(gateway.call(gateway.gateway.not_ready))
        with contextlib.closing(open_store(url)) as store:
            store.alter([QuotaAlteration.of(QuotaEntity.of(user="bob"), (Op(PRODUCER, 7.0),))])
        up.set()
        bob = QuotaEntity.of(user="bob")
        wait_for(lambda: gateway.gateway.table.get(bob, PRODUCER) == 7.0, "the store's quotas")
        assert gateway.views()[0].meters.store_up
        assert gateway.call(gateway.gateway.not_ready) is None
        with connect(gateway) as client:  # the snapshot's quota isn't the store's
            client.sendall(produce(50_000))
            assert int.from_bytes(read_answer(client)[-4:], "big") == 0
        assert gateway.gateway.store is not None
        gateway.gateway.store.close()


def test_a_real_runs_journal_replays_to_the_same_throttles(
    start: Start, upstream: Upstream, tmp_path: Path
) -> None:
    from headgate.gateway.charging.managers import Managers
    from headgate.quota.entity import entity_from_path
    from headgate.usage.reader import read_events

    gateway = start(
        {QuotaEntity.of(user="ANONYMOUS"): {PRODUCER: 400_000.0}},
        headgate__usage=f"files:{tmp_path / 'usage'}",
        quota__window__num="2",
    )
    told: list[int] = []

    def produce_some() -> None:
        with connect(gateway) as client:
            for number in range(40):
                # The last alone is too much, however long the others took.
                client.sendall(produce(900_000 if number == 39 else 16_384, number))
                told.append(int.from_bytes(read_answer(client)[-4:], "big"))

    threads = [threading.Thread(target=produce_some) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    settings = gateway.gateway.settings
    gateway.stop(0)
    replayed: Managers | None = None
    decisions: list[int] = []
    answers: list[int] = []
    for row in read_events([tmp_path / "usage"]).to_pylist():
        now = int(row["t_ms"])
        if row["kind"] == "start":
            replayed = Managers(settings, now)
        elif row["kind"] == "quota":
            assert replayed is not None
            key = QuotaKey.parse(row["quota_type"])
            entity = entity_from_path(row["entity"])
            replayed.by_key[key].update_quota(entity, row["value"], now)
        elif row["kind"] == "record":
            assert replayed is not None
            manager = replayed.by_key[QuotaKey.parse(row["quota_type"])]
            decision = manager.record(row["principal"], row["client_id"], int(row["amount"]), now)
            assert decision.throttle_time_ms == row["throttle_time_ms"]
            decisions.append(row["throttle_time_ms"])
        elif row["kind"] == "told":
            answers.append(row["told_throttle_time_ms"])
    assert len(answers) == sum(ms > 0 for ms in decisions)
    assert sorted(answers + [0] * (len(told) - len(answers))) == sorted(told)
    assert max(told) > 0


def test_bytes_arrive_whole_when_both_sides_are_slow(start: Start, upstream: Upstream) -> None:
    """Read buffers are lent to writes that must wait; what waits must not be overwritten."""
    import hashlib
    import random

    got: dict[int, Any] = {}

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = await reader.readexactly(4)
        if int.from_bytes(first, "big") < 100:  # the gateway's own question
            await Upstream._serve(upstream, _Put(first, reader), writer)  # type: ignore[arg-type]
            return
        size = int.from_bytes(first, "big")
        number = -1
        while True:
            frame = await reader.readexactly(size)
            correlation = int.from_bytes(frame[4:8], "big")
            number = correlation // 1_000
            got.setdefault(number, hashlib.sha256()).update(frame[8:])
            await asyncio.sleep(0.02)  # the gateway's writes pile up meanwhile
            writer.write(struct.pack(">ii", len(PRODUCED) + 4, correlation) + PRODUCED)
            await writer.drain()
            size = int.from_bytes(await reader.readexactly(4), "big")

    class _Put:
        """A reader with four bytes put back."""

        def __init__(self, first: bytes, reader: asyncio.StreamReader) -> None:
            self._first, self._reader = first, reader

        async def readexactly(self, count: int) -> bytes:
            first, self._first = self._first, b""
            return first + await self._reader.readexactly(count - len(first))

    async def quietly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        except (asyncio.IncompleteReadError, OSError):
            writer.close()

    upstream._serve = quietly  # type: ignore[method-assign]
    original = upstream._server

    async def listen_again() -> asyncio.Server:
        original.close()
        small = socket.socket()
        small.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        small.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8_192)
        small.bind(("127.0.0.1", upstream.port))
        return await asyncio.start_server(quietly, sock=small, limit=4_096)

    upstream._server = asyncio.run_coroutine_threadsafe(listen_again(), upstream._loop).result(60)
    gateway = start()
    sent: dict[int, Any] = {}

    def talk(number: int) -> None:
        chance = random.Random(number)
        digest = sent[number] = hashlib.sha256()
        answers = 60

        def read(sock: socket.socket) -> None:
            left = answers * (8 + len(PRODUCED))
            while left:
                left -= len(sock.recv(min(left, 50)))

        with connect(gateway) as client:
            client.settimeout(300)
            reader = threading.Thread(target=read, args=(client,))
            reader.start()
            for turn in range(answers):
                frame = bytearray(produce(chance.randint(20_000, 400_000), number * 1_000 + turn))
                frame[100:] = chance.randbytes(len(frame) - 100)
                digest.update(frame[12:])
                client.sendall(frame)
            reader.join(300)

    threads = [threading.Thread(target=talk, args=(number,)) for number in (1, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    assert {n: d.hexdigest() for n, d in got.items()} == {n: d.hexdigest() for n, d in sent.items()}

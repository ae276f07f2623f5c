"""
How much memory a gateway takes while clients send what is known to cost the most of it.

``python bench/gateway/attacked_memory.py [--only NAME,...] [--list]``. Each attack has a gateway
(``headgate serve``) of its own, in front of a broker that reads everything and answers only what
has to be answered. Printed is a Markdown table: resident memory before the attack, its peak while
the attack lasts (``VmHWM``), what bounds it, and the longest piece of work on the event loop.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from neighbours import free_port, wait_for  # noqa: E402
from real_broker import gateway  # noqa: E402

from headgate.wire import apis  # noqa: E402
from headgate.wire.fields import write_varint  # noqa: E402
from headgate.wire.header import build_request, build_response  # noqa: E402
from peers import PRODUCE_ANSWER, metadata_answer, produce_frame, versions_answer  # noqa: E402

MB = 1_000_000
PIECE = 1 << 18
POOL = "128 MiB pool (`queued.max.request.bytes`)"
IDENTIFIED = "an eighth of the pool, and 16 KiB a connection"
LOGIN = b"\0alice\0secret"


# --- the broker ---------------------------------------------------------------------------------


def answer_of(key: int, version: int, correlation: int, port: int) -> bytes:
    """What the broker says; nothing to a ShareFetch, which waits for records."""
    if key == apis.SHARE_FETCH:
        return b""
    if key == apis.PRODUCE:
        return build_response(key, version, correlation, PRODUCE_ANSWER)
    if key == apis.API_VERSIONS:
        return versions_answer(correlation, version)
    if key == apis.SASL_HANDSHAKE:
        body = struct.pack(">hi", 0, 1) + struct.pack(">h", 5) + b"PLAIN"
        return build_response(key, version, correlation, body)
    if key == apis.SASL_AUTHENTICATE:
        body = struct.pack(">h", 0) + b"\0\1" + struct.pack(">q", 0) + b"\0"
        return build_response(key, version, correlation, body)
    return metadata_answer(correlation, port)


async def broker(port: int) -> None:
    """Serve until the process is ended."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                size, key, version, correlation = struct.unpack(
                    ">ihhi", await reader.readexactly(12)
                )
                left = size - 8
                while left:
                    left -= len(await reader.readexactly(min(left, PIECE)))
                writer.write(answer_of(key, version, correlation, port))
        except (OSError, asyncio.IncompleteReadError):
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", port, limit=1 << 20, backlog=4_096)
    await server.serve_forever()


# --- the attacks --------------------------------------------------------------------------------


class Target(NamedTuple):
    """A gateway that is attacked."""

    port: int
    http: int


def connected(port: int) -> socket.socket:
    """Return a connection whose peer may be slow."""
    return socket.create_connection(("127.0.0.1", port), 30)


def scrape(http: int) -> str:
    """Return what /metrics shows."""
    with urllib.request.urlopen(f"http://127.0.0.1:{http}/metrics", timeout=60) as answer:
        return str(answer.read().decode())


def send_and_stay(port: int, count: int, frame: bytes, first: bytes = b"") -> None:
    """Send a frame on some connections at once; all stay open for some seconds."""
    done: list[socket.socket] = []

    def one() -> None:
        sock = connected(port)
        done.append(sock)
        try:
            if first:
                sock.sendall(first)
                sock.recv(4_096)
            sock.sendall(frame)
        except OSError:  # it was closed, or isn't read any more
            return

    threads = [threading.Thread(target=one, daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    until = time.monotonic() + 20
    for thread in threads:
        thread.join(max(until - time.monotonic(), 0.1))
    time.sleep(3)
    for sock in done:
        sock.close()


def named(port: int, names: list[bytes]) -> None:
    """Send a small Produce under each client id, and read the answers."""
    with connected(port) as sock, sock.makefile("rb") as answers:
        for at in range(0, len(names), 50):
            some = names[at : at + 50]
            sock.sendall(b"".join(produce_frame(300, at + n, name) for n, name in enumerate(some)))
            for _ in some:
                answers.read(struct.unpack(">i", answers.read(4))[0])


def many_names(target: Target) -> None:
    """/metrics with 30,000 client ids"""
    named(target.port, [b"name-%06d" % n for n in range(30_000)])
    for _ in range(3):
        scrape(target.http)


def long_names(target: Target) -> None:
    """/metrics with 1,000 client ids of 32 kB"""
    named(target.port, [b"%032000d" % n for n in range(1_000)])
    for _ in range(3):
        scrape(target.http)


def names_without_quota(target: Target) -> None:
    """60 connections with 250 client ids of 32 kB each; a quota on somebody else"""
    socks = []
    for connection in range(60):
        sock = connected(target.port)
        socks.append(sock)
        with sock.makefile("rb") as answers:
            for n in range(250):
                sock.sendall(produce_frame(300, n, b"%032000d" % (connection * 250 + n)))
                answers.read(struct.unpack(">i", answers.read(4))[0])
    time.sleep(2)
    for sock in socks:
        sock.close()


def share_request(size: int) -> bytes:
    """A ShareFetch of some bytes whose broker may wait for as long as it likes."""
    body = b"\x02g\x02m" + struct.pack(">iiii", 0, 2**31 - 1, 1, 100)
    return build_request(apis.SHARE_FETCH, 1, 1, "app", body + bytes(size))


def share_fetches(target: Target) -> None:
    """8 x 100 MB ShareFetch at once"""
    send_and_stay(target.port, 8, share_request(100 * MB))


def share_fetches_and_more(target: Target) -> None:
    """8 x 100 MB ShareFetch, one after another, each with 40 bytes behind it that wait"""
    question = build_request(apis.DESCRIBE_CLIENT_QUOTAS, 1, 2, "app", b"\x01\0\0")
    socks = []
    for _ in range(8):
        sock = connected(target.port)
        socks.append(sock)
        sock.sendall(share_request(100 * MB) + question)
        time.sleep(0.5)
    time.sleep(2)
    for sock in socks:
        sock.close()


def strangers(target: Target) -> None:
    """500 connections x 520 kB before login"""
    frame = struct.pack(">ihhih", 524_000, 36, 2, 1, 3) + b"app" + bytes(520_000)
    send_and_stay(target.port, 500, frame)


def small_strangers(target: Target) -> None:
    """4,000 connections x 16 kB before login, for 10 s"""
    frame = struct.pack(">ihhih", 524_000, 36, 2, 1, 3) + b"app" + bytes(16_400)
    socks = []
    for _ in range(4_000):
        sock = connected(target.port)
        sock.sendall(frame)
        socks.append(sock)
    time.sleep(10)
    for sock in socks:
        sock.close()


def authenticate(token: bytes, correlation: int) -> bytes:
    """A SaslAuthenticate v2."""
    body = write_varint(len(token) + 1) + token + b"\0"
    return build_request(apis.SASL_AUTHENTICATE, 2, correlation, "app", body)


def sasl_again(target: Target) -> None:
    """8 x 100 MB SaslAuthenticate after login"""
    hello = build_request(apis.SASL_HANDSHAKE, 1, 1, "app", struct.pack(">h", 5) + b"PLAIN")

    def one() -> None:
        try:
            with connected(target.port) as sock:
                for frame in (hello, authenticate(LOGIN, 2), hello):
                    sock.sendall(frame)
                    sock.recv(4_096)
                sock.sendall(authenticate(bytes(100 * MB), 4))
                time.sleep(2)
        except OSError:
            return  # it was closed

    threads = [threading.Thread(target=one) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def large_produces(target: Target) -> None:
    """8 x 100 MB Produce under a quota on producer ids"""
    send_and_stay(target.port, 8, produce_frame(100 * MB, 1))


class Attack(NamedTuple):
    """What is done, what shall bound its memory, and the gateway's settings and quotas."""

    run: Callable[[Target], None]
    bound: str
    quota: str = "--entity-name somebody"
    rates: str = "producer_byte_rate=900000000000"
    sasl: bool = False


EACH = "--entity-default --entity-type clients --entity-default"
NAMES = "1,000 series a family, names of 256 characters; a sensor an hour for each client id"
ATTACKS: tuple[Attack, ...] = (
    Attack(many_names, NAMES, EACH),
    Attack(long_names, NAMES, EACH),
    Attack(names_without_quota, "16 M characters of contexts, 256 M in the journal"),
    Attack(share_fetches, POOL),
    Attack(share_fetches_and_more, POOL),
    Attack(strangers, IDENTIFIED, sasl=True),
    Attack(small_strangers, IDENTIFIED, sasl=True),
    Attack(sasl_again, POOL, sasl=True),
    Attack(large_produces, "two reads a connection", rates="producer_ids_rate=1000"),
)


# --- measuring ----------------------------------------------------------------------------------


def descriptors(pid: int) -> int:
    """Return how many descriptors a process has open."""
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def memory_mb(pid: int, field: str) -> float:
    """Return ``VmRSS`` or ``VmHWM`` of a process and its children, in MB."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    own = re.search(rf"{field}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return (int(own[1]) * 1_024 / MB if own else 0.0) + sum(
        memory_mb(int(child), field) for child in children
    )


def measured(attack: Attack, folder: Path) -> str:
    """Return the line of the table for one attack."""
    upstream, http = free_port(), free_port()
    process = subprocess.Popen([sys.executable, __file__, "--broker", str(upstream)])
    settings = {"headgate.http.listener": f"127.0.0.1:{http}"}
    if attack.sasl:
        settings["listener.security.protocol.map"] = "PLAINTEXT:SASL_PLAINTEXT"
        settings["sasl.enabled.mechanisms"] = "PLAIN"
        settings["headgate.upstream.security.protocol"] = "PLAINTEXT"
    try:
        wait_for(upstream, process)
        quota = attack.quota
        gate, port = gateway(folder, f"127.0.0.1:{upstream}", quota, settings, attack.rates)
        try:
            scrape(http)
            time.sleep(1)
            Path(f"/proc/{gate.pid}/clear_refs").write_text("5")  # the peak begins again
            base = memory_mb(gate.pid, "VmRSS")
            attack.run(Target(port, http))
            peak = memory_mb(gate.pid, "VmHWM")
            pieces = re.findall(r"^headgate_loop_longest_ms\S* (\S+)", scrape(http), re.M)
            failed = (folder / "log").read_text().count("Traceback")
        finally:
            gate.kill()
            gate.wait()
    finally:
        process.kill()
        process.wait()
    longest = max(map(float, pieces))
    what = (attack.run.__doc__ or "").strip()
    return f"| {what} | {base:.0f} | {peak:.0f} | {attack.bound} | {longest:.1f} | {failed} |"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="names of attacks, with commas between them")
    parser.add_argument("--list", action="store_true", help="print the names and end")
    parser.add_argument("--broker", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.broker:
        asyncio.run(broker(options.broker))
    names = [attack.run.__name__ for attack in ATTACKS]
    if options.list:
        print("\n".join(names))
        return
    chosen = options.only.split(",") if options.only else names
    print("| attack | base, MB | peak, MB | bound | longest piece, ms | exceptions |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for attack in ATTACKS:
            if attack.run.__name__ in chosen:
                print(measured(attack, Path(folder, attack.run.__name__)), flush=True)


if __name__ == "__main__":
    main()

"""
What the dearest requests of a client without permission cost a client beside it.

``python bench/gateway/strangers.py``; run it alone on the machine. One client sends small requests
one after another while another process sends what costs a gateway the most that is known: it has
no permission, and a user that isn't its own has a quota on new producer ids. Printed are the
client's p99 and longest round trip, and the longest piece of work on the gateway's event loop in
CPU time (``headgate_loop_longest_ms``). It exits with 1 if a piece took more than 10 ms.
"""

from __future__ import annotations

import argparse
import re
import socket
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from neighbours import free_port  # noqa: E402
from real_broker import gateway, small_requests  # noqa: E402

from headgate.embedded import EmbeddedKafka  # noqa: E402
from headgate.wire import apis  # noqa: E402
from headgate.wire.fields import write_varint  # noqa: E402
from headgate.wire.header import build_request  # noqa: E402

SECONDS = 4.0
BOUND_MS = 10.0


def connected(port: int) -> socket.socket:
    """Return a connection that sends at once."""
    sock = socket.create_connection(("127.0.0.1", port))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def ask(sock: socket.socket, frame: bytes) -> None:
    """Send a request and read its answer, if there is one before the end."""
    sock.sendall(frame)
    stream = sock.makefile("rb")
    head = stream.read(4)
    if len(head) == 4:
        stream.read(struct.unpack(">i", head)[0])


def empty_topics(port: int) -> None:
    """A Produce v9 of 700,000 topics without partitions."""
    count = 700_000
    body = b"\0" + struct.pack(">hi", 1, 1_000) + write_varint(count + 1)
    ask(connected(port), build_request(0, 9, 1, "app", body + b"\x02t\x01\0" * count + b"\0"))


def dribble(port: int) -> None:
    """A Produce v9 whose header has 1,024 tagged fields, its last thousand bytes one by one."""
    tags = write_varint(1_024) + (b"\x7f" + write_varint(60) + bytes(60)) * 1_024
    head = struct.pack(">hhih", 0, 9, 1, 3) + b"app" + tags
    body = b"\0" + struct.pack(">hi", -1, 1_000) + b"\x01\0"
    frame = struct.pack(">i", len(head + body)) + head + body
    with connected(port) as sock:
        sock.sendall(frame[:-1_000])
        for byte in frame[-1_000:-1]:
            sock.sendall(bytes([byte]))
        ask(sock, frame[-1:])


def coordinators(port: int) -> None:
    """A FindCoordinator v4 of 100,000 groups."""
    count = 100_000
    keys = b"".join(b"\x06%05d" % n for n in range(count))
    body = b"\0" + write_varint(count + 1) + keys + b"\0"
    ask(connected(port), build_request(apis.FIND_COORDINATOR, 4, 1, "app", body))


def share_fetch(port: int) -> None:
    """A ShareFetch of 60 MB that means nothing."""
    ask(connected(port), build_request(apis.SHARE_FETCH, 1, 1, "app", bytes(60_000_000)))


def alter_quotas(port: int) -> None:
    """An AlterClientQuotas v1 of one megabyte, which is refused."""
    entity = b"\x02" + b"\x05user\x02a\0" + b"\x02" + b"\x02k" + bytes(8) + b"\0\0" + b"\0"
    count = 1_000_000 // len(entity)
    body = write_varint(count + 1) + entity * count + b"\0" + b"\0"
    ask(connected(port), build_request(apis.ALTER_CLIENT_QUOTAS, 1, 1, "app", body))


def alter_quotas_by_twenty(port: int) -> None:
    """The same, by twenty at once."""
    others = [subprocess.Popen([*ME, "alter_quotas", str(port), "1"]) for _ in range(20)]
    for other in others:
        other.wait()


KINDS: tuple[Callable[[int], None], ...] = (
    empty_topics, dribble, coordinators, share_fetch, alter_quotas, alter_quotas_by_twenty
)  # fmt: skip
ME = [sys.executable, str(Path(__file__).resolve()), "--attack"]


def attack(name: str, port: int, times: int) -> None:
    """Send one kind of request again and again."""
    kind = next(kind for kind in KINDS if kind.__name__ == name)
    while times:
        times -= 1
        try:
            kind(port)
        except OSError:
            time.sleep(0.05)  # it was closed


@contextmanager
def attacked(name: str, port: int) -> Iterator[None]:
    """Have another process attack meanwhile."""
    with subprocess.Popen([*ME, name, str(port), "1000000"]) as other:
        try:
            time.sleep(1.0)
            yield
        finally:
            other.kill()


def beside(port: int) -> tuple[float, float]:
    """Return a lone client's p99 and longest round trip, ms."""
    times: list[float] = []
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        times += small_requests(port, 200, 1)
    times.sort()
    return times[int(len(times) * 0.99)] * 1e3, times[-1] * 1e3


def loop_longest_ms(http: int) -> float:
    """Return the longest piece of work of the gateway's event loop."""
    with urllib.request.urlopen(f"http://127.0.0.1:{http}/metrics") as answer:
        text = answer.read().decode()
    return max(map(float, re.findall(r"^headgate_loop_longest_ms\S* (\S+)", text, re.M)))


def main() -> int:
    """Measure and print; 1 if a piece of work took longer than the bound."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--attack", nargs=3, metavar=("KIND", "PORT", "TIMES"))
    options = parser.parse_args()
    if options.attack:
        name, port, times = options.attack
        attack(name, int(port), int(times))
        return 0
    slow = False
    print("| beside | p99 ms | longest ms | longest piece, ms of CPU |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder, EmbeddedKafka(Path(folder, "kafka")) as kafka:
        for kind in (None, *KINDS):
            name = kind.__name__ if kind else "nobody"
            http = free_port()
            process, port = gateway(
                Path(folder, name),
                kafka.bootstrap("PLAINTEXT"),
                "--entity-name somebody",
                {"super.users": "User:admin", "headgate.http.listener": f"127.0.0.1:{http}"},
                "producer_ids_rate=1000",
            )
            try:
                small_requests(port, 2_000, 1)
                if kind is None:
                    p99, longest = beside(port)
                else:
                    with attacked(name, port):
                        p99, longest = beside(port)
                piece = loop_longest_ms(http)
            finally:
                process.kill()
                process.wait()
            slow = slow or piece > BOUND_MS
            what = (kind.__doc__ or "").rstrip(".") if kind else "nobody"
            print(f"| {what} | {p99:.1f} | {longest:.1f} | {piece:.1f} |", flush=True)
    return int(slow)


if __name__ == "__main__":
    sys.exit(main())

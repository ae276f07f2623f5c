"""
Clients that vanish without a FIN, as when a network fails: what they leave in the gateway.

``python bench/gateway/vanishing.py [SECONDS]`` (600; as root, for a network namespace of its own).
Again and again 200 clients connect from a namespace: a quarter each has been answered and is idle,
has sent half a request, is muted, or doesn't read its answers. Then their network is taken away and
they are killed, so that the gateway hears nothing more of them. It closes idle connections after
``connections.max.idle.ms``, 4 s here. After five such rounds, when all have been closed, is printed
what the gateway holds: memory, blocks of Python's allocator, descriptors, connections as it counts
them, and its ``Link`` objects, sessions and timers of connections that are alive. It is ``headgate
serve`` in a process that counts those (``--counting``). The types of object that grew most are
named at the end. Ends with 1 if the last third of the looks holds more than the third before it.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from attacked_memory import descriptors, memory_mb  # noqa: E402
from neighbours import free_port, wait_for  # noqa: E402
from real_broker import gateway  # noqa: E402

from peers import metadata_frame, produce_frame  # noqa: E402

HERE_IP, NET = "10.213.0.1", "10.213.0"
NAME = f"hg{os.getpid()}"
CLIENTS = 200
IDLE_MS = 4_000
BOUND_PERCENT = 3.0


def ip(*words: str, check: bool = True) -> None:
    """Run ``ip``."""
    subprocess.run(["ip", *words], check=check, capture_output=not check)


def cut() -> None:
    """Take the clients' network away, and the clients with it."""
    ip("link", "del", f"{NAME}a", check=False)
    ip("netns", "del", NAME, check=False)


def join(number: int) -> None:
    """Make a network for clients, at an address that others had long ago."""
    theirs = f"{NET}.{2 + number % 250}"
    ip("netns", "add", NAME)
    ip("link", "add", f"{NAME}a", "type", "veth", "peer", "name", f"{NAME}b", "netns", NAME)
    ip("link", "set", f"{NAME}a", "up")
    ip("route", "replace", f"{theirs}/32", "dev", f"{NAME}a", "src", HERE_IP)
    ip("-n", NAME, "addr", "add", f"{theirs}/32", "dev", f"{NAME}b")
    ip("-n", NAME, "link", "set", f"{NAME}b", "up")
    ip("-n", NAME, "route", "add", f"{HERE_IP}/32", "dev", f"{NAME}b")


def clients(port: int) -> None:
    """Connect, get into the four states, say so, and stay."""
    socks = []
    for number in range(CLIENTS):
        sock = socket.create_connection((HERE_IP, port), 20)
        socks.append(sock)
        state = number % 4
        if state == 0:
            sock.sendall(metadata_frame(1))
            sock.recv(4_096)
        elif state == 1:
            sock.sendall(produce_frame(20_000, 1)[:10_000])
        elif state == 2:
            sock.sendall(produce_frame(20_000, 1, b"muted-%d" % number) * 2)
        else:
            sock.sendall(b"".join(metadata_frame(n) for n in range(200)))
    print("ready", flush=True)
    time.sleep(3_600)


class Look(NamedTuple):
    """What the gateway holds while it has no client."""

    rss_mb: float
    blocks: int
    descriptors: int
    connections: int
    links: int
    sessions: int
    timers: int


def count_alive(what: type, name: str, alive: Counter[str]) -> None:
    """Have a class's objects counted from their making to their end."""
    made = what.__init__

    def init(self: object, *args: Any, **more: Any) -> None:
        alive[name] += 1
        made(self, *args, **more)

    def gone(_: object) -> None:
        alive[name] -= 1

    what.__init__ = init  # type: ignore[misc]
    what.__del__ = gone  # type: ignore[attr-defined]


def counting(words: list[str]) -> int:
    """Run ``headgate`` with these words, and tell what is alive in files beside its settings."""
    from headgate.cli.main import main as headgate
    from headgate.gateway.connection.link import Link, Timers

    alive: Counter[str] = Counter(links=0, sessions=0, timers=0)
    count_alive(Link, "links", alive)
    from headgate.gateway.session.session import Session

    count_alive(Session, "sessions", alive)
    after, due, close = Timers.after, Timers._due, Timers.close

    def counted_after(self: Timers, *args: Any) -> None:
        before = len(self._handles)
        after(self, *args)
        alive["timers"] += len(self._handles) - before

    def counted_due(self: Timers, *args: Any) -> None:
        alive["timers"] -= 1
        due(self, *args)

    def counted_close(self: Timers) -> None:
        alive["timers"] -= len(self._handles)
        close(self)

    Timers.after, Timers._due, Timers.close = counted_after, counted_due, counted_close  # type: ignore[method-assign]
    folder = Path(words[-1]).parent

    def tell() -> None:
        while True:
            time.sleep(0.1)
            for ask in folder.glob("ask-*"):
                if ask.name == "ask-types":
                    gc.unfreeze()  # what was settled is counted too
                    said = Counter(type(one).__qualname__ for one in gc.get_objects())
                else:
                    said = Counter({"blocks": sys.getallocatedblocks(), **alive})
                (folder / "said.new").write_text(json.dumps(said))
                ask.unlink()
                (folder / "said.new").rename(folder / "said")

    threading.Thread(target=tell, daemon=True).start()
    return headgate(words)


def told(folder: Path, what: str) -> Counter[str]:
    """Return what a gateway that counts tells: what is ``alive``, or objects by ``types``."""
    said = folder / "said"
    said.unlink(missing_ok=True)
    (folder / f"ask-{what}").touch()
    until = time.monotonic() + 60
    while not said.exists():
        if time.monotonic() > until:
            raise RuntimeError((folder / "log").read_text()[-2_000:])
        time.sleep(0.05)
    return Counter(json.loads(said.read_text()))


def look(gate: int, http: int, folder: Path) -> Look:
    """Return what it holds."""
    with urllib.request.urlopen(f"http://127.0.0.1:{http}/metrics", timeout=60) as answer:
        page = answer.read().decode()
    connections = sum(map(float, re.findall(r"^headgate_connections\{.*\} (\S+)", page, re.M)))
    said = told(folder, "alive")
    return Look(
        memory_mb(gate, "VmRSS"), said["blocks"], descriptors(gate),
        int(connections), said["links"], said["sessions"], said["timers"],
    )  # fmt: skip


def vanish(seconds: float, port: int, gate: int, http: int, folder: Path) -> list[Look]:
    """Have clients come and vanish; return what was seen when all were gone."""
    seen = []
    until, number = time.monotonic() + seconds, 0
    print("| s | vanished | " + " | ".join(Look._fields) + " |\n|" + "---|" * 9, flush=True)
    began = time.monotonic()
    while time.monotonic() < until:
        for _ in range(5):
            join(number)
            number += 1
            client = subprocess.Popen(
                ["ip", "netns", "exec", NAME, sys.executable, __file__, "--clients", str(port)],
                stdout=subprocess.PIPE,
            )
            assert client.stdout is not None
            if client.stdout.readline() != b"ready\n":
                raise RuntimeError("the clients couldn't connect")
            cut()
            client.kill()
            client.wait()
        time.sleep(IDLE_MS / 1000 + 3)
        seen.append(look(gate, http, folder))
        figures = " | ".join(f"{round(figure, 1)}" for figure in seen[-1])
        print(f"| {time.monotonic() - began:.0f} | {number * CLIENTS} | {figures} |", flush=True)
    return seen


def main() -> int:
    """Measure and print."""
    if sys.argv[1:2] == ["--counting"]:
        return counting(sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seconds", type=float, nargs="?", default=600.0)
    parser.add_argument("--clients", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.clients:
        clients(options.clients)
        return 0
    upstream, http = free_port(), free_port()
    broker = subprocess.Popen(
        [sys.executable, str(HERE / "attacked_memory.py"), "--broker", str(upstream)]
    )
    settings = {
        "headgate.http.listener": f"127.0.0.1:{http}",
        "connections.max.idle.ms": str(IDLE_MS),
    }
    try:
        ip("addr", "add", f"{HERE_IP}/32", "dev", "lo", check=False)
        wait_for(upstream, broker)
        with tempfile.TemporaryDirectory() as place:
            quota = "--entity-default --entity-type clients --entity-default"
            gate, port = gateway(
                Path(place, "gateway"), f"127.0.0.1:{upstream}", quota, settings,
                "producer_byte_rate=1000", HERE_IP, (sys.executable, __file__, "--counting"),
            )  # fmt: skip
            folder = Path(place, "gateway")
            try:
                vanish(options.seconds / 3, port, gate.pid, http, folder)
                before = told(folder, "types")
                seen = vanish(options.seconds * 2 / 3, port, gate.pid, http, folder)
                types = told(folder, "types") - before
            finally:
                gate.kill()
                gate.wait()
    finally:
        cut()
        ip("addr", "del", f"{HERE_IP}/32", "dev", "lo", check=False)
        broker.kill()
        broker.wait()
    half = max(len(seen) // 2, 1)
    first = [statistics.median(column) for column in zip(*seen[:half], strict=True)]
    last = [statistics.median(column) for column in zip(*seen[-half:], strict=True)]
    more = Look(*[round(b - a, 1) for a, b in zip(first, last, strict=True)])
    print(f"last third and the third before it: {more}")
    print("objects more, by type: " + ", ".join(f"{n} {name}" for name, n in types.most_common(12)))
    # Of some the end may be noticed late; what comes back to none is none that stays.
    left = [min(column) for column in zip(*seen[-half:], strict=True)][3:]
    return int(more.rss_mb / first[0] * 100 > BOUND_PERCENT or any(left))


if __name__ == "__main__":
    sys.exit(main())

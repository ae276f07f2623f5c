"""
Predict what CPU a gateway takes at a load, and measure it beside.

The model is that of docs/howto/capacity.md: a request costs a fixed time, and each of its bytes a
time of its own::

    part of a core = idle + requests/s * (request + bytes * byte)

Four loads give its figures; three other ones are predicted and measured. Clients send at random
moments at a given rate, over many connections, as clients of a busy cluster do together.

``python bench/gateway/sizing.py [--seconds N] [--tls] [--json FILE]``; run it alone on the machine.
"""

from __future__ import annotations

import argparse
import json
import random
import select
import socket
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from relay import certificate, free_port, start  # noqa: E402

from peers import connect, cpu_of, produce_frame  # noqa: E402


class Load(NamedTuple):
    """Produce requests: the size in bytes, how many each second, over how many connections."""

    size: int
    per_s: int
    connections: int

    def __str__(self) -> str:
        """Return it as a row's head."""
        return f"{self.per_s:,} x {self.size:,} B over {self.connections}"


LATE_S = 0.005  # what is sent later comes in bursts, which cost less: a busy machine's figures lie
IDLE = Load(300, 0, 10)
LEARN = (
    Load(300, 1_500, 20),
    Load(300, 4_000, 40),
    Load(16_384, 2_000, 20),
    Load(262_144, 600, 10),
)
TRY = (Load(1_000, 2_500, 30), Load(64_000, 1_000, 15), Load(8_000, 2_000, 50))


class Constants(NamedTuple):
    """Seconds of a request and of a byte; the part of a core that is used at rest."""

    request: float
    byte: float
    idle: float

    def predicted(self, load: Load) -> float:
        """Return the part of a core that a load takes."""
        return self.idle + load.per_s * (self.request + load.size * self.byte)


def drain(socks: list[socket.socket], stop: threading.Event) -> None:
    """Read answers and forget them."""
    buffer = bytearray(1 << 16)
    poll = select.poll()
    by_number = {sock.fileno(): sock for sock in socks}
    for number in by_number:
        poll.register(number, select.POLLIN)
    while not stop.is_set():
        for number, _ in poll.poll(100):
            if not by_number[number].recv_into(buffer):
                raise RuntimeError("the gateway closed a connection")


class Seen(NamedTuple):
    """The part of a core that a process took, the load that came, and how much of it late."""

    part: float
    load: Load
    late: float


def measured(port: int, pid: int, load: Load, seconds: float, tls: str) -> Seen:
    """Put a process under a load and look what CPU it takes."""
    chance = random.Random(load.size)
    socks = [connect(port, tls) for _ in range(load.connections)]
    for number, sock in enumerate(socks):  # one request each: what a connection costs isn't asked
        sock.sendall(produce_frame(300, number))
    stop = threading.Event()
    reader = threading.Thread(target=drain, args=(socks, stop), daemon=True)
    reader.start()
    frame = bytearray(produce_frame(load.size, 0))
    time.sleep(1)
    sent, late, began, cpu = 0, 0, time.perf_counter(), cpu_of(pid)
    due = began
    while (now := time.perf_counter()) - began < seconds:
        if not load.per_s:
            time.sleep(0.1)
        elif due > now:
            time.sleep(min(due - now, began + seconds - now))
        else:
            frame[8:12] = (1_000 + sent).to_bytes(4, "big")
            socks[sent % len(socks)].sendall(frame)
            sent += 1
            late += now - due > LATE_S
            due += chance.expovariate(load.per_s)
    took = time.perf_counter() - began
    time.sleep(0.2)
    used = cpu_of(pid) - cpu
    stop.set()
    reader.join()
    for sock in socks:
        sock.close()
    return Seen(used / took, load._replace(per_s=round(sent / took)), late / max(sent, 1))


def learn(seen: list[Seen], idle: float) -> Constants:
    """Fit the model to what was measured, each load with the same relative weight."""
    rows, rest = [], []
    for part, load, _ in seen:
        rows.append([load.per_s, load.per_s * load.size])
        rest.append(part - idle)
    weights = 1 / np.array([one.part for one in seen])
    found, *_ = np.linalg.lstsq(np.array(rows) * weights[:, None], np.array(rest) * weights)
    return Constants(*(float(value) for value in found), idle)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--tls", action="store_true")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    sink_port, gate_port = free_port(), free_port()
    with tempfile.TemporaryDirectory() as folder:
        tls = folder if args.tls else ""
        if tls:
            certificate(Path(folder))
        sink = start("sink", sink_port)
        more = ("--target", str(sink_port), "--usage", "files:DIR")
        gate = start("gateway", gate_port, *more, *(("--tls", tls) if tls else ()))
        try:
            ways = [
                measured(gate_port, gate.pid, load, args.seconds, tls)
                for load in (IDLE, *LEARN, *TRY)
            ]
        finally:
            for process in (gate, sink):
                process.kill()
                process.wait()
    idle, learnt, tried = ways[0].part, ways[1 : 1 + len(LEARN)], ways[1 + len(LEARN) :]
    constants = learn(learnt, idle)
    print(
        f"request {constants.request * 1e6:.1f} µs, byte {constants.byte * 1e9:.2f} ns, "
        f"idle {constants.idle:.1%} of a core"
    )
    for what, several in (("learnt", learnt), ("tried", tried)):
        for part, load, late in several:
            predicted = constants.predicted(load)
            print(
                f"{what:7} {load!s:32} {part:6.1%} of a core; predicted {predicted:6.1%}, "
                f"{predicted / part - 1:+.0%}; {late:.0%} sent late"
            )
    if args.json:
        found = {"constants": constants._asdict(), "tried": [one._asdict() for one in tried]}
        args.json.write_text(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()

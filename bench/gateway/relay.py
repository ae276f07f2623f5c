"""
CPU seconds per GB, per small request, and latency: direct, a bare byte pipe, the gateway.

``python bench/gateway/relay.py [--rounds N] [--tls] [--json FILE]``; run it alone on the machine.
With ``--tls`` the clients' side speaks TLS, and Kroxylicious is measured beside (it needs a JDK).
"""

from __future__ import annotations

import argparse
import datetime
import json
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from peers import cpu_of  # noqa: E402

SHAPES = {
    # name: (bytes per request, requests, in flight, connections)
    "1 MB": (1 << 20, 1_500, 5, 1),
    "16 KB": (1 << 14, 40_000, 10, 1),
    "300 B": (300, 200_000, 100, 1),
}


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def certificate(folder: Path) -> None:
    """A certificate for 127.0.0.1 that signs itself: cert.pem, key.pem, both.pem."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    cert = made.public_bytes(Encoding.PEM)
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (folder / "cert.pem").write_bytes(cert)
    (folder / "key.pem").write_bytes(secret)
    (folder / "both.pem").write_bytes(secret + cert)


def start(role: str, port: int, *more: str) -> subprocess.Popen[bytes]:
    if role == "kroxylicious":
        from neighbours import kroxylicious_jars

        command = ["java", "-Xmx512m", "-cp", f"{kroxylicious_jars()}/*"]
        command += [str(HERE / "Kroxylicious.java"), str(port), *more]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    else:
        process = subprocess.Popen(
            [sys.executable, str(HERE / "peers.py"), role, "--port", str(port), *more]
        )
    return reached(process, port)


def reached(process: subprocess.Popen[bytes], port: int) -> subprocess.Popen[bytes]:
    """Return the process when its port can be reached."""
    until = time.monotonic() + 40
    while time.monotonic() < until:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return process
        except OSError:
            time.sleep(0.05)
    process.kill()
    raise RuntimeError(f"nobody listens at port {port}")


def run(role: str, port: int, *more: str) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, str(HERE / "peers.py"), role, "--port", str(port), *more],
        capture_output=True,
        check=True,
    )
    return json.loads(done.stdout)


def measure(args: argparse.Namespace, tls: tuple[str, ...]) -> dict[str, Any]:
    """All rounds of all shapes, each way in turn."""
    sink_port, pipe_port, gate_port, limited_port = (free_port() for _ in range(4))
    processes = [start("sink", sink_port)]
    target = ("--target", str(sink_port), *tls)
    plans: list[tuple[str, str, int, tuple[str, ...]]] = [
        ("pipe", "pipe", pipe_port, target),
        ("gateway", "gateway", gate_port, (*target, "--usage", args.usage)),
        (
            "gateway, quota on this",
            "gateway",
            limited_port,
            (*target, "--usage", args.usage, "--quota", "1e12"),
        ),
    ]
    if tls:
        from neighbours import free_ports

        peer_port = free_ports(4)[0]  # one for each broker there might be
        more = (str(sink_port), f"{tls[1]}/key.pem", f"{tls[1]}/cert.pem")
        plans.append(("kroxylicious 0.12", "kroxylicious", peer_port, more))
    ways: dict[str, tuple[int, int | None]] = {} if tls else {"direct": (sink_port, None)}
    found: dict[str, dict[str, list[dict[str, Any]]]] = {}
    try:
        for name, role, port, more in plans:
            process = start(role, port, *more)
            processes.append(process)
            ways[name] = (port, process.pid)
        for number in range(-1 if tls else 0, args.rounds):  # Java warms up
            for shape, (size, total, depth, connections) in SHAPES.items():
                count = max(int(total * args.scale), 100)
                for way, (port, pid) in ways.items():
                    before = cpu_of(pid) if pid else 0.0
                    result = run(
                        "load", port, "--size", str(size), "--total", str(count),
                        "--depth", str(depth), "--connections", str(connections), *tls,
                    )  # fmt: skip
                    cpu = cpu_of(pid) - before if pid else 0.0
                    gigabytes = size * count / 1e9
                    if number < 0:
                        continue
                    found.setdefault(shape, {}).setdefault(way, []).append(
                        {
                            "cpu_s_per_gb": cpu / gigabytes,
                            "cpu_us_per_request": cpu / count * 1e6,
                            "mb_per_s": gigabytes * 1000 / result["seconds"],
                            "requests_per_s": count / result["seconds"],
                        }
                    )
            time.sleep(2)  # the journals write down what the loads were charged
            for way, (port, _) in ways.items():
                latency = run("lone", port, "--total", "3000", *tls)
                if number >= 0:
                    found.setdefault("lone", {}).setdefault(way, []).append(latency)
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--usage", default="files:DIR")
    parser.add_argument("--tls", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if args.tls:
            certificate(Path(folder))
        found = measure(args, ("--tls", folder) if args.tls else ())
    table: dict[str, Any] = {}
    for shape, by_way in found.items():
        for way, rows in by_way.items():
            median = {k: statistics.median(row[k] for row in rows) for k in rows[0]}
            table.setdefault(shape, {})[way] = median
            shown = "  ".join(f"{k} {v:10.2f}" for k, v in median.items())
            print(f"{shape:8} {way:24} {shown}")
    if args.json:
        args.json.write_text(json.dumps(table, indent=1) + "\n")


if __name__ == "__main__":
    main()

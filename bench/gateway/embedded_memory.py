"""
What becomes of the embedded broker when large requests fill its heap, and of its clients.

``python bench/gateway/embedded_memory.py [--seconds N] [--java OPTIONS] [--declared BYTES]``, where
each request may say that it is longer than what comes of it: ``headgate serve`` with
``headgate.upstream=embedded`` and without quotas. Eight connections a second send a Produce of 8 MB
each (acks 0 and 1 in turn) and close after 0.3 s, read or not. Another client asks for metadata
twice a second, a monitor asks ``/readyz`` once. ``--java`` is added to what Java is started with
and overrides it: ``--java="-Xms32m -Xmx88m"`` is a heap that is too small; with
``-XX:-ExitOnOutOfMemoryError`` besides, the broker goes on after an OutOfMemoryError.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from neighbours import free_port  # noqa: E402
from orphans import LARGE, Case, orphan, produce, served  # noqa: E402
from real_broker import serve  # noqa: E402

from peers import record_batch  # noqa: E402

AT_ONCE = 8
AFTER_S = 30
TOPIC = "orphans"


def again_and_again(every_s: float, over: threading.Event, act: Callable[[], None]) -> None:
    """Do something in a thread of its own until it is over."""

    def run() -> None:
        while not over.wait(every_s):
            act()

    threading.Thread(target=run, daemon=True).start()


def ready(port: int) -> str:
    """Return the status of ``/readyz``, and its reason if there is one."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
            text = answer.read().decode().removeprefix("ready").strip()
            return f"{answer.status} {text}".strip()
    except urllib.error.HTTPError as error:
        return f"{error.code} {error.read().decode().strip()}"
    except OSError as error:
        return type(error).__name__


def attack(port: int, http: int, seconds: float, declared: int, log: Path) -> None:
    """Attack, and print what the others saw meanwhile and afterwards."""
    requests = [produce(Case("", acks), TOPIC, record_batch(bytes(LARGE)), 0) for acks in (0, 1)]
    if declared:
        requests = [declared.to_bytes(4, "big") + data[4:] for data in requests]
    over, sent, refused = threading.Event(), Counter[str](), Counter[str]()
    seen: list[tuple[float, str]] = []  # by the other client
    told: list[tuple[float, str]] = []  # by /readyz
    began = time.monotonic()

    def send(number: int) -> None:
        try:
            orphan(port, requests[number % 2], 1)
            sent["requests"] += 1
        except OSError as error:
            refused[type(error).__name__] += 1

    def look() -> None:
        asked = time.monotonic()
        seen.append((asked - began, served(port)))

    for number in range(AT_ONCE):
        again_and_again(1 - 0.3, over, lambda n=number: send(n))  # type: ignore[misc]
    watched = threading.Event()
    again_and_again(0.5, watched, look)
    again_and_again(1, watched, lambda: told.append((time.monotonic() - began, ready(http))))
    time.sleep(seconds)
    over.set()
    time.sleep(AFTER_S)
    watched.set()
    print(f"sent {sent['requests']} requests; refused: {dict(refused) or 'none'}")
    for name, found in (("another client", seen), ("/readyz", told)):
        print(f"{name}: ")
        last = ""
        for at, what in found:
            if what != last:
                print(f"  from {at:5.1f} s: {what}")
                last = what
    print("log:")
    for line in log.read_text().splitlines():
        if "embedded Kafka" in line or "doesn't answer" in line or "answers again" in line:
            print(f"  {line[:200]}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--java", default="")
    parser.add_argument("--declared", type=int, default=0, help="bytes")
    options = parser.parse_args()
    if options.java:
        os.environ["_JAVA_OPTIONS"] = options.java
    with tempfile.TemporaryDirectory() as name:
        folder, port, http = Path(name), free_port(), free_port()
        settings = {
            "listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "headgate.upstream": "embedded",
            "headgate.embedded.dir": f"{name}/kafka",
            "headgate.store": f"sqlite:{name}/quotas.db",
            "headgate.data.dir": name,
            "headgate.usage": "none",
            "headgate.http.listener": f"127.0.0.1:{http}",
        }
        gate = serve(folder, settings, port)
        try:
            admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}"})
            with contextlib.suppress(KafkaException):
                admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(60)
            attack(port, http, options.seconds, options.declared, folder / "log")
            kafka = "".join(p.read_text(errors="replace") for p in folder.rglob("stdout.log"))
            print(f"the broker said OutOfMemoryError {kafka.count('OutOfMemoryError')} times")
        finally:
            gate.terminate()
            gate.wait(60)


if __name__ == "__main__":
    main()

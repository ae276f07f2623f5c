"""An embedded broker that runs out of memory ends, and is started again."""

from __future__ import annotations

import time
from pathlib import Path

from headgate.embedded import EmbeddedKafka
from headgate.embedded.broker import HEAP
from headgate.embedded.keeping import keeping
from headgate.embedded.properties import MOST_QUEUED_BYTES


def test_a_broker_that_ends_is_started_again_on_its_ports(tmp_path: Path) -> None:
    said: list[str] = []
    with EmbeddedKafka(tmp_path) as kafka:
        before, at = kafka.pid(1), kafka.bootstrap()
        command = Path(f"/proc/{before}/cmdline").read_bytes().split(b"\0")
        assert b"-XX:+ExitOnOutOfMemoryError" in command
        assert f"-Xmx{HEAP}".encode() in command
        assert int(HEAP.removesuffix("m")) << 20 > 2 * MOST_QUEUED_BYTES
        with keeping(kafka, said.append):
            kafka.kill(1)
            until = time.monotonic() + 120
            while len(said) < 2 and time.monotonic() < until:
                time.sleep(0.1)
        assert said == [
            "broker 1 of the embedded Kafka ended; it is started again",
            "broker 1 of the embedded Kafka serves again",
        ]
        assert kafka.running(1)
        assert kafka.pid(1) != before
        assert kafka.bootstrap() == at

"""
A gateway with 100,000 quota entities takes 10,000 changes at once: how soon, and who notices.

``python bench/gateway/changes.py``; run it alone on the machine. Each client whose quota changes
has sent a request, so it has a sensor. Then one client sends small requests one after another
before a real broker; another process alters the store in the middle.
"""

from __future__ import annotations

import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from real_broker import gateway, small_requests  # noqa: E402

from headgate.admin import AdminClient  # noqa: E402
from headgate.embedded import EmbeddedKafka  # noqa: E402
from headgate.quota.entity import QuotaEntity  # noqa: E402
from headgate.quota.filter import QuotaFilter  # noqa: E402
from peers import produce_frame  # noqa: E402

ENTITIES, CHANGED = 100_000, 10_000
ALTER = """
import sys
from headgate.quota.alteration import Op, QuotaAlteration
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import PRODUCER
from headgate.store import open_store
store = open_store(sys.argv[1])
value, count = float(sys.argv[2]), int(sys.argv[3])
for first in range(0, count, 10_000):
    results = store.alter([
        QuotaAlteration(QuotaEntity.of(client_id=f"tenant-{n}"), (Op(PRODUCER, value),))
        for n in range(first, min(first + 10_000, count))
    ])
    assert not [r for r in results if r.error]
store.close()
"""


def everybody(port: int) -> None:
    """Send a request of each client whose quota will change, fifty at a time."""
    with socket.create_connection(("127.0.0.1", port)) as sock:
        stream = sock.makefile("rb")
        for first in range(0, CHANGED, 50):
            some = range(first, first + 50)
            sock.sendall(b"".join(produce_frame(300, n, b"tenant-%d" % n) for n in some))
            for _ in some:
                (size,) = struct.unpack(">i", stream.read(4))
                stream.read(size)


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as name, EmbeddedKafka(Path(name) / "kafka") as kafka:
        folder = Path(name) / "gateway"
        process, port = gateway(folder, kafka.bootstrap("PLAINTEXT"), "--entity-name somebody")
        try:
            url = f"sqlite:{folder}/quotas.db"

            def alter(value: float, count: int) -> None:
                subprocess.run(
                    [sys.executable, "-c", ALTER, url, str(value), str(count)], check=True
                )

            alter(1_000_000.0, ENTITIES)
            admin = AdminClient(bootstrap_servers=f"127.0.0.1:{port}")
            last = QuotaFilter(
                QuotaEntity.Type.CLIENT_ID, QuotaFilter.Rule.EXACT, f"tenant-{CHANGED - 1}"
            )

            def seen(value: float) -> bool:
                found = admin.describe_quotas([last]).entities().result()
                return value in [v for values in found.values() for v in values.values()]

            while not seen(1_000_000.0):
                time.sleep(0.1)
            everybody(port)
            calm = small_requests(port, 5_000, 1)
            changing = threading.Thread(target=alter, args=(2_000_000.0, CHANGED))
            changing.start()
            busy: list[float] = []
            while changing.is_alive():
                busy += small_requests(port, 200, 1)
            altered = time.monotonic()
            while not seen(2_000_000.0):
                busy += small_requests(port, 100, 1)
            took = time.monotonic() - altered
            busy += small_requests(port, 2_000, 1)
            for label, times in (("before", calm), ("during", busy)):
                p50, worst = statistics.median(times) * 1e3, max(times) * 1e3
                p99 = sorted(times)[int(len(times) * 0.99)] * 1e3
                said = f"p50 {p50:.2f} ms, p99 {p99:.2f} ms, worst {worst:.1f} ms"
                print(f"{label}: {len(times)} requests, {said}")
            print(f"in force {took * 1e3:.0f} ms at most after the alteration's process ended")
            admin.close()
        finally:
            process.kill()
            process.wait()


if __name__ == "__main__":
    main()

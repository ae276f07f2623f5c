"""
Write `blocked.csv`: AcceptorBlockedPercent of a real broker that limits new connections.

    python tests/data/gateway/blocked.py

Kafka's own JmxTool asks the broker's management port four times a second while bursts of
connections wait for a listener's `max.connection.creation.rate`. `test_612_11_…` of
tests/unit/metrics holds the gateway's meter to the figures.
"""

from __future__ import annotations

import getpass
import re
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from headgate.embedded import EmbeddedKafka
from headgate.embedded.tools import tool_command

OUT = Path(__file__).with_suffix(".csv")
BEAN = "kafka.network:type=Acceptor,name=AcceptorBlockedPercent,listener=PLAINTEXT"
RATES = ("MeanRate", "OneMinuteRate", "FiveMinuteRate", "FifteenMinuteRate")
BURSTS = ((0, 14), (9, 5), (17, 22), (41, 3))
"""Seconds from the beginning, and how many connections come then."""
SECONDS = 60
LIMIT = {"listener.name.plaintext.max.connection.creation.rate": "2"}
# Names the management port's address in a file that only this user can read; no port is chosen.
LOCAL_JMX = ("-XX:+UsePerfData", "-Dcom.sun.management.jmxremote")


def main() -> None:
    with EmbeddedKafka(extra_properties=LIMIT, java_options=LOCAL_JMX) as kafka:
        host, _, port = kafka.bootstrap("PLAINTEXT").rpartition(":")
        told = Path(tempfile.gettempdir()) / f"hsperfdata_{getpass.getuser()}" / str(kafka.pid(1))
        url = re.search(rb"service:jmx:rmi://[\x21-\x7e]+", told.read_bytes())
        assert url is not None
        asked = ["--jmx-url", url[0].decode(), "--object-name", BEAN]
        asked += ["--attributes", ",".join(("Count", *RATES)), "--reporting-interval", "250"]
        command = tool_command("org.apache.kafka.tools.JmxTool", asked)
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as tool:
            begun = time.monotonic()
            for at_s, count in BURSTS:
                time.sleep(max(0.0, begun + at_s - time.monotonic()))
                for each in [socket.create_connection((host, int(port))) for _ in range(count)]:
                    each.close()
            time.sleep(max(0.0, begun + SECONDS - time.monotonic()))
            tool.terminate()
            assert tool.stdout is not None
            lines = [line.strip() for line in tool.stdout]
    head = next(n for n, line in enumerate(lines) if line.startswith('"time"'))
    names = [name.rpartition(":")[2].strip('"') for name in lines[head].split(",")]
    # The head's names hold commas of the bean's: its last parts are the attributes, in order.
    names = ["time", *[name for name in names if name in ("Count", *RATES)]]
    rows = [line for line in lines[head + 1 :] if line.count(",") == len(names) - 1]
    OUT.write_text("\n".join([",".join(names), *rows]) + "\n", encoding="ascii")


if __name__ == "__main__":
    main()

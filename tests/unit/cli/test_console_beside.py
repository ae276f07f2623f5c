"""The console beside a gateway: started, started again, and gone when the gateway is."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.cli.serve.console import gateway_address
from headgate.config import Settings
from headgate.errors import ConfigError
from headgate.store import open_store

PARENT = """
import asyncio, signal, sys
from pathlib import Path
from headgate.cli.serve.console import console_beside
from headgate.config import load_settings
from headgate.gateway.log import get_logger, set_up

async def main():
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    config = Path(sys.argv[1])
    set_up("text", verbose=False, bound={})
    async with console_beside(load_settings(config), config, get_logger("test")):
        await stop.wait()

asyncio.run(main())
"""


class Beside:
    """A process that has a console beside it."""

    def __init__(self, folder: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as sock:
            self.port = sock.getsockname()[1]
        open_store(f"sqlite:{folder / 'quotas.db'}").close()
        config = folder / "headgate.properties"
        config.write_text(
            f"listeners=PLAINTEXT://127.0.0.1:9\nheadgate.store=sqlite:{folder / 'quotas.db'}\n"
            f"headgate.console.listener=127.0.0.1:{self.port}\n"
        )
        command = [sys.executable, "-c", PARENT, str(config)]
        self.process = subprocess.Popen(command)

    def answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/healthz", timeout=5) as got:
                return bool(got.read() == b"ok\n")
        except OSError:
            return False

    def until(self, answers: bool) -> None:
        for _ in range(600):
            if self.answers() == answers:
                return
            time.sleep(0.1)
        raise AssertionError(f"still {'silent' if answers else 'there'} after a minute")

    def child(self) -> int:
        """The console's pid."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return int(children.read_text().split()[0])


@pytest.fixture
def beside(tmp_path: Path) -> Iterator[Beside]:
    made = Beside(tmp_path)
    yield made
    if made.process.poll() is None:
        made.process.kill()
    made.process.wait()
    made.until(False)


def test_it_is_started_again_and_ends_with_the_gateway(beside: Beside) -> None:
    beside.until(True)
    first = beside.child()
    os.kill(first, signal.SIGKILL)
    beside.until(False)
    beside.until(True)
    assert beside.child() != first
    beside.process.send_signal(signal.SIGTERM)
    beside.process.wait()
    assert beside.process.returncode == 0
    assert not beside.answers()


def test_it_dies_with_a_gateway_that_is_killed(beside: Beside) -> None:
    beside.until(True)
    beside.process.kill()
    beside.until(False)


def test_it_asks_by_the_protocol_of_its_properties(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=SASL_PLAINTEXT\n")
    listeners = "PLAINTEXT://:9092,SASL_PLAINTEXT://10.0.0.1:9192"
    plain = {"listeners": listeners}
    both = {**plain, "headgate.console.command.config": str(file)}
    assert str(gateway_address(Settings.from_properties(plain))) == "127.0.0.1:9092"
    assert str(gateway_address(Settings.from_properties(both))) == "10.0.0.1:9192"
    file.write_text("security.protocol=SSL\n")
    with pytest.raises(ConfigError, match="by SSL, and no listener"):
        gateway_address(Settings.from_properties(both))

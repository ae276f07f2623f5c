"""A process that was told to end does, whatever hangs in it; a supervisor sees to its workers."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from headgate.cli import exit_codes
from headgate.cli.serve import supervisor as workers
from headgate.cli.serve.exit_limit import exit_limit_s
from headgate.config import Settings
from headgate.metrics.expose import page


def settings(**named: str) -> Settings:
    given = {
        "headgate.upstream": "127.0.0.1:1",
        "headgate.broker.id.min": "1",
        "headgate.broker.id.max": "1",
        "listeners": "PLAINTEXT://127.0.0.1:0",
    }
    return Settings.from_properties(given | {k.replace("__", "."): v for k, v in named.items()})


def test_the_limit_is_the_drain_and_as_long_again_as_a_worker_may_be_silent() -> None:
    assert exit_limit_s(settings()) == 60.0
    given = {"headgate__drain__timeout__ms": "500", "headgate__worker__hang__timeout__ms": "1500"}
    assert exit_limit_s(settings(**given)) == 2.0
    assert exit_limit_s(settings(headgate__worker__hang__timeout__ms="0")) == 0.0


HANGS = """
import threading
from headgate.cli.serve.exit_limit import end_process
from headgate.gateway.log import set_up
from headgate.gateway.fleet.fleet import ExitGuard
set_up("json")
def drain_that_never_ends():
    threading.Event().wait()
threading.Thread(target=drain_that_never_ends).start()  # would be joined at the end, for ever
ExitGuard(end_process).arm(0.01)
"""


def test_a_process_that_hangs_while_it_ends_is_ended_and_says_where_it_was() -> None:
    done = subprocess.run(
        [sys.executable, "-c", HANGS], capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == exit_codes.FAILED, done.stderr
    assert "didn't end in time; the process is ended" in done.stderr
    assert '"waited_ms": 10' in done.stderr
    assert "threading.py" in done.stderr  # the main thread waits for the other


DEAF = """
import signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("deaf", flush=True)
time.sleep(3600)
"""


@pytest.mark.parametrize(
    "told", [True, False], ids=["all were told to end", "one hung up and stays"]
)
async def test_a_worker_that_never_ends_is_killed_and_counted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, told: bool
) -> None:
    caplog.set_level(logging.ERROR, "headgate.supervisor")
    monkeypatch.setattr(workers, "exit_limit_s", lambda _: 0.02)
    monkeypatch.setattr(workers, "_OWN_END_S", 0.0)
    supervisor = workers.Supervisor(Path("none"), settings(), [1])
    deaf: list[asyncio.subprocess.Process] = []

    async def start(broker: int) -> asyncio.subprocess.Process:
        ours, theirs = workers.socket_pair()
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", DEAF, stdout=subprocess.PIPE, pass_fds=[theirs.fileno()]
        )
        assert process.stdout is not None
        assert await process.stdout.readline() == b"deaf\n"
        deaf.append(process)
        await supervisor.fleet.start(broker, ours)
        if told:
            deaf_lines.append(theirs)
            supervisor._running[broker] = process
            supervisor._stop()
        else:
            supervisor.fleet._pipes[broker].close()
            theirs.close()
        return process

    deaf_lines: list[socket.socket] = []
    monkeypatch.setattr(supervisor, "_start", start)
    status, killed = await supervisor._run(1)
    assert (status, killed) == (-signal.SIGKILL, True)
    assert "a worker doesn't end; it is killed" in caplog.text
    assert f"worker_pid={deaf[0].pid}" in caplog.text
    kills = {
        s.labels["reason"]: s.value
        for family in text_string_to_metric_families(
            page(await supervisor.fleet.metrics()).decode()
        )
        for s in family.samples
        if s.name == "headgate_worker_kills_total"
    }
    assert kills == {"hung": 0.0, "exiting": 1.0}
    for line in deaf_lines:
        line.close()
    await asyncio.sleep(0.01)  # transports close a turn later


async def test_a_worker_that_cant_be_started_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR, "headgate.supervisor")
    supervisor = workers.Supervisor(Path("none"), settings(), [1])
    monkeypatch.setattr(workers, "AGAIN_S", (0.0,))
    tries: list[int] = []

    async def start(broker: int) -> asyncio.subprocess.Process:
        tries.append(broker)
        if len(tries) == 3:
            supervisor._stop()
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(supervisor, "_start", start)
    assert await supervisor._keep(1) == exit_codes.FAILED
    assert tries == [1, 1, 1]
    assert "a worker can't be started" in caplog.text
    assert "can't be started" in str(await supervisor.fleet.health())

"""Children that end with their parent, whatever ends it; what is said when one fails."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from headgate.embedded.process import Child, EmbeddedError, accepts, free_ports

SLEEPER = ["/bin/sh", "-c", "echo ready; exec sleep 600"]


def child(folder: Path, command: list[str] = SLEEPER) -> Child:
    return Child(command, name="sleeper", output=folder / "log", log=folder / "log")


def gone(pid: int, within_s: float = 60) -> bool:
    """Wait until a process that isn't ours to reap is gone (or a zombie that nobody reaps)."""
    give_up = time.monotonic() + within_s
    while time.monotonic() < give_up:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":
            return True
        time.sleep(0.05)
    return False


PARENT = """
    import os, signal, sys, threading
    from pathlib import Path
    from headgate.embedded.process import Child

    def start(name):
        log = Path(sys.argv[1]) / name
        command = ["/bin/sh", "-c", "exec sleep 600"]
        children.append(Child(command, name=name, output=log, log=log))

    children = []
    start("main")
    thread = threading.Thread(target=start, args=("thread",))
    thread.start()
    thread.join()
    print(*(child.pid for child in children), flush=True)
    {end}
"""


@pytest.mark.parametrize(
    "end",
    ["os.kill(os.getpid(), signal.SIGKILL)", "sys.exit(3)", "os._exit(4)", "raise SystemError"],
)
def test_children_end_with_their_parent_however_it_ends(tmp_path: Path, end: str) -> None:
    program = textwrap.dedent(PARENT.format(end=end))
    parent = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert parent.returncode != 0
    pids = [int(pid) for pid in parent.stdout.split()]
    assert len(pids) == 2, parent.stderr
    assert all(gone(pid) for pid in pids)


def test_a_child_survives_the_thread_that_started_it(tmp_path: Path) -> None:
    program = textwrap.dedent(
        PARENT.format(end="import time; time.sleep(0.5); print(children[1].running)")
    )
    parent = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert parent.stdout.split()[-1] == "True"


def test_a_killed_child_is_gone_and_says_so(tmp_path: Path) -> None:
    one = child(tmp_path)
    one.wait_until(lambda: "ready" in one.log_text(), timeout_s=60)
    assert one.running
    os.kill(one.pid, 0)
    one.kill()
    assert not one.running
    with pytest.raises(ProcessLookupError):
        os.kill(one.pid, 0)


def test_a_child_that_does_not_listen_to_sigterm_is_killed(tmp_path: Path) -> None:
    one = child(tmp_path, ["/bin/sh", "-c", "trap '' TERM; echo ready; while :; do sleep 1; done"])
    one.wait_until(lambda: "ready" in one.log_text(), timeout_s=60)
    one.stop(timeout_s=0.2)
    assert not one.running


def test_a_child_that_ends_early_is_reported_with_its_last_lines(tmp_path: Path) -> None:
    one = child(tmp_path, ["/bin/sh", "-c", "echo first; echo the reason; exit 7"])
    with pytest.raises(EmbeddedError) as failed:
        one.wait_until(lambda: False, timeout_s=60)
    assert "sleeper ended with 7" in str(failed.value)
    assert str(tmp_path / "log") in str(failed.value)
    assert "the reason" in str(failed.value)


def test_a_child_that_is_never_ready_is_reported_and_progress_is_told(tmp_path: Path) -> None:
    one = child(tmp_path)
    with pytest.raises(EmbeddedError, match="sleeper isn't ready after 0 s"):
        one.wait_until(lambda: False, timeout_s=0.2)
    one.kill()


def test_a_restarted_child_s_log_starts_where_the_former_ended(tmp_path: Path) -> None:
    first = child(tmp_path)
    first.wait_until(lambda: "ready" in first.log_text(), timeout_s=60)
    first.kill()
    second = child(tmp_path, ["/bin/sh", "-c", "exec sleep 600"])
    assert second.log_text() == ""
    second.kill()


def test_a_paused_child_stands_still_until_it_is_resumed(tmp_path: Path) -> None:
    one = child(tmp_path)
    one.wait_until(lambda: "ready" in one.log_text(), timeout_s=60)
    one.pause()
    give_up = time.monotonic() + 60
    state = ""
    while state != "T" and time.monotonic() < give_up:
        state = Path(f"/proc/{one.pid}/stat").read_text().rpartition(")")[2].split()[0]
    assert state == "T"
    one.resume()
    one.stop()
    assert not one.running


def test_free_ports_are_free_distinct_and_outside_the_ephemeral_range() -> None:
    ports = free_ports(20)
    assert len(set(ports)) == 20
    assert all(15_000 <= port < 32_000 for port in ports)
    row = free_ports(5, consecutive=True)
    assert row == list(range(row[0], row[0] + 5))


def test_a_port_given_to_one_process_is_not_given_to_another_before_it_listens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second = free_ports(2, consecutive=True)
    monkeypatch.setattr("headgate.embedded.process._PORTS", range(first, second + 1))
    other = (
        "from headgate.embedded import process\n"
        f"process._PORTS = range({first}, {second + 1})\n"
        "print(process.free_ports())"
    )
    done = subprocess.run(
        [sys.executable, "-c", other], capture_output=True, text=True, check=False
    )
    assert f"no 1 free ports on loopback between {first}" in done.stderr
    with pytest.raises(EmbeddedError, match="no 1 free ports"):
        free_ports()


def test_accepts_tells_a_listening_port_from_a_silent_one() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert accepts(port)
    assert not accepts(port)


def test_a_child_reports_what_went_wrong_even_after_a_long_shutdown(tmp_path: Path) -> None:
    script = "echo '[x] ERROR the reason'; for n in $(seq 14); do echo $n; done"
    one = child(tmp_path, ["/bin/sh", "-c", f"{script}; exit 1"])
    with pytest.raises(EmbeddedError, match="ERROR the reason"):
        one.wait_until(lambda: False, timeout_s=60)

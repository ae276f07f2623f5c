"""
Child processes, mostly Java, that never outlive their parent, and free ports for them.

A guard, a few lines of shell in a session of its own, holds the reading end of a pipe and a list
of pids. When this process ends, however it ends, the pipe closes and the guard kills the list. The
kernel's parent-death signal would be simpler, but it fires when the *thread* that started the
child ends, which a worker thread does long before its process.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

from headgate.errors import HeadgateError

_GUARD = """\
pids=
while read -r op pid; do
  case $op in
    +) pids="$pids $pid" ;;
    -) kept=; for p in $pids; do [ "$p" = "$pid" ] || kept="$kept $p"; done; pids=$kept ;;
  esac
done
[ -z "$pids" ] || kill -KILL $pids
"""

# The child waits for a line before it becomes the program. By then the guard knows its pid; if the
# parent dies first, `read` fails and there is no child.
_LAUNCH = 'read -r go && exec "$@" </dev/null'

# Below the kernel's usual ephemeral range (32768 and up), so that no outgoing connection takes the
# port of a broker that is down for a moment.
_PORTS = range(15_000, 32_000)


class EmbeddedError(HeadgateError):
    """An embedded part didn't start or stop; holds its last log lines."""


class _Guard:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._shell: subprocess.Popen[bytes] | None = None
        self._owner = 0

    def tell(self, line: str) -> None:
        with self._lock:
            if self._shell is None or self._owner != os.getpid():
                self._shell = subprocess.Popen(
                    ["/bin/sh", "-c", _GUARD],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )
                self._owner = os.getpid()
                atexit.register(self.close)
            assert self._shell.stdin is not None
            self._shell.stdin.write(line.encode())
            self._shell.stdin.flush()

    def close(self) -> None:
        with self._lock:
            if self._shell is not None and self._owner == os.getpid():
                assert self._shell.stdin is not None
                self._shell.stdin.close()
                self._shell.wait()
            self._shell = None


_guard = _Guard()


class Child:
    """
    A running program, killed when its parent ends.

    Args:
        command: program and arguments.
        name: what messages call it.
        output: file that its stdout and stderr are appended to.
        log: file with its log, for messages.
        keep_open: descriptors that stay open as long as it lives, such as a lock's.
    """

    def __init__(
        self,
        command: Sequence[str | Path],
        *,
        name: str,
        output: Path,
        log: Path,
        keep_open: Sequence[int] = (),
    ) -> None:
        self.name = name
        self.output = output
        self.log = log
        # A restarted child appends to its log: only what it writes itself counts.
        self.log_start = log.stat().st_size if log.exists() else 0
        output.parent.mkdir(parents=True, exist_ok=True)
        with output.open("ab") as out:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", _LAUNCH, "sh", *map(str, command)],
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=subprocess.STDOUT,
                pass_fds=keep_open,
                start_new_session=True,
            )
        _guard.tell(f"+ {self.pid}\n")
        stdin: IO[bytes] | None = self._process.stdin
        assert stdin is not None
        with contextlib.suppress(BrokenPipeError):
            stdin.write(b"go\n")
            stdin.close()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether it hasn't ended."""
        return self._process.poll() is None

    def log_text(self) -> str:
        """What this child (not one before it) has written to its log."""
        if not self.log.exists():
            return ""
        with self.log.open("rb") as log:
            log.seek(self.log_start)
            return log.read().decode(errors="replace")

    def wait_until(
        self,
        ready: Callable[[], bool],
        *,
        timeout_s: float,
        progress: Callable[[str], None] | None = None,
    ) -> None:
        """
        Wait until it's ready.

        Args:
            ready: asked ten times a second.
            timeout_s: seconds to wait.
            progress: takes a line every 5 s, as long as the wait lasts.

        Raises:
            EmbeddedError: it ended, or the time is over; holds the last log lines.
        """
        started = time.monotonic()
        told = started
        while not ready():
            now = time.monotonic()
            if not self.running:
                raise EmbeddedError(self._failure(f"ended with {self._process.returncode}"))
            if now - started > timeout_s:
                raise EmbeddedError(self._failure(f"isn't ready after {timeout_s:.0f} s"))
            if progress and now - told >= 5:
                told = now
                progress(f"waiting for {self.name} ({now - started:.0f} s)")
            time.sleep(0.1)

    def _failure(self, what: str) -> str:
        lines = self.log_text().splitlines()
        out = self.output.read_text(errors="replace").splitlines()[-5:]
        # What went wrong is often followed by a long orderly shutdown.
        errors = [n for n, line in enumerate(lines[:-12]) if re.search(r"\b(ERROR|FATAL)\b", line)]
        first = [*lines[errors[0] : errors[0] + 4], "…"] if errors else []
        chosen = [*first, *lines[-12:], *(line for line in out if line not in lines)]
        shown = "\n".join(f"  {line[:400]}" for line in chosen) or "  (nothing was logged)"
        return f"{self.name} {what}; its log is {self.log}:\n{shown}"

    def kill(self) -> None:
        """End it at once, as kill -9 does, and wait until it's gone."""
        self._process.kill()
        self._gone()

    def pause(self) -> None:
        """Stop it where it stands (SIGSTOP): it keeps its connections and answers nothing."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused one go on (SIGCONT)."""
        self._process.send_signal(signal.SIGCONT)

    def stop(self, timeout_s: float = 30) -> None:
        """
        Ask it to end (SIGTERM) and wait; kill it when it doesn't.

        Args:
            timeout_s: seconds to wait before the kill.
        """
        self._process.terminate()
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._gone()

    def _gone(self) -> None:
        self._process.wait()
        with contextlib.suppress(BrokenPipeError):
            _guard.tell(f"- {self.pid}\n")


_CLAIMS = 128
_claims: deque[int] = deque()


def free_ports(count: int = 1, *, consecutive: bool = False) -> list[int]:
    """
    Return loopback ports that nothing listens on and no other process was given just now.

    Args:
        count: how many.
        consecutive: one after another, as a gateway's broker ports are.

    Returns:
        Port numbers outside the range the kernel gives to outgoing connections.

    Raises:
        EmbeddedError: none were found.
    """
    chosen: list[int] = []
    for _ in range(1_000):
        start = random.choice(_PORTS)
        wanted = range(start, start + (count if consecutive else 1))
        if wanted.stop > _PORTS.stop or not all(map(_is_free, wanted)):
            continue
        claims = [claim for port in wanted if (claim := _claim(port)) is not None]
        _claims.extend(claims)
        while len(_claims) > _CLAIMS:
            os.close(_claims.popleft())
        if len(claims) < len(wanted):
            continue
        chosen.extend(wanted)
        if len(chosen) >= count:
            return chosen
    raise EmbeddedError(f"no {count} free ports on loopback between {_PORTS.start}, {_PORTS.stop}")


def _claim(port: int) -> int | None:
    """
    Claim a port for a process that will listen on it later, such as a broker that starts.

    The claim is a name in Linux's abstract namespace. All processes see it, and it ends with its
    socket. This process keeps its latest claims.

    Returns:
        Descriptor of what holds the claim; None if somebody has it already.
    """
    with socket.socket(socket.AF_UNIX) as claim:
        if sys.platform == "linux":
            try:
                claim.bind(f"\0headgate-port-{port}")
            except OSError:
                return None
        return claim.detach()


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def accepts(port: int) -> bool:
    """
    Tell whether something on loopback takes connections at a port.

    Args:
        port: the port.
    """
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False

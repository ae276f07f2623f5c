"""
A real ZooKeeper on loopback, restartable on the same port and data.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Self

from headgate.embedded import properties
from headgate.embedded.cache import hold, temporary_folder
from headgate.embedded.jars import KAFKA_3, ensure_jars
from headgate.embedded.process import Child, EmbeddedError, free_ports
from headgate.embedded.tools import java_command
from headgate.quota.sanitizer import sanitize

if TYPE_CHECKING:
    from kazoo.client import KazooClient

_READY_TIMEOUT_S = 180.0
_ANSWER_TIMEOUT_S = 3.0
# Long, because clients lose their sessions when the machine stands still. Brokers ask for less.
_LONGEST_SESSION_MS = 60_000


class EmbeddedZooKeeper:
    """
    A ZooKeeper of this process; it dies with it.

    Args:
        dir: folder for data, settings and logs, kept over restarts; by default a temporary one
            that is removed by `stop`.
        port: its port; a free one by default, kept over restarts.
        extra_properties: settings that come on top (zoo.cfg).
        java_options: further options for its Java, such as system properties for SASL.
        progress: takes lines about the progress; by default only a fetch of jars is reported.
    """

    def __init__(
        self,
        dir: Path | str | None = None,
        *,
        port: int | None = None,
        extra_properties: Mapping[str, str] | None = None,
        java_options: tuple[str, ...] = (),
        progress: Callable[[str], None] | None = None,
    ) -> None:
        self._temporary = dir is None
        self._dir = None if dir is None else Path(dir).resolve()
        self._given_port = port
        self._port = port
        self._extra = dict(extra_properties or {})
        self._java_options = java_options
        self._progress = progress
        self._child: Child | None = None

    @property
    def port(self) -> int:
        """Its port."""
        if self._port is None:
            raise EmbeddedError("the embedded ZooKeeper hasn't been started")
        return self._port

    @property
    def address(self) -> str:
        """``host:port``."""
        return f"127.0.0.1:{self.port}"

    @property
    def running(self) -> bool:
        """Whether it runs."""
        return self._child is not None and self._child.running

    @property
    def pid(self) -> int:
        """Its process id."""
        if self._child is None:
            raise EmbeddedError("the embedded ZooKeeper hasn't been started")
        return self._child.pid

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self.stop()

    def start(self) -> None:
        """
        Start it, or start it again on the same port and data, and wait until it serves.

        Raises:
            EmbeddedError: it runs already, or didn't start; holds its last log lines.
        """
        if self.running:
            raise EmbeddedError("the embedded ZooKeeper runs already")
        ensure_jars(KAFKA_3, progress=self._progress)
        if self._dir is None:
            self._dir = temporary_folder("zookeeper")
        try:
            if self._port is None:
                self._port = free_ports(1)[0]
            self._launch(self._dir, self._port)
        except BaseException:
            self.stop()
            raise

    def _launch(self, folder: Path, port: int) -> None:
        (folder / "log").mkdir(parents=True, exist_ok=True)
        lock = hold(folder, "embedded ZooKeeper")
        settings = {
            "dataDir": str(folder / "data"),
            "clientPort": str(port),
            "clientPortAddress": "127.0.0.1",
            "maxClientCnxns": "0",
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "*",
            "tickTime": "1000",
            "maxSessionTimeout": str(_LONGEST_SESSION_MS),
        } | self._extra
        (folder / "zookeeper.properties").write_text(properties.as_text(settings))
        properties.write_reload4j(folder, request_level="WARN")
        logging = properties.logging_option(folder / "log4j.properties")
        self._child = child = Child(
            java_command(
                "org.apache.zookeeper.server.quorum.QuorumPeerMain",
                str(folder / "zookeeper.properties"),
                version=KAFKA_3,
                heap="192m",
                options=(*self._java_options, logging),
            ),
            name="ZooKeeper",
            output=folder / "log" / "stdout.log",
            log=folder / "log" / "server.log",
            keep_open=(lock,),
        )
        os.close(lock)  # the child has it now, as long as it lives
        child.wait_until(lambda: _serves(port), timeout_s=_READY_TIMEOUT_S, progress=self._progress)

    def kill(self) -> None:
        """End it at once, as kill -9 does; port and data stay for `start`."""
        if self._child is not None:
            self._child.kill()

    def pause(self) -> None:
        """Freeze it (SIGSTOP): sessions run out, connections stay open."""
        if self._child is not None:
            self._child.pause()

    def resume(self) -> None:
        """Let a frozen one go on."""
        if self._child is not None:
            self._child.resume()

    def stop(self) -> None:
        """End it; a temporary folder goes too."""
        if self._child is not None and self._child.running:
            self._child.resume()
            self._child.stop()
        self._child = None
        if self._temporary and self._dir is not None:
            shutil.rmtree(self._dir, ignore_errors=True)
            self._dir = None
            self._port = self._given_port

    @contextlib.contextmanager
    def client(self) -> Iterator[KazooClient]:
        """Give a connected kazoo client, closed at the end."""
        # Imported late: the embedded parts work without kazoo as long as ZooKeeper isn't used.
        from kazoo.client import KazooClient

        client = KazooClient(
            hosts=self.address,
            timeout=_LONGEST_SESSION_MS / 1000,
            command_retry={"max_tries": 10},
        )
        client.start(timeout=_READY_TIMEOUT_S)
        try:
            yield client
        finally:
            client.stop()
            client.close()

    def put_user(self, user: str, config: Mapping[str, str]) -> None:
        """
        Write a user's entity config; other entries that it has are kept.

        Args:
            user: the raw name.
            config: entries to add to those of the user's znode.
        """
        path = f"/config/users/{sanitize(user)}"
        with self.client() as client:
            client.retry(client.ensure_path, path)
            data, _stat = client.retry(client.get, path)
            kept = json.loads(data)["config"] if data else {}
            whole = json.dumps({"version": 1, "config": {**kept, **config}}).encode()
            client.retry(client.set, path, whole)

    def wait_gone(self, path: str, timeout_s: float = 60) -> None:
        """
        Wait until a znode is gone; a killed broker's goes when its session has run out.

        Args:
            path: the znode.
            timeout_s: seconds to wait.

        Raises:
            EmbeddedError: it's still there.
        """
        give_up = time.monotonic() + timeout_s
        with self.client() as client:
            while client.retry(client.exists, path):
                if time.monotonic() > give_up:
                    raise EmbeddedError(f"{path} is still in ZooKeeper after {timeout_s:.0f} s")
                time.sleep(0.2)


def _serves(port: int) -> bool:
    """
    Tell whether a ZooKeeper serves at a port of loopback.

    That it takes connections isn't enough: a client that asks for a session while ZooKeeper starts
    may get no answer (about one start in thirty), and waits until its session would have ended.
    """
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=_ANSWER_TIMEOUT_S) as asked:
            asked.sendall(b"srvr")
            with asked.makefile("rb") as answer:
                return b"\nMode: " in answer.read(4_096)
    except OSError:
        return False

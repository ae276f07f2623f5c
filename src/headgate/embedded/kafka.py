"""
Real Kafka brokers on loopback: a KRaft cluster (4.x), or brokers in ZooKeeper mode (3.9).

Each broker has a PLAINTEXT and a SASL_PLAINTEXT listener (PLAIN, SCRAM-SHA-256, SCRAM-SHA-512) on
free ports of its own, which it keeps over kill, stop and start. Node 1 is the controller too.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from types import TracebackType
from typing import Self

from headgate.embedded import properties
from headgate.embedded.brokers import Brokers
from headgate.embedded.cache import hold, temporary_folder
from headgate.embedded.cluster import DEFAULT_USERS, PLAINTEXT, SASL_PLAINTEXT
from headgate.embedded.jars import ensure_jars
from headgate.embedded.process import EmbeddedError, free_ports
from headgate.embedded.properties import Ports
from headgate.embedded.tools import TIMEOUT_S, run_tool
from headgate.embedded.zookeeper import EmbeddedZooKeeper

__all__ = ["DEFAULT_USERS", "EmbeddedKafka", "print_progress"]


class EmbeddedKafka(Brokers):
    """
    A Kafka cluster of this process; its brokers die with it.

    Used as a context manager (starts, stops), or by `start_all` and `stop`.

    Args:
        dir: folder for data, settings and logs, kept over restarts; by default a temporary one
            that is removed at the end.
        version: ``4.3.1`` (KRaft) or ``3.9.2`` (ZooKeeper mode).
        brokers: how many; their ids are 1, 2, …
        users: name to password, for PLAIN and SCRAM. ``admin`` is always there. A folder that
            already holds data keeps the SCRAM users it was made with.
        extra_properties: broker settings that come on top.
        request_log: write the request log (``kafka.request.logger`` at DEBUG) to
            `request_log_path`.
        zookeeper: the ZooKeeper for 3.9.2; one of its own by default.
        java_options: further options for the brokers' Java.
        progress: told what is going on; by default nothing is.
    """

    def __enter__(self) -> Self:
        self.start_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def start_all(self) -> None:
        """
        Start every broker and wait until all serve.

        Raises:
            EmbeddedError: one didn't start; holds its last log lines.
            ConfigError: there is no Java.
        """
        ensure_jars(self.version, progress=self._progress)
        if self._dir is None:
            self._dir = temporary_folder("kafka")
        self._dir.mkdir(parents=True, exist_ok=True)
        # Kafka's own lock doesn't cover its metadata log: two of one folder would spoil it.
        self._lock = hold(self._dir, "embedded Kafka")
        try:
            if self._zookeeper is None and self._own_zookeeper:
                self._zookeeper = EmbeddedZooKeeper(self._dir / "zookeeper")
            if self._own_zookeeper and not self.zookeeper.running:
                self.zookeeper.start()
            for attempt in range(3):
                try:
                    self._start_once()
                    return
                except EmbeddedError as error:
                    # Someone took a port between our look and the broker's: look again.
                    if "Address already in use" not in str(error) or attempt == 2:
                        raise
                    self._end_children(kill=True)
                    self._ports = {}
        except BaseException:
            self.stop(kill=True)
            raise

    def _start_once(self) -> None:
        started = time.monotonic()
        if not self._ports:
            free = iter(free_ports(3 * len(self._ids)))
            self._ports = {
                broker: Ports(next(free), next(free), next(free)) for broker in self._ids
            }
        for broker in self._ids:
            self._write_settings(broker)
        if self.kraft:
            self._format()
        else:
            self._put_scram_users()
        for broker in self._ids:
            self._launch(broker)
        for broker in self._ids:
            self._wait(broker)
        for broker in self._ids:
            self._wait(broker, knows=self._ids)
        took = time.monotonic() - started
        self._progress(f"Kafka {self.version}: {len(self._ids)} brokers ready in {took:.1f} s")

    def start(self, broker: int) -> None:
        """
        Start one broker again, on its ports and data, and wait until it serves.

        Args:
            broker: its id.

        Raises:
            EmbeddedError: it runs already, or didn't start.
        """
        if self.running(broker):
            raise EmbeddedError(f"broker {broker} runs already")
        self._launch(broker)
        self._wait(broker)

    def kill(self, broker: int) -> None:
        """
        End one broker at once, as kill -9 does.

        Args:
            broker: its id.
        """
        self._child(broker).kill()

    def stop_broker(self, broker: int) -> None:
        """
        Shut one broker down in order.

        Args:
            broker: its id.
        """
        self._child(broker).stop()

    def pause(self, broker: int) -> None:
        """
        Freeze one broker (SIGSTOP): connections stay open and nothing is answered.

        Args:
            broker: its id.
        """
        self._child(broker).pause()

    def resume(self, broker: int) -> None:
        """
        Let a frozen broker go on.

        Args:
            broker: its id.
        """
        self._child(broker).resume()

    def stop(self, *, kill: bool | None = None) -> None:
        """
        End all brokers (and a ZooKeeper of our own), and remove a temporary folder.

        Args:
            kill: don't wait for an orderly shutdown; by default so for a temporary folder, whose
                data nobody will read again.
        """
        temporary = self._given_dir is None
        self._end_children(kill=temporary if kill is None else kill)
        if self._own_zookeeper and self._zookeeper is not None:
            self._zookeeper.stop()
            self._zookeeper = None
        self._let_go()
        if temporary and self._dir is not None:
            shutil.rmtree(self._dir, ignore_errors=True)
            self._dir = None
            self._ports = {}

    def _end_children(self, *, kill: bool) -> None:
        # The controller last: a broker that can't reach one waits long before it gives up.
        for broker in reversed(self._children):
            child = self._children[broker]
            if child.running:
                child.resume()
                child.kill() if kill else child.stop()
        self._children = {}

    def _let_go(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def tool(
        self, main_class: str, *args: str, timeout_s: float = TIMEOUT_S, user: str | None = None
    ) -> str:
        """
        Run one of Kafka's tools against this cluster and return what it prints.

        Args:
            main_class: such as ``kafka.admin.ConfigCommand``.
            args: its arguments; ``--bootstrap-server`` is put before them.
            timeout_s: seconds it may take.
            user: come in as this user (PLAIN); anonymous by default.

        Raises:
            EmbeddedError: it failed; holds its output.
        """
        listener, extra = PLAINTEXT, []
        if user is not None:
            listener = SASL_PLAINTEXT
            config = self.dir / f"client-{user}.properties"
            config.write_text(properties.client_properties(user, self.users[user]))
            extra = ["--command-config", str(config)]
        done = run_tool(
            main_class,
            ["--bootstrap-server", self.bootstrap(listener), *extra, *args],
            version=self.version,
            timeout_s=timeout_s,
        )
        if done.returncode != 0:
            raise EmbeddedError(f"{main_class} ended with {done.returncode}:\n{done.stderr}")
        return done.stdout


def print_progress(text: str) -> None:
    """
    Write a progress line to stderr; a ready ``progress`` for commands.

    Args:
        text: the line.
    """
    print(text, file=sys.stderr, flush=True)  # noqa: T201 - that is its purpose

"""
The periodic work of a running gateway, and the bound of its usage journal's folder.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.clock import now_ms, skew_ms
from headgate.errors import HeadgateError
from headgate.gateway.log import get_logger
from headgate.gateway.splits.dividing import share_out
from headgate.usage import files
from headgate.usage.retention import Removed, remove_oldest

if TYPE_CHECKING:
    from headgate.gateway.answered_here.answers import Answers
    from headgate.gateway.background import BackgroundWork
    from headgate.gateway.broker.broker import Broker
    from headgate.gateway.cluster.discovery import Discovery
    from headgate.gateway.cluster.ports import Ports
    from headgate.gateway.connection.pool import Pool
    from headgate.gateway.splits.gateway_splits import GatewaySplits
    from headgate.gateway.store_link.in_force import InForceNow

log = get_logger("headgate.gateway")

_SWEEP_S: Final = 1.0
_LOOK_AGAIN_S: Final = 1.0
"""
Wait between an answer that names an unknown broker and the look-up: a burst of such answers causes
one look-up. Also the wait for producer ids while no broker is fronted.
"""
_TIDY_S: Final = 60.0
_MOST_FORGOTTEN: Final = 1_000
"""Users whose producer ids are dropped in one step, which takes a millisecond."""


class PeriodicWork:
    """
    The tasks that run as long as the gateway.

    Args:
        in_force: the settings.
        work: the gateway's own tasks and slices.

    Attributes:
        look_soon: set it to look for brokers at once.
        usage_damaged: files of the usage journal that were set aside.
        usage_removed: files of it that were removed, because all together were too large.
    """

    def __init__(self, in_force: InForceNow, work: BackgroundWork) -> None:
        self._in_force = in_force
        self._tasks = work.tasks
        self._slices = work.slices
        self.look_soon = asyncio.Event()
        self.usage_damaged = 0
        self.usage_removed = 0

    async def refresh(self, discovery: Discovery, ports: Ports) -> None:
        """Follow the cluster: front brokers that are new, find those that have moved."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._in_force.settings.upstream_refresh_ms / 1000):
                    await self.look_soon.wait()
                    await asyncio.sleep(_LOOK_AGAIN_S)
            self.look_soon.clear()
            try:
                await discovery.look(first=False)
                await ports.open_new()
            except HeadgateError as error:
                log.error("brokers can't be followed", error=str(error))
            except Exception as error:
                self._tasks.log_failure("following the brokers", error)

    async def sweep(
        self, brokers: Mapping[int, Broker], answers: Answers, pool: Pool, splits: GatewaySplits
    ) -> None:
        """
        Every second: close connections that are idle or block the pool, divide shares, and log how
        many lines were left out and whether splits are missing.
        """
        while True:
            await asyncio.sleep(_SWEEP_S)
            now = now_ms()
            for broker in list(brokers.values()):
                try:
                    await self._slices.run(broker.sweep(now, skew_ms()))
                    await self._slices.run(share_out(broker.rules.managers, now_ms))
                except Exception as error:
                    # The other brokers still have their turn, and so has the next second.
                    self._tasks.log_failure("closing idle connections and dividing shares", error)
                broker.clients.closes.tell()
            try:
                answers.tell()
                await self._slices.run(pool.expire(time.monotonic_ns() // 1_000_000))
                splits.watch(now)
            except Exception as error:
                self._tasks.log_failure("closing connections that block the pool", error)

    async def forget_producer_ids(self, brokers: Mapping[int, Broker]) -> None:
        """Drop users whose producer ids have all expired, as KIP-936's ``cleanup-keys`` does."""
        while True:
            managers = [broker.rules.managers.producer_ids for broker in brokers.values()]
            now = now_ms()
            idle_ms = min(
                (manager.idle_ms(now) for manager in managers), default=_LOOK_AGAIN_S * 1e3
            )
            await asyncio.sleep(idle_ms / 1000)
            now = now_ms()
            try:
                for manager in managers:
                    manager.cleanup(now, _MOST_FORGOTTEN)
            except Exception as error:
                self._tasks.log_failure("forgetting producer ids", error)

    async def tidy(self) -> None:
        """Keep the journal's folder within its bound."""
        settings = self._in_force.settings
        folder = Path(settings.usage.place)
        while True:
            await asyncio.sleep(_TIDY_S)
            try:
                # Not on the store's threads: clients' questions to the store would wait for it.
                most = self._in_force.settings.usage_retention_bytes
                done = await asyncio.to_thread(tidy, folder, most)
            except Exception:
                # This must go on after any error: without it the disk fills up.
                log.exception("usage journal can't be tidied", folder=str(folder))
                continue
            self.usage_damaged += done.damaged
            self.usage_removed += done.removed
            if done.problem is not None:
                log.error("usage journal can't be tidied", folder=str(folder), error=done.problem)


class Tidied(NamedTuple):
    """
    What was done to the journal's folder.

    Attributes:
        removed: files that were removed, because all together were too large.
        damaged: files that were set aside.
        problem: what couldn't be done, or None.
    """

    removed: int
    damaged: int
    problem: str | None = None


def tidy(directory: Path, retention_bytes: int) -> Tidied:
    """
    Compact closed files and remove the oldest while all together are too large.

    Files are removed even if compacting fails: on a full disk it fails until there is room again.

    Args:
        directory: of ``headgate.usage=files:…``.
        retention_bytes: ``headgate.usage.retention.bytes``; 0 keeps everything.
    """
    damaged, problem, removed = 0, None, Removed()
    try:
        if any(directory.glob(f"*{files.CLOSED}")):
            damaged, problem = _compact_beside(directory)
        if retention_bytes:
            removed = remove_oldest(directory, retention_bytes)
    except OSError as error:
        problem = "; ".join(filter(None, (problem, str(error))))
    if removed.files:
        log.info("oldest usage journal files removed", files=removed.files,
                 damaged=removed.damaged, within_bytes=retention_bytes)  # fmt: skip
    return Tidied(removed.files, damaged, problem)


_COMPACT = """
import json, os, sys
os.nice(19)
import pyarrow
pyarrow.set_cpu_count(1)
from headgate.usage.reader import compact
compact(sys.argv[1], lambda damaged: print(json.dumps([str(part) for part in damaged]), flush=True))
"""


def _compact_beside(directory: Path) -> tuple[int, str | None]:
    """
    Compact in a process of its own, on one core at the lowest priority: traffic comes first.

    Parquet's buffers are freed with that process; in the gateway each thread that ever compacted
    kept some 20 MB. Returns how many files were damaged, and what went wrong.
    """
    done = subprocess.run(
        [sys.executable, "-P", "-c", _COMPACT, directory],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    damaged = done.stdout.splitlines()
    for line in damaged:
        path, why, events = json.loads(line)
        log.error("a usage journal file is damaged; it is set aside, and what can be read is kept",
                  file=path, why=why, events_read=int(events))  # fmt: skip
    if not done.returncode:
        return len(damaged), None
    said = done.stderr.strip().splitlines() or [f"status {done.returncode}"]
    return len(damaged), f"compacting failed: {said[-1]}"

"""
The health and metrics of one gateway.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from headgate.build import build
from headgate.clock import now_ms
from headgate.gateway.cluster.answering import silent_lines
from headgate.metrics.expose import Drawn, draw
from headgate.metrics.samples import rank_steps, sample_steps
from headgate.steps import finish

if TYPE_CHECKING:
    from headgate.gateway.broker.broker import Broker
    from headgate.gateway.charging.journal import Journal
    from headgate.gateway.cluster.ports import Ports
    from headgate.gateway.cluster.splits import GatewaySplits
    from headgate.gateway.connection.pool import Pool
    from headgate.gateway.following import PeriodicWork
    from headgate.gateway.kept.current import Current
    from headgate.gateway.kept.store import KeptStore
    from headgate.gateway.loop.tasks import OwnWork
    from headgate.metrics.samples import BrokerView
    from headgate.steps import Work


def _ranking(view: BrokerView) -> Work[None]:
    yield from rank_steps(view, now_ms)


class Shown:
    """
    What one gateway shows; ``http.HttpListener`` serves it.

    Args:
        in_force: what is in force.
        brokers: those fronted now.
        ports: their ports.
        splits: the splits of cluster-wide quotas.
        kept: the store.
        following: counts files of the usage journal.
        pool: the bytes that connections hold.
        work: the gateway's own slices, and the watcher that measures them.
        trouble: says why the store can't be read or changed now, or returns None.

    Attributes:
        started: whether the gateway serves, and isn't draining.
        journal: the process's usage journal.
        worker: the gateway's name.
    """

    def __init__(
        self,
        in_force: Current,
        brokers: Mapping[int, Broker],
        ports: Ports,
        splits: GatewaySplits,
        kept: KeptStore,
        following: PeriodicWork,
        pool: Pool,
        work: OwnWork,
        journal: Journal,
        trouble: Callable[[], str | None],
    ) -> None:
        self._in_force = in_force
        self._brokers = brokers
        self._ports = ports
        self._splits = splits
        self._kept = kept
        self._following = following
        self._pool = pool
        self._slices = work.slices
        self._watcher = work.watcher
        self._spawn = work.tasks.spawn
        self._ranking: set[int] = set()  # brokers whose quota-ids are being ranked
        self._trouble = trouble
        self.journal = journal
        self.worker = ""
        self.started = False

    # --- health -----------------------------------------------------------------------------

    async def health(self) -> str | None:
        """See ``http.Showing``: a gateway lives if it answers."""
        return None

    async def ready(self) -> str | None:
        """See ``http.Showing``."""
        return self.why_not_ready()

    async def note(self) -> str | None:
        """See ``http.Showing``."""
        return self.lacks()

    def lacks(self) -> str | None:
        """Say what a ready gateway lacks: brokers, changes its store refuses, splits; or None."""
        notes = (*silent_lines(self._brokers), self._kept.refuses(), self._splits.note())
        return "\n".join(filter(None, notes)) or None

    def silent(self) -> dict[int, str]:
        """Return why brokers that are fronted don't answer, by id."""
        return {b: broker.silent for b, broker in self._brokers.items() if broker.silent}

    def why_not_ready(self) -> str | None:
        """Say why the gateway isn't ready to serve, or None."""
        why = self.unready()
        if self._brokers and len(self.silent()) == len(self._brokers):
            why = "\n".join((*filter(None, (why,)), *silent_lines(self._brokers)))
        return why

    def unready(self) -> str | None:
        """Do so, whether brokers answer or not."""
        if not self.started:
            return "not started, or draining"
        if not self._brokers:
            return "standing by" if self._ports.standing_by else "no broker is fronted"
        why = list(self._closed_ports())
        trouble = self._trouble()
        if trouble is not None and not self._kept.does_without:
            why.append(f"the last known quotas are in force: {trouble}")
        return "\n".join(why) or None

    def _closed_ports(self) -> Iterator[str]:
        """Name each port, open here or given to clients, that doesn't accept connections."""
        books = self._ports.books
        for broker_id, broker in self._brokers.items():
            told = (name for name, book in books.items() if broker_id in book)
            for name in dict.fromkeys((*told, *broker.listeners)):
                listener = broker.listeners.get(name)
                bind = None
                if name in books:
                    bind = self._in_force.settings.ports.bind(name, broker_id)
                if (
                    listener is None
                    or not listener.acceptor.accepting
                    or (bind is not None and bind.port not in (0, listener.acceptor.address[1]))
                ):
                    yield f"listener {name} of broker {broker_id} doesn't accept connections"

    # --- metrics ----------------------------------------------------------------------------

    async def metrics(self) -> list[Drawn]:
        """See ``http.Showing``."""
        return [await self.drawn()]

    async def drawn(self) -> Drawn:
        """Draw every series of the brokers fronted, in slices; lines by family."""
        drawn: dict[str, bytes] = {}
        for broker in list(self._brokers.values()):
            view = await self._slices.run(broker.view_steps(now_ms()))
            self._complete(view, first=broker is next(iter(self._brokers.values()), None))
            for name, lines in (await self._slices.run(draw(sample_steps(view, now_ms)))).items():
                drawn[name] = drawn.get(name, b"") + lines
            if broker.broker_id not in self._ranking:  # a scrape doesn't wait for this
                self._ranking.add(broker.broker_id)
                self._spawn(self._rank(view))
        return drawn

    async def _rank(self, view: BrokerView) -> None:
        """Choose who has series from the next scrape on."""
        try:
            await self._slices.run(_ranking(view))
        finally:
            self._ranking.discard(view.broker_id)

    def views(self) -> list[BrokerView]:
        """Return what the metrics are read from, one per broker."""
        views = [finish(broker.view_steps(now_ms())) for broker in self._brokers.values()]
        for view in views:
            self._complete(view, first=view is views[0])
        return views

    def info(self) -> dict[str, str]:
        """Return the labels of ``headgate_info``, the same for all brokers of a gateway."""
        settings = self._in_force.settings
        runs = build()
        return {
            "version": runs.version,
            "commit": runs.commit,
            "enforce": settings.enforce,
            "fetch": settings.fetch,
            "pacing": settings.pacing,
            "worker": self.worker,
        }

    def _complete(self, view: BrokerView, *, first: bool) -> None:
        """Add the process's figures to a broker's view."""
        meters = view.meters
        # One journal and one pool a process: only the first broker shows theirs, for right sums.
        written, dropped = self.journal.events if first else (0, 0)
        meters.usage_events, meters.usage_dropped = written, dropped
        meters.usage_damaged = self._following.usage_damaged if first else 0
        meters.usage_removed = self._following.usage_removed if first else 0
        meters.queued_bytes = self._pool.used if first else 0
        meters.loop_longest_ms = self._watcher.longest_ms if first else 0.0
        meters.loop_slow = self._watcher.slow if first else 0
        broker = self._brokers.get(view.broker_id)
        meters.broker_up = broker is None or not broker.silent
        meters.store_version = self._in_force.table.version
        view.info = self.info()
        view.most = self._in_force.settings.metrics_quota_ids
        meters.split_expired = self._splits.expired(broker)
        meters.store_up = self._trouble() is None

"""
What other quotas would have done to the last hour's requests, by a gateway's usage journal.

This uses the pipeline's own reading, packing and replaying, in this process and without Spark, so
the answer is that of `headgate what-if`. It covers only clients whose quota would change, and those
that share a quota-id with them.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Collection, Iterator
from pathlib import Path
from threading import Thread
from typing import Any, Final, NamedTuple

from headgate.console.foretold import Enough, Foretold, enough, foretell
from headgate.console.hour import MOST_EVENTS, coded, concerned, read_hour, requests_of_events
from headgate.pipeline.answers.advice import WAITING_SHARE
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import CONNECTION, CONSUMER_SHARES, PRODUCER_SHARES, QuotaKey
from headgate.quota.plan import Plan, plan_of
from headgate.quota.precedence import resolve
from headgate.quota.table import QuotaTable, TableChange

MOST_ROWS: Final = 50
"""Clients that a page shows; the rest is in the sums."""
_UNTRIED: Final = {
    PRODUCER_SHARES: "it depends on each broker's capacity",
    CONSUMER_SHARES: "it depends on each broker's capacity",
    CONNECTION: "what opens connections isn't charged to clients",
}


class Throttled(NamedTuple):
    """
    How some requests were throttled, or would have been.

    Args:
        requests: how many were told to wait.
        ms: for how long in all.
        longest_ms: the longest wait.
        share: the part of the charged amount that these requests had; None: unknown.
    """

    requests: int = 0
    ms: int = 0
    longest_ms: int = 0
    share: float | None = None


class ClientTrial(NamedTuple):
    """
    One client's requests of one quota type.

    Args:
        key: of the quota that was tried.
        principal: the client's, raw.
        client_id: the client's, raw.
        requests: how many there were.
        amount: bytes charged.
        told: what clients were told then.
        before: under the present quotas.
        after: under the changed quotas.
        held: the share of its time that the client was told to wait, 0..1.
        hides: whether the changed quotas might have let it send more than it did, so that ``after``
            isn't known.
        hides_now: whether the present ones might have, so that ``before`` isn't known.
    """

    key: QuotaKey
    principal: str
    client_id: str
    requests: int
    amount: int
    told: Throttled
    before: Throttled
    after: Throttled
    held: float = 0.0
    hides: bool = False
    hides_now: bool = False

    @property
    def known(self) -> tuple[Throttled, ...]:
        """What is known of told, before and after."""
        sides = ((self.told, False), (self.before, self.hides_now), (self.after, self.hides))
        return tuple(side for side, hidden in sides if not hidden)


class _Waited(NamedTuple):
    """
    A quota under which a client waited.

    Args:
        tags: its quota-id's.
        limit: the lowest; None: the journal tells none.
    """

    tags: tuple[str, str]
    limit: float | None


_Client = tuple[str, str, str]
"""Quota type, principal and client-id."""


class WhatIf(NamedTuple):
    """
    The result.

    Args:
        since_ms: from when on events were read, or the first event if the journal begins later.
        events: how many were replayed.
        rows: by client, those first whose waits differ most; bounded.
        more: how many clients aren't among them.
        notes: what was left out and why, a sentence each.
        foretold: how quota-ids would go under the changed quotas, in a closed loop; bounded.
        not_foretold: how many quota-ids aren't among them.
    """

    since_ms: int
    events: int
    rows: tuple[ClientTrial, ...]
    more: int
    notes: tuple[str, ...]
    foretold: tuple[Foretold, ...] = ()
    not_foretold: int = 0

    @property
    def longest_ms(self) -> int:
        """The longest bar: the most that any client waited in all."""
        return max((side.ms for row in self.rows for side in row.known), default=0)


def preload() -> None:
    """Load modules on another thread; the first what-if would otherwise wait seconds for them."""

    def load() -> None:
        with contextlib.suppress(ImportError):  # the first what-if says which package is missing
            from headgate.pipeline.replaying import replay

            replay.preload()

    Thread(target=load, name="preload", daemon=True).start()


def what_if(
    journal: Path,
    plan: Plan,
    now_ms: int,
    *,
    principals: Collection[str] | None = None,
    most_events: int = MOST_EVENTS,
) -> WhatIf:
    """
    Replay the last hour's requests of the clients that a plan concerns.

    Args:
        journal: a gateway's directory of usage journals.
        plan: the present and the changed quotas.
        now_ms: the wall clock, epoch ms.
        principals: only requests of these are replayed; None: everybody's.
        most_events: once this many were read, no further file is begun.

    Raises:
        OSError: the journal can't be read.
        ModuleNotFoundError: packages of the pipeline's extra are missing.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    keys = sorted({change.key for change in plan.changes})
    notes = [f"{key} isn't tried: {why}" for key, why in _UNTRIED.items() if key in keys]
    tried = [key for key in keys if key not in _UNTRIED]
    hour = read_hour(journal, {key.type for key in tried}, now_ms, most_events)
    if not hour.is_whole:
        notes.append("the journal is large: its latest part alone was read")
    events = hour.events.filter(pa.array(concerned(hour.events, plan, tried, principals)))
    # An answer charges nothing: it tells what is left of a charge's throttle.
    table = events.filter(pc.not_equal(events["kind"].cast(pa.string()), "told"))
    requests = requests_of_events(events)
    charges = requests.filter(pc.not_equal(requests["event"], "told"))
    found = _replayed(charges, plan) if charges.num_rows else []
    held, waited = _held(table), _waited(table)
    rows = [_seen(row, held, waited, plan) for row in found if row.key in tried]
    rows.sort(key=lambda r: (-abs(r.after.ms - r.before.ms), -r.amount, r.principal, r.client_id))
    shown, rest = rows[:MOST_ROWS], rows[MOST_ROWS:]
    foretold = foretell(requests, hour.ends, plan, tried, partial=principals is not None)
    return WhatIf(hour.since_ms, table.num_rows, tuple(shown), len(rest), tuple(notes), *foretold)


def what_is_enough(
    journal: Path,
    table: QuotaTable,
    entity: QuotaEntity,
    key: QuotaKey,
    now_ms: int,
    *,
    principals: Collection[str] | None = None,
) -> Enough:
    """
    Say which value of a quota would be enough, by the last hour's requests of those it counts.

    Args:
        journal: a gateway's directory of usage journals.
        table: the present quotas.
        entity: whose quota.
        key: of the quota.
        now_ms: the wall clock, epoch ms.
        principals: only requests of these count; None: everybody's.

    Raises:
        OSError: the journal can't be read.
        ModuleNotFoundError: packages of the pipeline's extra are missing.
    """
    import pyarrow as pa

    old = table.get(entity, key)
    other = 1.0 if old is None else old + 1.0  # another value shows the clients that it counts
    plan = plan_of(table, [TableChange(entity, key, old, other)])
    hour = read_hour(journal, {key.type}, now_ms, MOST_EVENTS)
    events = hour.events.filter(pa.array(concerned(hour.events, plan, [key], principals)))
    found = enough(requests_of_events(events), hour.ends, plan, entity, key)
    return found if hour.is_whole else found._replace(since_ms=hour.since_ms)


def _seen(
    row: ClientTrial, held: dict[_Client, float], waited: dict[_Client, list[_Waited]], plan: Plan
) -> ClientTrial:
    """
    Say whether what a client would have sent is unknown.

    It waited for a good part of its time, and would have had a higher limit than while it waited;
    or would have shared its limit with others than then, and waited less.
    """
    client = (row.key.name, row.principal, row.client_id)
    share = held.get(client, 0.0)
    if share <= WAITING_SHARE:
        return row._replace(held=share)

    def is_unknown(table: QuotaTable, tried: Throttled) -> bool:
        found = resolve(table, row.principal, row.client_id, row.key)
        return any(
            found.value is None
            or (was.limit is not None and found.value > was.limit)
            or (found.tags != was.tags and tried.ms < row.told.ms)
            for was in waited[client]
        )

    return row._replace(
        held=share,
        hides=is_unknown(plan.desired, row.after),
        hides_now=is_unknown(plan.current, row.before),
    )


def _waited(events: Any) -> dict[_Client, list[_Waited]]:
    """Return under which quotas each client was told to wait."""
    import pyarrow.compute as pc

    names = ("quota_type", "principal", "client_id", "quota_user", "quota_client_id")
    waits = events.filter(pc.greater(pc.fill_null(events["throttle_time_ms"], 0), 0))
    for name in names:
        at, words = waits.column_names.index(name), pc.fill_null(waits[name].cast("string"), "")
        waits = waits.set_column(at, name, words)
    found: dict[_Client, list[_Waited]] = defaultdict(list)
    lowest = waits.group_by(list(names), use_threads=False).aggregate([("bound", "min")])
    for row in lowest.to_pylist():
        tags = (row["quota_user"], row["quota_client_id"])
        found[tuple(row[n] for n in names[:3])].append(_Waited(tags, row["bound_min"]))
    return found


def _held(events: Any) -> dict[_Client, float]:
    """
    Return the share of its time that each client was told to wait, on the broker with the most.

    Between its first and last second with requests, as `headgate recommend` has it; a wait that
    begins before an earlier one's end counts from that end on.
    """
    import numpy as np
    import pyarrow.compute as pc

    if not events.num_rows:
        return {}
    names = ("quota_type", "principal", "client_id", "broker_id")
    who = [coded(events[name].cast("string")) for name in names]
    whose = np.ravel_multi_index([codes for codes, _ in who], [len(words) for _, words in who])
    begin, waits = (
        pc.fill_null(events[name], 0).to_numpy() for name in ("t_ms", "throttle_time_ms")
    )
    order = np.lexsort((begin, whose))
    begin, ends = begin[order], (begin + waits)[order]
    found: dict[_Client, float] = {}
    for part in np.split(np.arange(len(order)), np.flatnonzero(np.diff(whose[order])) + 1):
        over = np.maximum.accumulate(ends[part])
        earlier = np.concatenate([begin[part[:1]], over[:-1]])
        waited = np.maximum(0, ends[part] - np.maximum(begin[part], earlier)).sum()
        first, last = begin[part[0]] // 1000, begin[part[-1]] // 1000
        share = min(1.0, float(waited / ((last - first + 1) * 1000)))
        quota_type, user, client_id, _ = (words[codes[order[part[0]]]] for codes, words in who)
        client = (quota_type, user, client_id)
        found[client] = max(share, found.get(client, 0.0))
    return found


def _replayed(requests: Any, plan: Plan) -> list[ClientTrial]:
    """Replay requests under both tables, as the pipeline's workers do."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from headgate.pipeline.answers.what_if import options_of
    from headgate.pipeline.quotas import Quotas
    from headgate.pipeline.replaying.packed_format import ORDER
    from headgate.pipeline.replaying.packer import PackRequests
    from headgate.pipeline.replaying.replay import ReplayPacked

    options = options_of([Quotas.of(plan.current, "before"), Quotas.of(plan.desired, "after")])
    packed = pa.Table.from_batches(PackRequests(options)(iter(requests.to_batches())))
    order = pc.sort_indices(packed, [(name, "ascending") for name in ORDER])
    packed = packed.take(order).combine_chunks()
    sums = list(ReplayPacked(options)(iter(packed.to_batches())))
    return list(_rows(pa.Table.from_batches(sums))) if sums else []


def _rows(sums: Any) -> Iterator[ClientTrial]:
    """Add up each client's figures over brokers and quota-ids."""
    who = ["quota_type", "principal", "client_id"]
    names = ["requests", "bytes", "throttled_requests", "throttle_time_ms", "delayed"]
    added = [(name, "sum") for name in names] + [("max_throttle_time_ms", "max")]
    found: dict[tuple[str, str, str], dict[int, dict[str, Any]]] = {}
    for row in sums.group_by([*who, "plan"], use_threads=False).aggregate(added).to_pylist():
        whose = (row["quota_type"], row["principal"] or "", row["client_id"] or "")
        found.setdefault(whose, {})[row["plan"]] = row
    for (quota_type, principal, client_id), plans in found.items():
        one = next(iter(plans.values()))
        told, before, after = (_throttled(plans.get(plan)) for plan in (-1, 0, 1))
        yield ClientTrial(
            QuotaKey.parse(quota_type), principal, client_id, one["requests_sum"],
            one["bytes_sum"], told._replace(share=None), before, after,
        )  # fmt: skip


def _throttled(row: dict[str, Any] | None) -> Throttled:
    if row is None:
        return Throttled()
    share = row["delayed_sum"] / row["bytes_sum"] if row["bytes_sum"] else None
    return Throttled(
        row["throttled_requests_sum"], row["throttle_time_ms_sum"],
        row["max_throttle_time_ms_max"], share,
    )  # fmt: skip

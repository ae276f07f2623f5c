"""
Charges of fetches: by the size of the answer, with the gates that a delivery closes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headgate.gateway.charging.fetch_gate import GateKey, Gates
from headgate.gateway.charging.plans import RequestKind
from headgate.gateway.charging.request_time import REQUEST_NAME, RequestTime
from headgate.gateway.charging.told import Told
from headgate.quota.key import CONSUMER
from headgate.throttle.registry import UNCHARGED, Throttle
from headgate.throttle.request import PERCENT_PER_NS
from headgate.wire.messages import fetch as fetch_message
from headgate.wire.messages import share as share_message

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.gateway.charging.client import ClientConnection
    from headgate.gateway.charging.contexts import Context
    from headgate.gateway.charging.journal import Journal
    from headgate.gateway.charging.managers import Managers
    from headgate.gateway.charging.plans import RequestPlan
    from headgate.metrics.meters import Meters

_FETCH: Final = CONSUMER.name
# In Python 3.11 looking up an enum's member costs more than all that is done with it.
_KIND_FETCH: Final = RequestKind.FETCH


@dataclass(eq=False)
class FetchCharges:
    """
    Charges of Fetch and ShareFetch; arguments in common as ``Enforcement`` says.

    Args:
        managers: of the broker.
        choose: says which throttle counts (``Decisions.choose``).
        time: charges request time.
        gates: of the quota-ids.
        journal: where every charge is written down.
        meters: where held fetches are counted.
        delivers: ``headgate.fetch=deliver``: a violating fetch is delivered and closes its gates.
    """

    _managers: Managers
    _choose: Callable[..., int]
    _time: RequestTime
    _gates: Gates
    _journal: Journal
    _meters: Meters
    _delivers: bool

    def __post_init__(self) -> None:
        self._record = self._managers.fetch.record

    def charge(
        self,
        client: ClientConnection,
        context: Context,
        plan: RequestPlan,
        size: int,
        answer_bytes: int,
        upstream_ms: int,
        now_ms: int,
        *,
        withheld: bool = False,
    ) -> int:
        """
        Charge a Fetch or ShareFetch by its answer's size, ``answer_bytes``.

        A delivery closes the gates of its quota-ids. For an answer that is ``withheld``, the result
        is how long they stay closed.
        """
        user, client_id = context.principal, context.charged_id
        spent_ns = self._time.take(client, plan, now_ms)
        is_share = plan.kind is not _KIND_FETCH
        if is_share:
            charged = share_message.charged_bytes(answer_bytes)
        else:
            charged = fetch_message.charged_bytes(answer_bytes, plan.version)
        by_request = UNCHARGED
        if self._time.counts:
            by_request = self._time.charge(context, spent_ns, now_ms)
        by_bytes = self._record(user, client_id, charged, now_ms)
        others: list[tuple[str, Throttle, float]] = []
        for name, manager in self._managers.fetch_active:
            others.append((name, manager.record(user, client_id, charged, now_ms), charged))
        ours = 0
        if withheld:
            rest, why = self._rest(client, now_ms)
            ours = self._choose(client, context, now_ms, (REQUEST_NAME, by_request), rest)
            if ours and why and client.told and client.told.key == why.key:
                client.told = why  # it is over by the fetch that closed the gate, not by this one
        elif others or by_bytes.throttle_time_ms > 0 or by_request.throttle_time_ms > 0:
            ours = self._choose(
                client, context, now_ms, (REQUEST_NAME, by_request), (_FETCH, by_bytes), others
            )
            if ours and not context.exempt and (is_share or self._delivers):
                self._close_gate(_FETCH, by_bytes, now_ms)
                for name, decision, _ in others:
                    self._close_gate(name, decision, now_ms)
        told = ours if ours > upstream_ms else upstream_ms
        record = self._journal.record
        if by_request is not UNCHARGED:
            record(client, context, plan, REQUEST_NAME, now_ms, spent_ns * PERCENT_PER_NS,
                   by_request, told, upstream_ms, size, spent_ns, None)  # fmt: skip
        record(client, context, plan, _FETCH, now_ms, charged, by_bytes, told, upstream_ms,
               answer_bytes, spent_ns, None)  # fmt: skip
        for name, decision, amount in others:
            record(client, context, plan, name, now_ms, amount, decision, told, upstream_ms,
                   answer_bytes, spent_ns, None)  # fmt: skip
        return ours

    def _close_gate(self, name: str, decision: Throttle, now_ms: int) -> None:
        ms, user_tag, client_tag, bound = decision
        if name not in self._managers.active_names:
            return
        told = None
        if ms > 0:
            used = self._managers.used(name, (user_tag, client_tag), now_ms)
            told = Told(name, user_tag, client_tag, now_ms, bound, used)
        self._gates.charged(GateKey(name, user_tag, client_tag), ms, bound, now_ms, told)

    def _rest(
        self, client: ClientConnection, now_ms: int
    ) -> tuple[tuple[str, Throttle], Told | None]:
        """Return how long a withheld fetch's gates stay closed, as a decision, and why they do."""
        rest_ms, key = (0, None) if client.hold is None else client.hold.rest(now_ms)
        if key is None:
            return (_FETCH, UNCHARGED), None
        gate = self._gates.get(key)
        bound = self._managers.gate_bound(key)
        decision = Throttle(rest_ms, key.user_tag, key.client_tag, bound)
        return (key.quota_type, decision), None if gate is None else gate.told

    def held(
        self,
        client: ClientConnection,
        context: Context,
        plan: RequestPlan,
        waited_ms: int,
        now_ms: int,
    ) -> None:
        """Note how long a fetch was held, in the metrics and in the journal."""
        meters = self._meters
        meters.fetches_held += 1
        meters.fetch_held_ms += waited_ms
        self._journal.note("held", client, context, plan, _FETCH, now_ms, float(waited_ms))

    def take_back(
        self,
        client: ClientConnection,
        context: Context,
        plan: RequestPlan,
        answer_bytes: int,
        now_ms: int,
    ) -> None:
        """Take a fetch's charge back: its answer was emptied."""
        user, client_id = context.principal, context.charged_id
        charged = fetch_message.charged_bytes(answer_bytes, plan.version)
        note = self._journal.note
        decision = self._managers.fetch.unrecord(user, client_id, charged, now_ms)
        note("unrecord", client, context, plan, _FETCH, now_ms, charged, decision)
        for name, manager in self._managers.fetch_active:
            decision = manager.unrecord(user, client_id, charged, now_ms)
            note("unrecord", client, context, plan, name, now_ms, charged, decision)

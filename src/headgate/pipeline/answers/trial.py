"""
Try proposals: what each would have throttled, by a replay or in a closed loop.

A replay keeps the moments at which requests were sent. So it is exact only where nobody waits:
neither when the data was made, nor under the quotas in force, nor under the proposal. Everywhere
else a client would have sent at other moments, and the closed loop (``demand``) says what comes of
it, or that it can't be known.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Any, Final, NamedTuple

from headgate.pipeline.answers.advice import BYTES, Advice, Proposal, floor, number, round_up
from headgate.pipeline.answers.demand import MOST_CHARGES
from headgate.pipeline.answers.proposals import Sharers
from headgate.pipeline.quotas import KEY_OF_TYPE, Quotas
from headgate.pipeline.schema import RECOMMEND
from headgate.quota.alteration import Op, QuotaAlteration
from headgate.quota.entity import DEFAULT
from headgate.quota.precedence import Resolver

CURRENT: Final = "current"
"""Name of the plan that holds the quotas in force."""
PEAKS: Final = "peaks"
"""Name of the plan that holds, for single values, what their peaks need."""
_VALUES: Final = ("set", "split", "merge", "default")

# (plan, quota type, user tag, client tag) to (requests throttled, throttle time in ms).
Throttled = Mapping[tuple[str, str, str, str], tuple[int, int]]
Key = tuple[str, str, str]
"""Quota type, user tag and client tag of a quota-id."""


def at_peak(proposal: Proposal, advice: Advice) -> Proposal | None:
    """Return a single value raised to what its peak needs; None where it is that already."""
    if proposal.action != "set" or not proposal.peak or proposal.recommended is None:
        return None
    value = round_up(proposal.peak * advice.headroom, floor(proposal.quota_type, advice))
    if value <= proposal.recommended or value >= (proposal.current or inf):
        return None
    said = f"; that would throttle it more than now, so its peak counts: {number(value)}"
    return replace(proposal, recommended=value, reason=proposal.reason + said, tried_in=PEAKS)


def plans_of(
    proposals: Iterable[Proposal], current: Quotas, advice: Advice | None = None
) -> list[Quotas]:
    """
    Return the plans that proposals are tried in, each named after ``Proposal.plan``.

    Removals have no plan: the quotas that they remove bind nobody.

    Args:
        proposals: what is proposed.
        current: the quotas in force.
        advice: how figures are made; None: single values aren't tried at their peaks.
    """
    by_plan: dict[str, list[Proposal]] = {"recommended": []}
    for p in proposals:
        if p.action in _VALUES:
            by_plan.setdefault(p.plan, []).append(p)
        higher = None if advice is None else at_peak(p, advice)
        if higher is not None:
            by_plan.setdefault(PEAKS, []).append(higher)
    plans = []
    for name, mine in by_plan.items():
        alterations = []
        for p in mine:
            key = KEY_OF_TYPE[p.quota_type]
            alterations += [QuotaAlteration(e, (Op(key, None),)) for e in p.instead]
            alterations.append(QuotaAlteration(p.entity, (Op(key, p.recommended),)))
        table, _ = current.tables[-1].apply(alterations)
        plans.append(Quotas.of(table, name))
    return plans


class Fare(NamedTuple):
    """
    Throttle time that quota-ids are told under a plan, ms.

    Attributes:
        figure: None where it can't be known.
        most: what it is at most; infinite: nothing bounds it.
    """

    figure: float | None
    most: float

    @property
    def compared(self) -> float:
        """The figure, or else the most: what a proposal is compared by."""
        return self.most if self.figure is None else self.figure


class Fares:
    """
    How quota-ids fare under plans in a closed loop.

    Args:
        rows: of DEMAND.
    """

    def __init__(self, rows: Iterable[Mapping[str, Any]]) -> None:
        self._rows: dict[tuple[str, str, str, str], list[Mapping[str, Any]]] = defaultdict(list)
        for row in rows:
            key = (row["plan"], row["quota_type"], row["quota_user"], row["quota_client_id"])
            self._rows[key].append(row)

    def of(self, plan: str, quota_type: str, tags: Iterable[tuple[str, str]]) -> Fare:
        """Return the sum of some quota-ids, on all brokers; one without charges isn't throttled."""
        figure: float | None = 0.0
        most = 0.0
        for tag in tags:
            for r in self._rows.get((plan, quota_type, *tag), ()):
                known, last = r["throttle_s"], r["throttle_most_s"]
                figure = None if known is None or figure is None else figure + known * 1000.0
                most += inf if last is None else last * 1000.0
        return Fare(figure, most)


class Tried:
    """
    What plans throttled, looked up by proposal.

    Args:
        plans: those tried, the current quotas first.
        throttled: their sums, by a replay.
        sharers: who shares each quota-id of the current ones.
        changed: quota-ids that had another limit in a part of the time.
        requests: by quota-id of the current quotas. Of one with more than ``MOST_CHARGES`` the
            closed loop looks at the latest: that compares plans, but is no figure of all the time.

    Attributes:
        fares: how they fare in a closed loop; None: that wasn't asked.
    """

    def __init__(
        self,
        plans: Sequence[Quotas],
        throttled: Throttled,
        sharers: Sharers,
        changed: Iterable[Key] = (),
        requests: Mapping[Key, int] | None = None,
    ) -> None:
        self._resolvers = {p.name: Resolver(p.tables[-1]) for p in plans}
        self._throttled = throttled
        self._sharers = sharers
        self._changed = frozenset(changed)
        self._requests = requests or {}
        self._types = {quota_type for _, quota_type, _, _ in throttled}
        self.fares: Fares | None = None

    def tags(self, proposal: Proposal, plan: str) -> set[tuple[str, str]]:
        """Return the quota-ids, under a plan, of all clients that a proposal concerns."""
        key = KEY_OF_TYPE[proposal.quota_type]
        found = set()
        for user, client in proposal.tags:
            who = self._sharers.get((proposal.quota_type, user, client)) or [(user, client, 0.0)]
            found |= {self._resolvers[plan](name, cid, key).tags for name, cid, _ in who}
        return found

    def _replayed(self, proposal: Proposal, plan: str) -> tuple[int | None, int | None]:
        if not proposal.tags:
            return 0, 0
        if proposal.quota_type not in self._types:
            return None, None
        found = [
            self._throttled.get((plan, proposal.quota_type, *t), (0, 0))
            for t in self.tags(proposal, plan)
        ]
        return sum(n for n, _ in found), sum(ms for _, ms in found)

    def is_exact(self, proposal: Proposal) -> bool:
        """Say whether nobody waits, so that a replay is exact."""
        if proposal.held:
            return False
        return all(not self._replayed(proposal, plan)[0] for plan in (CURRENT, proposal.plan))

    def _played(self, proposal: Proposal, plan: str) -> Fare | None:
        """Return what the closed loop says; None where it isn't needed or wasn't asked."""
        if self.fares is None or self.is_exact(proposal):
            return None
        if proposal.quota_type not in BYTES:
            return Fare(None, inf)
        return self.fares.of(plan, proposal.quota_type, self.tags(proposal, plan))

    def now(self, proposal: Proposal) -> tuple[int | None, int | None]:
        """
        Return requests throttled and ms under the quotas in force, of all clients concerned.

        None where the data doesn't hold what tells it, or another limit was in force for a time.
        """
        if self._had_another(proposal):
            played = self._played(proposal, CURRENT)
            if played is not None:
                return None, self._told(proposal, played)
        return self._replayed(proposal, CURRENT)

    def then(self, proposal: Proposal) -> tuple[int | None, int | None]:
        """Return the same with the proposal's advice taken; None where that can't be known."""
        if proposal.action in ("keep", "wait"):
            had = self._had_another(proposal) or proposal.plan == CURRENT
            return self.now(proposal) if had else self._replayed(proposal, proposal.plan)
        played = self._played(proposal, proposal.plan)
        if played is not None:
            return None, self._told(proposal, played)
        if proposal.hides and self.fares is None:
            return None, None
        return self._replayed(proposal, proposal.plan)

    def rows(self, proposals: Iterable[Proposal], advice: Advice) -> list[dict[str, Any]]:
        """Return the RECOMMEND rows of proposals."""
        rows = []
        for p in proposals:
            user, client = p.entity.user, p.entity.client_id
            row = (
                p.quota_type,
                str(p.entity),
                None if user is None else str(user),
                None if client is None else str(client),
                user is DEFAULT,
                client is DEFAULT,
                p.action,
                p.current,
                p.recommended,
                p.percentile,
                p.peak,
                p.growth_per_day,
                advice.headroom,
                *self.now(p),
                *self.then(p),
                p.held,
                *(p.wants[:4] if p.wants else [None] * 4),
                p.reason + p.hides,
            )
            rows.append(dict(zip(RECOMMEND.names, row, strict=True)))
        return rows

    def _had_another(self, proposal: Proposal) -> bool:
        """Say whether another limit was in force for a part of the time."""
        return any((proposal.quota_type, *tags) in self._changed for tags in proposal.tags)

    def _told(self, proposal: Proposal, played: Fare) -> int | None:
        """Return what the closed loop says about all the time, ms."""
        whose = [(proposal.quota_type, *tags) for tags in proposal.tags]
        partly = any(self._requests.get(key, 0) > MOST_CHARGES for key in whose)
        return None if partly or played.figure is None else round(played.figure)

    def is_worse(self, proposal: Proposal) -> bool:
        """Say whether a value throttles more than the quotas in force do, by the closed loop."""
        if proposal.action not in _VALUES or proposal.quota_type not in BYTES:
            return False
        then, now = self._played(proposal, proposal.plan), self._played(proposal, CURRENT)
        if then is None or now is None:
            return False
        if proposal.action == "set" and (proposal.recommended or 0) >= (proposal.current or inf):
            return False  # a higher limit
        return then.compared > now.compared or then.compared == inf


def asked_of(proposals: Iterable[Proposal], tried: Tried, advice: Advice) -> set[Key]:
    """Return the quota-ids, under any plan, that the closed loop is asked about."""
    found: set[Key] = set()
    for p in proposals:
        if p.quota_type not in BYTES or p.action == "remove" or tried.is_exact(p):
            continue
        plans = {CURRENT, p.plan} | ({PEAKS} if at_peak(p, advice) else set())
        found |= {(p.quota_type, *tags) for plan in plans for tags in tried.tags(p, plan)}
    return found


def harmless(proposals: Iterable[Proposal], tried: Tried, advice: Advice) -> list[Proposal]:
    """
    Return proposals without those that the closed loop says would throttle more than now.

    A single value becomes what its peak needs or, where that throttles more too, what it is now.
    """
    found = []
    for p in proposals:
        if not tried.is_worse(p):
            found.append(p)
        elif p.action == "set":
            higher = at_peak(p, advice)
            found.append(higher if higher is not None and not tried.is_worse(higher) else _kept(p))
    return found


def _kept(proposal: Proposal) -> Proposal:
    stays = "it stays without a limit" if proposal.current is None else "its limit stays"
    value = number(proposal.recommended or 0.0)
    said = f"; {value} may throttle it more than now, in a closed loop: {stays}"
    return replace(
        proposal,
        action="keep",
        recommended=proposal.current,
        reason=proposal.reason + said,
        tried_in=CURRENT,
    )

"""
What to propose, from what each quota-id used: single values, splits, merges, defaults, removals.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from headgate.pipeline.answers.advice import (
    UNITS,
    Advice,
    Observed,
    Proposal,
    Wants,
    figure,
    floor,
    need,
    number,
    round_up,
    spares,
    too_little,
    why_floor,
)
from headgate.pipeline.quotas import KEY_OF_TYPE
from headgate.quota.entity import DEFAULT, QuotaEntity
from headgate.quota.table import QuotaTable

# (quota type, user tag, client tag) to the (principal, client-id, use) that share it.
Sharers = Mapping[tuple[str, str, str], Sequence[tuple[str, str, float]]]


def propose(
    observed: Iterable[Observed],
    current: QuotaTable,
    sharers: Sharers,
    dead: Iterable[tuple[str, QuotaEntity, float]],
    advice: Advice,
) -> list[Proposal]:
    """
    Return all proposals, in order of type and entity.

    Args:
        observed: what each quota-id used.
        current: the quotas in force.
        sharers: who shares each quota-id.
        dead: (type, entity, value) of quotas that nobody matched.
        advice: how figures are made.
    """
    everyone = sorted(observed, key=lambda o: o.key)
    seen = [o for o in everyone if not too_little(o, advice)]
    proposals = [_single(o, current, advice) for o in everyone]
    proposals += _splits(seen, sharers, advice)
    proposals += _merges(seen, current, advice)
    proposals += _defaults(seen, current, advice)
    proposals += [
        Proposal(
            quota_type,
            entity,
            "remove",
            value,
            None,
            f"nobody in this data was bound by {number(value)} of {entity}",
        )
        for quota_type, entity, value in dead
    ]
    return proposals


def _single(seen: Observed, current: QuotaTable, advice: Advice) -> Proposal:
    entity, key = seen.entity, KEY_OF_TYPE[seen.quota_type]
    now = "no limit now" if seen.current is None else f"{number(seen.current)} now"
    if seen.current is not None and current.get(entity, key) is None:
        now += " from a less specific entity"
    now += seen.was
    why = too_little(seen, advice)
    value: float | None = None
    if why:
        action = "wait"
        reason = f"{why}; {now}"
    else:
        action, value, (of_figure, of_now) = _value(seen, advice)
        growth = ""
        if seen.growth_per_day > 0:
            growth = f", grown {seen.growth_per_day:.1%} a day over {advice.horizon_days} days"
        wants = seen.wants
        more = f"; {wants.words}" if wants is not None else ""
        counts = ""
        if wants is not None and (wants.per_s or 0.0) > seen.percentile:
            counts, more = f"{more}, which counts in place of that", ""
        reason = (
            f"{advice.percentile:.0%} of the time at most {number(seen.percentile)} "
            f"{UNITS[seen.quota_type][0]} over {advice.window_s} s (peak {number(seen.peak)})"
            f"{counts}{growth}, times {advice.headroom:g}, rounded up: {number(need(seen, advice))}"
            f"{of_figure}; {now}{of_now}{more}"
        )
    return _about([seen], entity, action, seen.current, value, reason, wants=seen.wants)


def _value(seen: Observed, advice: Advice) -> tuple[str, float, tuple[str, str]]:
    """Return what to do, the limit, and the words about the figure and about the present limit."""
    value, used = figure(seen, advice), need(seen, advice)
    raised = f", raised to the {why_floor(seen.quota_type, advice)}" if value > used else ""
    if seen.current is None:
        return "set", value, (raised, "")
    if abs(value - seen.current) <= advice.tolerance * seen.current:
        return "keep", seen.current, (raised, ", near enough")
    if raised and used <= seen.current and spares(seen.current, seen.quota_type, advice):
        below = f", below the {why_floor(seen.quota_type, advice)}"
        return "keep", seen.current, (below, ", which is enough and spares such a request")
    return "set", value, (raised, "")


def _splits(seen: Sequence[Observed], shares: Sharers, advice: Advice) -> list[Proposal]:
    """Propose an own quota for a client that takes most of one it shares."""
    found = []
    for o in seen:
        sharers = shares.get(o.key, ())
        total = sum(used for _, _, used in sharers)
        if len(sharers) < 2 or not total or o.current is None or o.peak <= o.current:
            continue
        principal, client_id, most = max(sharers, key=lambda s: (s[2], s[0], s[1]))
        # Only a user's own clients can be told apart by name: anybody may claim a client-id.
        if most / total < advice.split_share or not client_id or o.quota_type not in _BY_CLIENT:
            continue
        value = round_up(figure(o, advice) * most / total, floor(o.quota_type, advice))
        entity = QuotaEntity.of(user=principal, client_id=client_id)
        reason = (
            f"{client_id} takes {most / total:.0%} of what {len(sharers)} clients share under "
            f"{number(o.current)}, and their peak of {number(o.peak)} exceeds it: its own "
            f"part of {number(figure(o, advice))} is {number(value)}"
        )
        found.append(_about([o], entity, "split", o.current, value, reason))
    return found


# Producer ids are counted by user alone (KIP-936).
_BY_CLIENT = frozenset(UNITS) - {"producer_ids_rate"}


def _merges(seen: Sequence[Observed], current: QuotaTable, advice: Advice) -> list[Proposal]:
    """Propose one quota for a user whose clients use little of their own quotas."""
    by_user: dict[tuple[str, str], list[Observed]] = defaultdict(list)
    for o in seen:
        key = KEY_OF_TYPE[o.quota_type]
        if o.user and o.client_id and current.get(o.entity, key) is not None:
            by_user[o.quota_type, o.user].append(o)
    found = []
    for (quota_type, user), mine in sorted(by_user.items()):
        limits = [o.current or 0.0 for o in mine]
        peak = sum(o.peak for o in mine)
        if len(mine) < 2 or peak > max(limits):
            continue
        least = floor(quota_type, advice)
        together = round_up(sum(need(o, advice) for o in mine))
        value = max(together, least)
        which = "the floor" if least > together else "the sum of their figures"
        reason = (
            f"{len(mine)} clients have quotas of {number(sum(limits))} together; even the sum "
            f"of their peaks ({number(peak)}) is within the largest one: one quota of "
            f"{number(value)}, {which}, serves them all"
        )
        entity, own = QuotaEntity.of(user=user), tuple(o.entity for o in mine)
        found.append(_about(mine, entity, "merge", sum(limits), value, reason, own))
    return found


def _defaults(seen: Sequence[Observed], current: QuotaTable, advice: Advice) -> list[Proposal]:
    """Propose a default where many entities of a shape need about the same."""
    by_shape: dict[tuple[str, bool, bool], list[tuple[float, Observed]]] = defaultdict(list)
    for o in seen:
        by_shape[o.quota_type, bool(o.user), bool(o.client_id)].append((figure(o, advice), o))
    found = []
    for (quota_type, user, client), mine in sorted(by_shape.items(), key=lambda kv: kv[0]):
        entity = QuotaEntity.of(
            user=DEFAULT if user else None, client_id=DEFAULT if client else None
        )
        key = KEY_OF_TYPE[quota_type]
        if not (user or client) or current.get(entity, key) is not None:
            continue
        values = sorted(v for v, _ in mine)
        middle = values[len(values) // 2]
        lowest, highest = middle / advice.default_share, middle * advice.default_share
        alike = [o for v, o in mine if lowest <= v <= highest]
        if len(alike) < 3 or len(alike) * 2 < len(mine):
            continue
        value = max(v for v in values if v <= highest)
        needs = [need(o, advice) for o in alike]
        floored = f", at most the {why_floor(quota_type, advice)}" if value > max(needs) else ""
        own = tuple(o.entity for o in alike if current.get(o.entity, key) is not None)
        instead = f", in place of {len(own)} quotas of their own" if own else ""
        reason = (
            f"{len(alike)} of {len(mine)} need between {number(min(needs))} and "
            f"{number(max(needs))}{floored}: a default of {number(value)} serves them all{instead}"
        )
        found.append(_about(alike, entity, "default", None, value, reason, own))
    return found


def _about(
    seen: Sequence[Observed],
    entity: QuotaEntity,
    action: str,
    current: float | None,
    value: float | None,
    reason: str,
    instead: tuple[QuotaEntity, ...] = (),
    wants: Wants | None = None,
) -> Proposal:
    """Return a proposal about quota-ids: a merge has the sum of their use, else the most counts."""
    together = sum if action == "merge" else max
    return Proposal(
        seen[0].quota_type,
        entity,
        action,
        current,
        value,
        reason,
        together(o.percentile for o in seen),
        together(o.peak for o in seen),
        seen[0].growth_per_day if len(seen) == 1 else 0.0,
        tuple((o.user, o.client_id) for o in seen),
        instead,
        max(o.held for o in seen),
        wants,
    )

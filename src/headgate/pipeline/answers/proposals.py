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
    entity_of,
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
from headgate.quota.entity import DEFAULT, EntityName, QuotaEntity
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
    everyone = sorted(observed, key=lambda o: (o.quota_type, o.user, o.client_id))
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
    entity = entity_of(seen.user, seen.client_id)
    key = KEY_OF_TYPE[seen.quota_type]
    now = "no limit now" if seen.current is None else f"{number(seen.current)} now"
    if seen.current is not None and current.get(entity, key) is None:
        now += " from a less specific entity"
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
    return Proposal(
        seen.quota_type,
        entity,
        action,
        seen.current,
        value,
        reason,
        seen.percentile,
        seen.peak,
        seen.growth_per_day,
        ((seen.user, seen.client_id),),
        held=seen.held,
        wants=seen.wants,
    )


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
        sharers = shares.get((o.quota_type, o.user, o.client_id), ())
        total = sum(used for _, _, used in sharers)
        if len(sharers) < 2 or not total or o.current is None or o.peak <= o.current:
            continue
        principal, client_id, most = max(sharers, key=lambda s: (s[2], s[0], s[1]))
        # Only a user's own clients can be told apart by name: anybody may claim a client-id.
        if most / total < advice.split_share or not client_id or o.quota_type not in _BY_CLIENT:
            continue
        value = round_up(figure(o, advice) * most / total, floor(o.quota_type, advice))
        found.append(
            Proposal(
                o.quota_type,
                QuotaEntity.of(user=principal, client_id=client_id),
                "split",
                o.current,
                value,
                f"{client_id} takes {most / total:.0%} of what {len(sharers)} clients share under "
                f"{number(o.current)}, and their peak of {number(o.peak)} exceeds it: its own "
                f"part of {number(figure(o, advice))} is {number(value)}",
                o.percentile,
                o.peak,
                o.growth_per_day,
                ((o.user, o.client_id),),
                held=o.held,
            )
        )
    return found


# Producer ids are counted by user alone (KIP-936).
_BY_CLIENT = frozenset(UNITS) - {"producer_ids_rate"}


def _merges(seen: Sequence[Observed], current: QuotaTable, advice: Advice) -> list[Proposal]:
    """Propose one quota for a user whose clients use little of their own quotas."""
    by_user: dict[tuple[str, str], list[Observed]] = defaultdict(list)
    for o in seen:
        key = KEY_OF_TYPE[o.quota_type]
        if o.user and o.client_id and current.get(entity_of(o.user, o.client_id), key) is not None:
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
        found.append(
            Proposal(
                quota_type,
                QuotaEntity.of(user=user),
                "merge",
                sum(limits),
                value,
                f"{len(mine)} clients have quotas of {number(sum(limits))} together; even the sum "
                f"of their peaks ({number(peak)}) is within the largest one: one quota of "
                f"{number(value)}, {which}, serves them all",
                sum(o.percentile for o in mine),
                peak,
                0.0,
                tuple((o.user, o.client_id) for o in mine),
                tuple(entity_of(o.user, o.client_id) for o in mine),
                max(o.held for o in mine),
            )
        )
    return found


def _defaults(seen: Sequence[Observed], current: QuotaTable, advice: Advice) -> list[Proposal]:
    """Propose a default where many entities of a shape need about the same."""
    by_shape: dict[tuple[str, bool, bool], list[tuple[float, Observed]]] = defaultdict(list)
    for o in seen:
        by_shape[o.quota_type, bool(o.user), bool(o.client_id)].append((figure(o, advice), o))
    found = []
    for (quota_type, user, client), mine in sorted(by_shape.items(), key=lambda kv: kv[0]):
        names: dict[str, EntityName] = {}
        if user:
            names["user"] = DEFAULT
        if client:
            names["client-id"] = DEFAULT
        entity, key = QuotaEntity(names), KEY_OF_TYPE[quota_type]
        if not names or current.get(entity, key) is not None:
            continue
        values = sorted(v for v, _ in mine)
        middle = values[len(values) // 2]
        alike = [
            (v, o)
            for v, o in mine
            if middle / advice.default_share <= v <= middle * advice.default_share
        ]
        if len(alike) < 3 or len(alike) * 2 < len(mine):
            continue
        value = max(v for v, _ in alike)
        needs = [need(o, advice) for _, o in alike]
        floored = f", at most the {why_floor(quota_type, advice)}" if value > max(needs) else ""
        named = [entity_of(o.user, o.client_id) for _, o in alike]
        own = tuple(e for e in named if current.get(e, key) is not None)
        instead = f", in place of {len(own)} quotas of their own" if own else ""
        found.append(
            Proposal(
                quota_type,
                entity,
                "default",
                None,
                value,
                f"{len(alike)} of {len(mine)} need between {number(min(needs))} and "
                f"{number(max(needs))}{floored}: a default of {number(value)} serves them all"
                f"{instead}",
                max(o.percentile for _, o in alike),
                max(o.peak for _, o in alike),
                0.0,
                tuple((o.user, o.client_id) for _, o in alike),
                own,
                max(o.held for _, o in alike),
            )
        )
    return found

"""
The words of a sentence about a quota: who does what, how long it waits, and what was true then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.live.picture import QuotaChange, WaitTold
from headgate.quota.human import human
from headgate.quota.key import QuotaKey, QuotaType, QuotaUnit, format_value
from headgate.words import amount, duration, figures, moment, unit_of

if TYPE_CHECKING:
    from headgate.live.why import QuotaWhy


class _Verb(NamedTuple):
    """What a client does with a quota, now and before, and what a bucket's debt is counted in."""

    now: str
    before: str
    unit: str


VERBS: Final = {
    QuotaType.PRODUCER_BYTE_RATE: _Verb("produces", "produced", "B"),
    QuotaType.CONSUMER_BYTE_RATE: _Verb("fetches", "fetched", "B"),
    QuotaType.REQUEST_PERCENTAGE: _Verb("uses", "used", "%"),
    QuotaType.CONTROLLER_MUTATION_RATE: _Verb(
        "changes partitions at", "changed partitions at", "partitions"
    ),
    QuotaType.PRODUCER_IDS_RATE: _Verb("takes producer ids at", "took producer ids at", "ids"),
}


def source_of(quota: QuotaWhy) -> str:
    """Return the entity whose quota it is, or what it is called where that isn't known."""
    if quota.entries:
        return quota.entries[0].entity
    return f"{quota.key} of {'/'.join(filter(None, (quota.user, quota.client_id)))}"


def waiting(quota: QuotaWhy, where: str, at_ms: int) -> str:
    """Say how long a client waits and what was true when that was told: never mix two moments."""
    told, use = quota.told, quota.use
    if not quota.wait_ms:
        limited = f", and {source_of(quota)} allows {allowed(quota)}" if quota.limit else ""
        return f"waits for its turn{where}: others came first{limited}".removesuffix(",")
    how_long = f"waits {duration(quota.wait_ms)} more{where}"
    if told is None or told.limit is None or use is None:
        limited = f", which allows {allowed(quota)}" if quota.limit is not None else ""
        return f"{how_long} by {source_of(quota)}{limited}".removesuffix(",")
    used = _used(quota, told, at_ms)
    if not quota.outlived:
        because = f"{source_of(quota)} allows {_limited(quota, told)}{used}"
        return f"{how_long}, because {because}".removesuffix(",")
    as_in_kafka = ", as in Kafka" if told.told_to == "client" else ""
    change = quota.change
    by = f", {_made(change, told.quota)}" if change is not None else ""
    before, now = _apart(quota, told.quota, use.quota)
    before += _part(quota, told)
    whose = f"{change.entity}: " if change is not None and change.before is not None else ""
    if use.quota is None:
        used = f", because {used.removeprefix(' and ')}" if used else ""
        return (
            f"{how_long} under a quota that is gone ({whose}{before}{by}){used}; a removal doesn't "
            f"end it{as_in_kafka}"
        )
    if told.quota == use.quota:  # and another quota-id is charged
        return (
            f"{how_long}, because {source_of(quota)} allowed {_limited(quota, told)}{used}; "
            f"another quota applies to it now, and that doesn't end the wait{as_in_kafka}"
        )
    source = change.entity if whose and change is not None else "the quota"
    if change is not None and change.after is None:
        by = f"{by.removeprefix(', ')}; {source_of(quota)} allows {now} now"
    else:
        by = f"{now} now{by}"
    return (
        f"{how_long}, because {source} allowed {before} ({by}){used}; a change doesn't end a wait"
        f"{as_in_kafka}"
    )


def _made(change: QuotaChange, quota: float | None) -> str:
    """Return what was done to a quota: ``raised 2026-11-22 03:12:04 UTC by ops``."""
    if change.after is None:
        done = "removed"
    elif change.before is None:
        done = "set"
    else:  # as seen from the quota that was: there may have been several changes
        done = "raised" if change.after > (quota or 0.0) else "lowered"
    return f"{done} {moment(change.at_ms)}" + (f" by {change.who}" if change.who else "")


def _used(quota: QuotaWhy, told: WaitTold, at_ms: int) -> str:
    """Return the use that was beyond the quota when a wait was told, and when; "": not known."""
    verb = VERBS[QuotaType(QuotaKey.parse(quota.key).type)]
    if told.owed:
        did = f"owed {debt(quota, told.owed)}"
    elif told.rate is not None and told.limit is not None and told.rate > told.limit:
        coarse = "up to " if quota.use is not None and quota.use.coarse else ""
        did = beyond(quota, f"{verb.before} {coarse}", told.rate, told.limit)
    else:
        return ""
    when = {
        "client": "when the wait was told",
        "closed": "when a connection that has closed since was told to wait",
        "gate": "with the last request",
    }[told.told_to]
    ago_ms = at_ms - told.at_ms
    return f" and {doer(quota)} {did} {when}" + (
        f", {duration(ago_ms)} before" if ago_ms > 0 else ""
    )


def _limited(quota: QuotaWhy, told: WaitTold) -> str:
    """Return the limit by which a wait was told."""
    key, part = QuotaKey.parse(quota.key), _part(quota, told)
    return f"{human(key, told.quota)}{part}," if part else human(key, told.limit)


def _part(quota: QuotaWhy, told: WaitTold) -> str:
    """Return what a broker was given of a cluster-wide quota, as ``, 1 MB/s of it here``; or ""."""
    if told.limit is None or told.limit == told.quota or not QuotaKey.parse(quota.key).is_divided:
        return ""
    return f", {rate_of(quota, told.limit)} of it here"


def _apart(quota: QuotaWhy, before: float | None, after: float | None) -> tuple[str, str]:
    """Return two values of a quota in words; in full where the words are the same."""
    key = QuotaKey.parse(quota.key)
    texts = human(key, before), human(key, after)
    if texts[0] == texts[1] and before is not None and after is not None:
        unit = unit_of(quota.key)
        return f"{format_value(before)} {unit}", f"{format_value(after)} {unit}"
    return texts


def beyond(quota: QuotaWhy, does: str, rate: float, limit: float | None) -> str:
    """Return a rate that is beyond a limit: in figures, unless rounding makes them the same."""
    text = rate_of(quota, rate)
    if unit_of(quota.key) in ("B/s", "shares"):
        is_same = limit is not None and text == rate_of(quota, limit)
    else:  # the rate is rounded to three figures, the limit isn't
        is_same = limit is not None and float(f"{rate:.3g}") <= float(f"{limit:g}")
    if is_same:
        return f"{does.removesuffix(' ').removesuffix(' at')} a little more"
    return f"{does}{text}"


def debt(quota: QuotaWhy, owed: float) -> str:
    """Return what is owed in words."""
    unit = VERBS[QuotaType(QuotaKey.parse(quota.key).type)].unit
    return amount(owed, unit) if unit == "B" else f"{figures(max(owed, 0.01))} {unit}"


def doer(quota: QuotaWhy) -> str:
    """Return the subject of a sentence about use: the client alone, or the shared quota-id."""
    use = quota.use
    if use is None or (len(use.clients) <= 1 and not use.other_clients and not use.coarse):
        return "it"
    return "the quota-id"


def allowed(quota: QuotaWhy) -> str:
    """Return the limit of now in words, with the broker's part of it."""
    key = QuotaKey.parse(quota.key)
    if quota.use is not None and quota.use.split is not None:
        return f"{human(key, quota.use.quota)}, {rate_of(quota, quota.use.split)} of it here,"
    return human(key, quota.limit)


def rate_of(quota: QuotaWhy, value: float) -> str:
    """Return a rate in words; that of cluster-wide quotas and shares is in bytes."""
    key = QuotaKey.parse(quota.key)
    if key.is_divided:
        key = QuotaKey(key.type, QuotaUnit.BROKER_BPS)
    if key.units == QuotaUnit.PERCENT or key.units == QuotaUnit.PER_S:
        value = float(f"{value:.3g}")
    return human(key, value)

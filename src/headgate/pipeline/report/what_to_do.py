"""Say first what to do: who waits most, which quotas bind nobody; each with its command."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from headgate import words
from headgate.errors import InvalidQuota
from headgate.pipeline.answers.advice import HIDING_SHARE
from headgate.pipeline.report.model import Report, Tenant
from headgate.quota.entity import DEFAULT, QuotaEntity, parse_entity
from headgate.quota.key import KEYS, QuotaKey, format_value

MOST_STEPS: Final = 5
"""Steps of a group that are shown; the rest are counted."""
IDLE_SHARE: Final = 0.05
"""A limit of which the busiest window uses less than this is far above use."""
_SINGLE: Final = ("set", "keep", "wait")
"""Actions that a quota-id has one of in table ``recommend``."""
_PLURALS: Final = {"user": "users", "client-id": "clients", "ip": "ips"}


@dataclass(frozen=True, slots=True)
class Step:
    """
    One thing to do.

    Args:
        what: in a sentence.
        why: the figure behind it.
        command: what does it, for a shell.
        tenant: index of the quota-id whose page tells more.
    """

    what: str
    why: str
    command: str
    tenant: int | None = None


@dataclass(frozen=True, slots=True)
class Steps:
    """Steps of a kind, the most urgent first; ``more`` are in the section of the page named."""

    title: str
    lead: str
    section: str
    steps: Sequence[Step]
    more: int


def what_to_do(report: Report) -> list[Steps]:
    """Return the groups that have a step, each with at most MOST_STEPS."""
    waiting = [t for t in report.tenants if t.throttle_ms]
    hidden = [d for d in report.dead if d["hidden_by"]]
    unused = [d for d in report.dead if not d["hidden_by"]]
    idle = [t for t in report.tenants if t.quota and t.peak < IDLE_SHARE * t.quota]
    idle.sort(key=lambda t: (t.utilisation or 0.0, -(t.quota or 0.0), t.index))
    groups = (
        ("Throttled most", "By the time that they were told to wait.", "throttling",
         [_relieve(t, report) for t in waiting]),
        ("Quotas that nobody uses", "No client of this period matched them. Keep those that are "
         "meant for clients to come.", "sharing", [_remove(d, _unused(d)) for d in unused]),
        ("Quotas that others hide", "Each client that they match has a more specific quota, so "
         "they bind nobody.", "sharing", [_remove(d, _hidden(d)) for d in hidden]),
        ("Limits far above use", f"The busiest {report.window_s} s used less than "
         f"{words.share(IDLE_SHARE)} of them, so they hold nobody.", "tenants",
         [_lower(t, report) for t in idle]),
    )  # fmt: skip
    found = []
    told: set[str] = set()
    for title, lead, section, made in groups:
        steps = [step for step in made if step is not None and not _is_told(step, told)]
        if steps:
            shown = steps[:MOST_STEPS]
            found.append(Steps(title, lead, section, shown, len(steps) - len(shown)))
    return found


def _is_told(step: Step, told: set[str]) -> bool:
    """Say whether a step's command was told before; remember it."""
    known = step.command in told
    if step.tenant is None or " recommend " not in step.command:
        told.add(step.command)
    return known


def alter(entity: QuotaEntity, key: QuotaKey, value: float | None) -> str | None:
    """
    Return the command that sets or removes a quota; None where the key isn't for such an entity.

    Args:
        entity: whose quota.
        key: which.
        value: to set, in the key's unit; None removes it.
    """
    spec = KEYS.get(key)
    if spec is None or entity.shape not in spec.shapes:
        return None
    found = ["headgate", "kafka-configs", "--alter"]
    if value is None:
        found += ["--delete-config", key.name]
    else:
        whole = value if spec.value_type == "DOUBLE" else float(math.ceil(value))
        found += ["--add-config", f"{key.name}={format_value(whole)}"]
    for entity_type, name in entity:
        found += ["--entity-type", _PLURALS[entity_type]]
        # With the sign, for a name may look like a flag.
        found.append("--entity-default" if name is DEFAULT else f"--entity-name={name}")
    return shlex.join(found)


def _relieve(tenant: Tenant, report: Report) -> Step | None:
    """Raise the limit of a throttled quota-id, or look for one."""
    limit = _limit_now(tenant, report)
    if not tenant.quota or not limit:
        return None
    why = (
        f"Told to wait {words.duration(tenant.throttle_ms)} in {words.count(tenant.throttled)} "
        f"requests, {words.share(tenant.held)} of its time. Its busiest {report.window_s} s used "
        f"{words.share(tenant.peak / limit)} of {words.amount(limit, tenant.unit)}."
    )
    is_hidden = tenant.held > HIDING_SHARE
    if tenant.demand is not None:
        why += f" {tenant.demand.sentence}"
    elif is_hidden:
        why += " What it would have sent isn't seen: look again after the change."
    split = _advised(tenant, "split")
    if split is not None:
        entity = parse_entity(split["entity"])
        what = f"Give {entity} a {tenant.what} quota of its own: {_of(split)}"
        return _step(what, f"{why} {_sentence(split['reason'])}", entity, tenant,
                     split["recommended"])  # fmt: skip
    own, now = tenant.entity, words.amount(limit, tenant.unit)
    raised = _advised(tenant, "set")
    if raised is not None and raised["recommended"] > limit:
        what = f"Raise the {tenant.what} quota of {own} from {now} to {_of(raised)}"
        return _step(what, why, own, tenant, raised["recommended"])
    if is_hidden:
        what = f"Try twice the {tenant.what} quota for {own}, {now} now"
        return _step(what, why, own, tenant, 2 * limit)
    if tenant.advice:  # its limit fits what it does
        return None
    return Step(
        f"Look for a {tenant.what} quota for {own} that fits, {now} now",
        why,
        f"headgate recommend --requests PATH --quotas FILE --out {shlex.quote(report.place)}",
        tenant.index,
    )


def _lower(tenant: Tenant, report: Report) -> Step | None:
    """Return a step to lower a limit; None: no lower one is advised."""
    advice, limit = _advised(tenant, "set"), _limit_now(tenant, report)
    if not limit or advice is None or advice["recommended"] >= limit:
        return None
    now = words.amount(limit, tenant.unit)
    return _step(
        f"Lower the {tenant.what} quota of {advice['entity']} from {now} to {_of(advice)}",
        f"Its busiest {report.window_s} s used {words.amount(tenant.peak, tenant.unit)}, "
        f"{words.share(tenant.peak / limit)} of it.",
        tenant.entity,
        tenant,
        advice["recommended"],
    )


def _remove(dead: dict[str, Any], why: str) -> Step | None:
    """Remove a quota that binds nobody; None where requests can't tell whether it does."""
    key = QuotaKey.parse(dead["quota_key"])
    try:
        entity = parse_entity(dead["source"])
    except InvalidQuota:
        return None
    # Limits on addresses bind connections, which requests don't match.
    command = None if entity.ip is not None else alter(entity, key, None)
    if command is None:
        return None
    return Step(f"Remove the {words.what_of(key.name)} quota of {entity}", why, command)


def _unused(dead: dict[str, Any]) -> str:
    return f"Its {_value(dead)} bound no request of this period."


def _hidden(dead: dict[str, Any]) -> str:
    by = list(dead["hidden_by"])
    more = f" and {words.count(len(by) - 3)} more" if len(by) > 3 else ""
    clients = dead["hidden_clients"]
    whose = "The one client that it matches is" if clients == 1 else (
        f"All {words.count(clients)} clients that it matches are"
    )  # fmt: skip
    return f"{whose} bound by {', '.join(by[:3])}{more} in place of its {_value(dead)}."


def _value(dead: dict[str, Any]) -> str:
    key = QuotaKey.parse(dead["quota_key"])
    return words.amount(dead["value"], words.unit_of(key.name))


def _limit_now(tenant: Tenant, report: Report) -> float | None:
    """
    Return the limit in force, as table ``recommend`` knows it; else the last one of the period.

    None where that table says that nobody is bound by this quota-id any more.
    """
    own = str(tenant.entity)
    single = [
        a for a in tenant.advice
        if a["action"] == "split" or (a["entity"] == own and a["action"] in _SINGLE)
    ]  # fmt: skip
    if single:
        current: float | None = single[0]["current"]
        return current
    advised = any(
        a["quota_type"] == tenant.quota_type and a["action"] in _SINGLE
        for a in report.recommendations
    )
    return None if advised else tenant.quota


def _advised(tenant: Tenant, action: str) -> dict[str, Any] | None:
    """Return the advice of a kind for this quota-id's own entity, or for one of its clients."""
    own = str(tenant.entity)
    found: Iterable[dict[str, Any]] = (
        a for a in tenant.advice
        if a["action"] == action and a["recommended"]
        and (action == "split" or a["entity"] == own)
    )  # fmt: skip
    return next(iter(found), None)


def _of(advice: dict[str, Any]) -> str:
    return words.amount(advice["recommended"], words.unit_of(advice["quota_type"]))


def _sentence(reason: str) -> str:
    return reason[:1].upper() + reason[1:] + "."


def _step(what: str, why: str, entity: QuotaEntity, tenant: Tenant, value: float) -> Step | None:
    command = alter(entity, QuotaKey.parse(tenant.quota_type), value)
    return None if command is None else Step(what, why, command, tenant.index)

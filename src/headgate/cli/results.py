"""
What commands print for ``--json``: one class per kind of result.
"""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec
from msgspec import UNSET, UnsetType

from headgate.cli import exit_codes
from headgate.java_text import Number

Entity = dict[str, str | None]
"""An entity's types and names as they are; null is the default."""


class Error(msgspec.Struct):
    """
    Why a command failed.

    Args:
        code: Kafka's error code; null where Kafka has none.
        name: Kafka's name of the code, the system's of an errno, or Headgate's own.
        message: a sentence.
        where: the file or entity that it is about, if it is about one.
    """

    code: int | None
    name: str
    message: str
    where: str | UnsetType = UNSET


class Result(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """
    What all results have.

    Args:
        error: why the command failed; absent if it didn't.

    Attributes:
        finding: the member that isn't empty, or 0, where something differs or was found.
    """

    finding: ClassVar[str] = ""
    error: Error | UnsetType = UNSET

    @property
    def status(self) -> int:
        """The exit status of this result."""
        if self.error is not UNSET:
            return exit_codes.FAILED
        found = self.finding and getattr(self, self.finding)
        return exit_codes.FOUND if found else exit_codes.DONE


class Failed(Result):
    """A command that failed or was refused before it had a result."""

    error: Error


# --- quotas


class Refusal(msgspec.Struct):
    """
    An entity whose change is refused.

    Args:
        entity: which.
        error: the reason, a sentence.
        code: Kafka's error code; null where Kafka has none.
        name: the code's name.
    """

    entity: Entity
    error: str
    code: int | None
    name: str


class Change(msgspec.Struct):
    """A value that a plan sets, changes or removes; null is no value."""

    entity: Entity
    key: str
    before: Number
    after: Number


class Effective(msgspec.Struct):
    """What a client gets of one key, and from which entity."""

    value: Number
    source: Entity | str | None


class EffectiveChange(msgspec.Struct):
    """How a plan changes what one client gets."""

    client: Entity
    key: str
    before: Effective
    after: Effective


class Planned(Result, kw_only=True):
    """
    A plan.

    Args:
        changes: what it does.
        unmentioned: values that the file doesn't mention and that stay.
        effective: what it changes for clients.
        refused: entities whose change would be refused; if there are any, nothing is changed.
        notes: what the file leaves out, and names that don't mean what they look like.
        out: the file that the plan was written to, if it was.
    """

    finding = "changes"
    changes: list[Change]
    unmentioned: list[Change]
    effective: list[EffectiveChange]
    refused: list[Refusal]
    notes: list[str]
    out: str | UnsetType = UNSET


class Applied(Planned, kw_only=True):
    """
    A plan that was applied, or validated.

    Args:
        validate_only: the plan was only checked.
        changed: how many entities were changed.
    """

    finding = ""
    validate_only: bool
    changed: int = 0


class Exported(Result):
    """
    Quotas as a quotas file, or as another tool's.

    Args:
        entities: how many were written.
        out: the file that was written; null: none.
        quotas: the file's list; null where a file was written.
    """

    entities: int
    out: str | None
    quotas: list[dict[str, Any]] | None


class Imported(Exported, kw_only=True):
    """
    Another tool's quotas as a quotas file.

    Args:
        of: the format that was read.
        notes: what the file leaves out, and names that don't mean what they look like.
    """

    of: str
    notes: list[str]


class QuotaChange(msgspec.Struct, tag_field="kind", tag="change"):
    """One change of one key, from the history."""

    t_ms: int
    time: str
    who: str
    tool: str
    entity: Entity
    key: str
    before: Number
    after: Number
    change: str
    message: str


class ListedNow(msgspec.Struct):
    """
    The use of a quota at this moment.

    Args:
        matched: how many quota-ids are charged to it.
        rate: of the fullest quota-id, at the broker where it has the least room; null: nobody's.
        limit: what that rate is compared with.
        waiting: connections that wait by it.
        waiting_until_ms: when the last of them goes on, epoch ms; null: none waits.
        throttled: whether one waits, or was told to a moment ago.
    """

    matched: int
    rate: Number
    limit: Number
    waiting: int
    waiting_until_ms: int | None
    throttled: bool


class ListedQuota(msgspec.Struct):
    """
    A configured quota.

    Args:
        entity: what it is set for.
        key: its key.
        value: its value.
        now: its use; null: that isn't known.
        last: its latest change; null: no history has one.
        until_ms: when it ends, epoch ms; null: it stays.
        then: the value that returns then; null: none.
    """

    entity: Entity
    key: str
    value: Number
    now: ListedNow | None
    last: QuotaChange | None
    until_ms: int | None
    then: Number


class QuotasListed(Result):
    """
    `headgate quotas`: what was found, in the order that was asked for.

    Args:
        quotas: those that are shown.
        found: how many match; more than are shown with ``--limit``.
        notes: what isn't known, and why.
    """

    quotas: list[ListedQuota]
    found: int
    notes: list[str]


class Audited(msgspec.Struct, tag_field="kind", tag="audit"):
    """An attempt that was refused, or a change of something else than quotas."""

    t_ms: int
    time: str
    who: str
    tool: str
    action: str
    outcome: str
    subject: str
    detail: str


class History(Result):
    """Who changed what, oldest first."""

    history: list[QuotaChange | Audited]


class StoreShown(Result):
    """
    A store's identity; nulls if it has none yet.

    Args:
        id: the store's.
        revision: grows with every change.
        succeeds: the stores it took over from, latest first: id and revision.
    """

    id: str | None
    revision: int | None
    succeeds: list[tuple[str, int]]


class StoreAccepted(StoreShown):
    """The store that a gateway will use; ``config`` is that gateway's file."""

    config: str


class StoreCopied(Result):
    """A store that was copied to another one; the old one's id and revision are null if unknown."""

    entities: int
    source: str
    target: str
    id: str | None
    revision: int | None


class Examined(Result):
    """
    The findings of `headgate doctor`.

    Args:
        found: a sentence for each thing that is wrong or odd.
        unseen: what couldn't be looked at, and why.
        seen: what was.
    """

    finding = "found"
    found: list[str]
    unseen: list[str]
    seen: list[str]


class ListedEntity(msgspec.Struct):
    """An entity and its quotas by key."""

    entity: Entity
    quotas: dict[str, Number]


class Listed(Result):
    """`kafka-quotas --list`: entities in the order of KIP-546."""

    entities: list[ListedEntity]


class Described(msgspec.Struct):
    """
    The value that applies to a client.

    Args:
        key: the quota's key.
        value: its value.
        source: the entity it comes from, or a setting.
        overridden: what it hides, with ``--include-overrides``.
        note: a condition of its enforcement, if there is one.
    """

    key: str
    value: Number
    source: Entity | str
    overridden: list[Effective] | UnsetType = UNSET
    note: str | UnsetType = UNSET


class DescribedAll(Result):
    """`kafka-quotas --describe`: what applies to an entity."""

    quotas: list[Described]


class Altered(Result):
    """`kafka-quotas --alter`: what was set, and removed (null)."""

    entity: Entity
    ops: dict[str, Number]
    validate_only: bool


# --- the gateway and the pipeline


class Checked(Result):
    """`headgate serve --check`: the file, and warnings about it; mistakes are in ``error``."""

    config: str
    warnings: list[str]


class Figure(msgspec.Struct):
    """One figure of a run, as in table ``summary``."""

    name: str
    value: Number
    text: str | None
    unit: str | None
    note: str


class Tables(Result):
    """
    What a pipeline command made.

    Args:
        command: its name.
        tables: each table's name, and the place where this run wrote it.
        figures: the run's, as in table ``summary``.
    """

    command: str
    tables: dict[str, str]
    figures: list[Figure]


class Storms(Tables):
    """The tables of `headgate storms`, and how many storms are in them."""

    finding = "storms"
    storms: int


class Splits(Result):
    """How many rounds `headgate splits` wrote to its topic, for which brokers."""

    topic: str
    brokers: list[int]
    rounds: int


class Drawn(Result):
    """
    A report.

    Args:
        path: the page.
        bytes: its size.
        quota_ids: how many it shows.
        summed_up: how many more one line sums up.
        bad_lines: lines of input that couldn't be read.
    """

    path: str
    bytes: int
    quota_ids: int
    summed_up: int
    bad_lines: int


class Written(Result):
    """Files that were written."""

    files: list[str]

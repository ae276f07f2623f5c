"""
Whether what writers were told can be true of one store that does one thing after the other.

Pure. An operation has a moment of its own between its beginning and its end (Herlihy and Wing:
linearizability). One whose outcome is unknown may have happened at any moment after its
beginning, or never. The search is that of Wing and Gong, with Lowe's memory of what was tried.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

#: Values of one entity, by key.
Values = Mapping[str, float]
#: An entity that isn't there has no values.
NOTHING: Values = {}
#: Places that a search looks at before it gives up: a sound log of a thousand takes a few thousand.
MOST_PLACES = 500_000
FOREVER = 1 << 62


class Operation(NamedTuple):
    """
    One call of a store.

    Args:
        id: unique; it stands in the history as the message.
        kind: ``alter``, ``read`` (of all quotas) or ``revision``.
        began: before the call, nanoseconds of a clock that all processes share.
        ended: after its answer; None where none came.
        outcome: ``ok``, ``refused`` (it surely did nothing) or ``unknown``.
        entity: of an ``alter``.
        ops: of an ``alter``: key to the new value, None removes. Every ``alter`` sets a value
            that no other one sets.
        at: the revision that an ``alter`` was based on.
        found: what a ``read`` saw, by entity.
        revision: what a ``revision`` saw.
    """

    id: str
    kind: Literal["alter", "read", "revision"]
    began: int
    ended: int | None
    outcome: Literal["ok", "refused", "unknown"]
    entity: str = ""
    ops: Mapping[str, float | None] = {}
    at: int | None = None
    found: Mapping[str, Values] = {}
    revision: int = 0


class Entry(NamedTuple):
    """One entry of a store's history; ``message`` is the id of the operation that made it."""

    message: str
    entity: str
    key: str
    before: float | None
    after: float | None


class Audit(NamedTuple):
    """
    What the store says when all is over.

    Args:
        entries: its history, oldest first.
        final: its quotas.
        first_revision: before the first operation.
        revision: now.
    """

    entries: Sequence[Entry]
    final: Mapping[str, Values]
    first_revision: int
    revision: int


# --- the search


class Step(NamedTuple):
    """
    An operation as the search sees it.

    Args:
        name: for messages.
        began: when.
        ended: when; ``FOREVER`` where it may have happened at any time, or never.
        what: given to ``apply``.
        reads: it changes nothing.
    """

    name: str
    began: int
    ended: int
    what: Any
    reads: bool


Apply = Callable[[Any, Any], Hashable | None]


def find_order(steps: Iterable[Step], first: Hashable, apply: Apply) -> list[str] | None:
    """
    Return an order in which everything could have happened one after the other, or None.

    Args:
        steps: the operations.
        first: the state before all of them.
        apply: returns the state after an operation, or None where it can't have been answered so.

    Raises:
        TooHard: neither was found in ``MOST_PLACES``.
    """
    left = sorted(steps, key=lambda step: step.began)
    must = sum(1 << n for n, step in enumerate(left) if step.ended != FOREVER)
    tried: set[tuple[int, Hashable]] = set()
    # Each frame: which have happened, the state, and which to try next.
    path: list[int] = []
    done, state = _take_reads(left, 0, first, apply, path)
    frames = [(done, state, iter(_next(left, done)), len(path))]
    while frames:
        done, state, choices, length = frames[-1]
        if done & must == must:
            return [left[n].name for n in path]
        del path[length:]
        for n in choices:
            after = apply(state, left[n].what)
            if after is None:
                continue
            path.append(n)
            now, after = _take_reads(left, done | 1 << n, after, apply, path)
            if (now, after) not in tried:
                tried.add((now, after))
                if len(tried) > MOST_PLACES:
                    raise TooHard(f"no order of {len(left)} operations in {MOST_PLACES} places")
                frames.append((now, after, iter(_next(left, now)), len(path)))
                break
            del path[length:]
        else:
            frames.pop()
    return None


class TooHard(AssertionError):
    """The search was given up: that is no proof of anything."""


def _candidates(left: Sequence[Step], done: int) -> list[int]:
    """Return which operations can be next: those that began before any other one left ended."""
    found = []
    soonest = FOREVER
    first = (~done & done + 1).bit_length() - 1  # that hasn't happened
    for n in range(first, len(left)):
        step = left[n]
        if step.began > soonest:
            break
        if not done >> n & 1:
            found.append(n)
            soonest = min(soonest, step.ended)
    return found


def _next(left: Sequence[Step], done: int) -> list[int]:
    """Return what to try, the most urgent first; of equal ones that may never happen, only one."""
    found = sorted(_candidates(left, done), key=lambda n: left[n].ended)
    seen: list[Any] = []
    chosen = []
    for n in found:
        if left[n].ended == FOREVER:
            if left[n].what in seen:
                continue
            seen.append(left[n].what)
        chosen.append(n)
    return chosen


def _take_reads(
    left: Sequence[Step], done: int, state: Hashable, apply: Apply, path: list[int]
) -> tuple[int, Hashable]:
    """Let everything happen that changes nothing and fits: waiting can't make it fit better."""
    again = True
    while again:
        again = False
        for n in _candidates(left, done):
            if left[n].reads and apply(state, left[n].what) is not None:
                done |= 1 << n
                path.append(n)
                again = True
    return done, state


# --- one entity: a register of several keys


def _apply_entity(state: Any, what: tuple[str, Any]) -> Hashable | None:
    verb, values = what
    if verb == "read":
        return state if state == values else None
    new = {**dict(state), **dict(values)}
    return frozenset((key, value) for key, value in new.items() if value is not None)


def seen_by(operations: Sequence[Operation]) -> dict[str, int]:
    """Return by when operations of unknown outcome had happened, because a read saw their value."""
    seen: dict[tuple[str, str, float], int] = {}
    for read in operations:
        if read.kind == "read" and read.outcome == "ok" and read.ended is not None:
            for entity, values in read.found.items():
                for key, value in values.items():
                    at = entity, key, value
                    seen[at] = min(seen.get(at, FOREVER), read.ended)
    found = {}
    for alter in operations:
        moments = [
            seen[alter.entity, key, value]
            for key, value in alter.ops.items()
            if value is not None and (alter.entity, key, value) in seen
        ]
        if moments:
            found[alter.id] = min(moments)
    return found


def check_entities(operations: Sequence[Operation]) -> list[str]:
    """Return which entities' operations have no order that explains every answer."""
    seen = seen_by(operations)
    wrong = []
    for entity in sorted({o.entity for o in operations if o.kind == "alter"}):
        steps = []
        for o in operations:
            if o.kind == "alter" and o.entity == entity and o.outcome != "refused":
                ended = seen.get(o.id, FOREVER) if o.outcome == "unknown" else o.ended
                assert ended is not None
                what = ("alter", tuple(o.ops.items()))
                steps.append(Step(o.id, o.began, ended, what, reads=False))
            elif o.kind == "read" and o.outcome == "ok":
                assert o.ended is not None
                what = ("read", frozenset(o.found.get(entity, NOTHING).items()))
                steps.append(Step(o.id, o.began, o.ended, what, reads=True))
        if find_order(steps, frozenset(), _apply_entity) is None:
            wrong.append(f"not linearizable: no order explains the answers about {entity}")
    return wrong


# --- the revision: a counter that every change makes grow by one


def _apply_revision(state: Any, what: tuple[str, int | None]) -> Hashable | None:
    verb, number = what
    if verb == "grow":
        return state + 1 if number in (None, state) else None
    if verb == "refused":
        return state if state != number else None
    return state if state == number else None


def check_revisions(operations: Sequence[Operation], first: int) -> list[str]:
    """Return whether the answers about revisions have no order that explains them."""
    seen = seen_by(operations)
    steps = []
    for o in operations:
        if o.kind == "alter" and o.outcome != "refused":
            ended = seen.get(o.id, FOREVER) if o.outcome == "unknown" else o.ended
            assert ended is not None
            steps.append(Step(o.id, o.began, ended, ("grow", o.at), reads=False))
        elif o.kind == "alter" and o.at is not None:
            assert o.ended is not None
            steps.append(Step(o.id, o.began, o.ended, ("refused", o.at), reads=True))
        elif o.kind == "revision" and o.outcome == "ok":
            assert o.ended is not None
            steps.append(Step(o.id, o.began, o.ended, ("is", o.revision), reads=True))
    if find_order(steps, first, _apply_revision) is None:
        return ["not linearizable: no order explains the answers about the revision"]
    return []


# --- the history


def check_audit(operations: Sequence[Operation], audit: Audit) -> list[str]:
    """Return where the store's history doesn't agree with what writers were told."""
    by_id = {o.id: o for o in operations}
    return [
        *_check_entries(by_id, audit.entries),
        *_check_chain(audit),
        *_check_times(by_id, audit.entries),
        *_check_reads(operations, audit.entries),
        *_check_counts(by_id, audit),
    ]


def _check_entries(by_id: Mapping[str, Operation], entries: Sequence[Entry]) -> list[str]:
    """Each acknowledged change stands once, a refused one never, an unknown one once or never."""
    wrong = []
    told: dict[str, list[Entry]] = defaultdict(list)
    for entry in entries:
        if entry.message in by_id:
            told[entry.message].append(entry)
        else:
            wrong.append(f"unasked: nobody asked for {entry}")
    for o in by_id.values():
        if o.kind != "alter":
            continue
        own = told[o.id]
        keys = [entry.key for entry in own]
        if len(set(keys)) != len(keys):
            wrong.append(f"twice: {o.id} ({o.outcome}) stands more than once: {own}")
        if any(e.entity != o.entity or o.ops.get(e.key, 0) != e.after for e in own):
            wrong.append(f"other: {o.id} asked for {dict(o.ops)}, the history has {own}")
        if o.outcome == "refused" and own:
            wrong.append(f"refused: {o.id} was refused, and stands in the history: {own}")
        # Removing what wasn't set is no change; a value that nobody else sets always is one.
        missing = {key for key, value in o.ops.items() if value is not None} - set(keys)
        if missing and (o.outcome == "ok" or own):
            wrong.append(f"missing: {o.id} ({o.outcome}) lacks {sorted(missing)} in the history")
    return wrong


def _check_chain(audit: Audit) -> list[str]:
    """Every entry begins where the one before ended, and the last one is what is in force."""
    wrong = []
    last: dict[tuple[str, str], float] = {}
    for entry in audit.entries:
        at = entry.entity, entry.key
        if entry.before != last.get(at):
            wrong.append(f"chain: before {entry} it was {last.get(at)}")
        if entry.after is None:
            last.pop(at, None)
        else:
            last[at] = entry.after
    final = {(e, key): value for e, values in audit.final.items() for key, value in values.items()}
    if last != final:
        differ = sorted(set(last.items()) ^ set(final.items()))
        wrong.append(f"final: history and quotas differ in {differ}")
    return wrong


def _check_times(by_id: Mapping[str, Operation], entries: Sequence[Entry]) -> list[str]:
    """Nothing stands after what began when it had ended."""
    wrong = []
    latest: Operation | None = None
    for entry in entries:
        o = by_id.get(entry.message)
        if o is None:
            continue
        if latest is not None and o.outcome == "ok" and (o.ended or 0) < latest.began:
            wrong.append(f"order: {o.id} had ended before {latest.id} began, and stands after it")
        if latest is None or o.began > latest.began:
            latest = o
    return wrong


def _check_reads(operations: Sequence[Operation], entries: Sequence[Entry]) -> list[str]:
    """Each read is a state that the history passed through between its beginning and its end."""
    by_id = {o.id: o for o in operations}
    wrong = []
    for entity in sorted({entry.entity for entry in entries}):
        states, messages = states_of(entity, entries)
        makers = [by_id.get(message) for message in messages]
        for read in operations:
            if read.kind != "read" or read.outcome != "ok":
                continue
            assert read.ended is not None
            found = dict(read.found.get(entity, NOTHING))
            least = max(
                (n for n, o in enumerate(makers)
                 if o is not None and o.outcome == "ok" and (o.ended or 0) < read.began),
                default=0,
            )  # fmt: skip
            most = next(
                (n for n, o in enumerate(makers) if o is not None and o.began > read.ended),
                len(states),
            )
            if found not in states[least:most]:
                wrong.append(f"read: {read.id} saw {found} of {entity}, not of its time")
    return wrong


def states_of(entity: str, entries: Sequence[Entry]) -> tuple[list[Values], list[str]]:
    """Return the values that an entity passed through by the history, and what made each."""
    states: list[Values] = [NOTHING]
    makers = [""]
    for entry in entries:
        if entry.entity == entity:
            if makers[-1] != entry.message:  # several keys of one change come together
                states.append(states[-1])
                makers.append(entry.message)
            new = {key: value for key, value in states[-1].items() if key != entry.key}
            states[-1] = new if entry.after is None else {**new, entry.key: entry.after}
    return states, makers


def _check_counts(by_id: Mapping[str, Operation], audit: Audit) -> list[str]:
    """The revision counts the changes, and who based one on a revision changed that one."""
    wrong = []
    changes = list(dict.fromkeys(entry.message for entry in audit.entries))
    for number, id_ in enumerate(changes, audit.first_revision):
        o = by_id.get(id_)
        if o is not None and o.at is not None and o.at != number:
            wrong.append(f"revision: {id_} was based on {o.at}, and made at {number}")
    if audit.revision - audit.first_revision != len(changes):
        wrong.append(
            f"revision: {len(changes)} changes took it from {audit.first_revision} to "
            f"{audit.revision}"
        )
    return wrong


def check_watch(events: Sequence[Mapping[str, Values]], audit: Audit) -> list[str]:
    """
    Return where what a watch was told isn't the history's order, or doesn't end at its end.

    Args:
        events: the quotas with each call, in order; changes close together may come as one.
        audit: what the store says.
    """
    if not events:
        return ["watch: it was never called"]
    wrong = []
    for entity in sorted({entry.entity for entry in audit.entries}):
        states, _ = states_of(entity, audit.entries)
        place = 0
        for event in events:
            found = dict(event.get(entity, NOTHING))
            place = next((n for n in range(place, len(states)) if states[n] == found), -1)
            if place < 0:
                wrong.append(f"watch: {found} of {entity} isn't in the history's order")
                break
    if events[-1] != audit.final:
        wrong.append(f"watch: it ended with {events[-1]}, the quotas are {audit.final}")
    return wrong


def check(
    operations: Sequence[Operation],
    audit: Audit,
    watches: Iterable[Sequence[Mapping[str, Values]]] = (),
) -> list[str]:
    """Return everything that is wrong; each line begins with the law that it breaks."""
    wrong = check_audit(operations, audit)
    for events in watches:
        wrong += check_watch(events, audit)
    return [*wrong, *check_entities(operations), *check_revisions(operations, audit.first_revision)]

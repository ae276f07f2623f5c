"""
Group whole arrays of events by code: numbering, adding up and a stable counting sort, in Numba.

Packing does this to every event, each function in one pass. Codes are small and dense, so nothing
is compared or sorted by value.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from headgate.kernel.compiled import compiled
from headgate.kernel.states import Floats, Ints

# Up to this many codes a plain table (16 MB) numbers them; beyond, a hashed one.
MOST_CODES = 1 << 22
_NONE = np.empty(0, np.int64)


def numbered(codes: NDArray[Any], space: int) -> tuple[Ints, NDArray[np.int32]]:
    """
    Number codes in the order they're first seen.

    Args:
        codes: from 0.
        space: how many codes there may be.

    Returns:
        (index of each distinct code's first event, dense number per event).
    """
    out = np.empty(len(codes), np.int32)
    first = np.empty(min(space, len(codes)), np.int64)
    wide = np.ascontiguousarray(codes, np.int64)
    if space <= MOST_CODES:
        count = _number(wide, np.full(space, -1, np.int32), first, out)
    else:
        room = 1 << max(4, (2 * len(codes) - 1).bit_length())
        count = _number_hashed(wide, np.full(room, -1, np.int32), first, out)
    return first[:count], out


@compiled
def _number(codes, table, first, out):
    count = np.int32(0)
    for i in range(len(codes)):
        number = table[codes[i]]
        if number < 0:
            number = count
            table[codes[i]] = number
            first[number] = i
            count += np.int32(1)
        out[i] = number
    return count


@compiled
def _number_hashed(codes, table, first, out):
    mask = len(table) - 1
    count = np.int32(0)
    for i in range(len(codes)):
        code = codes[i]
        at = ((code ^ (code >> 29)) * np.int64(0x9E3779B97F4A7C1)) >> 20 & mask
        number = table[at]
        while number >= 0 and codes[first[number]] != code:
            at = (at + 1) & mask
            number = table[at]
        if number < 0:
            number = count
            table[at] = number
            first[number] = i
            count += np.int32(1)
        out[i] = number
    return count


# Columns of what ``add_up`` fills.
REQUESTS, BYTES, THROTTLED, TOLD_MS, MOST_MS, FIRST_MS, LAST_MS = range(7)
_LATE = np.int64(1 << 62)


def no_sums(count: int) -> Ints:
    """Return ``count`` rows for ``add_up`` to fill."""
    sums = np.zeros((count, 7), np.int64)
    sums[:, FIRST_MS], sums[:, LAST_MS] = _LATE, -_LATE
    return sums


def add_up(
    sums: Ints,
    code: NDArray[np.int32],
    t_ms: Ints,
    amount: Ints,
    told_ms: Ints | None,
    is_request: NDArray[np.bool_] | None,
) -> None:
    """
    Add events up per code, in place.

    Args:
        sums: requests, bytes, throttled, told ms, most told ms, first and last ms, by code.
        code: per event.
        t_ms: time per event.
        amount: bytes per event.
        told_ms: throttle time per event; None: none.
        is_request: whether the event counts as a request; None: all do.
    """
    told = _NONE if told_ms is None else told_ms
    ones = np.empty(0, np.bool_) if is_request is None else is_request
    _add_up(sums, code, t_ms, amount, told, ones)


@compiled
def _add_up(sums, code, t_ms, amount, told, ones):
    for i in range(len(code)):
        c = code[i]
        now = t_ms[i]
        sums[c, 0] += 1 if len(ones) == 0 else np.int64(ones[i])
        sums[c, 1] += amount[i]
        if len(told) and told[i] > 0:
            sums[c, 2] += 1
            sums[c, 3] += told[i]
            if told[i] > sums[c, 4]:
                sums[c, 4] = told[i]
        if now < sums[c, 5]:
            sums[c, 5] = now
        if now > sums[c, 6]:
            sums[c, 6] = now


def grouped(
    code: NDArray[np.int32], start: Ints, entry: Ints, groups: int
) -> tuple[Ints, NDArray[np.int32], NDArray[np.int32]]:
    """
    Sort events by group, stably; an event of a code with several groups goes to each.

    Args:
        code: per event.
        start: by code, where its entries begin; one more than there are codes.
        entry: by entry, the group.
        groups: how many groups there are.

    Returns:
        (events per group, index of each event in the new order, its entry).
    """
    counts = np.zeros(groups, np.int64)
    total = _count(code, start, entry, counts)
    order = np.empty(total, np.int32)
    entries = np.empty(total, np.int32)
    _place(code, start, entry, np.cumsum(counts) - counts, order, entries)
    return counts, order, entries


@compiled
def _count(code, start, entry, counts):
    total = 0
    for i in range(len(code)):
        for e in range(start[code[i]], start[code[i] + 1]):
            counts[entry[e]] += 1
            total += 1
    return total


@compiled
def _place(code, start, entry, at, order, entries):
    for i in range(len(code)):
        for e in range(start[code[i]], start[code[i] + 1]):
            place = at[entry[e]]
            order[place] = i
            entries[place] = e
            at[entry[e]] = place + 1


def taken(values: NDArray[Any], index: NDArray[Any]) -> NDArray[Any]:
    """Return ``values[index]``, unchecked: every index is known to be there."""
    out = np.empty(len(index), values.dtype)
    _take(np.ascontiguousarray(values), np.ascontiguousarray(index), out)
    return out


@compiled
def _take(values, index, out):
    for i in range(len(index)):
        out[i] = values[index[i]]


@compiled
def fits_uint32(values: Floats) -> bool:
    """Say whether every value is a whole number from 0 to 2^32 - 1."""
    wrong = 0
    for value in values:
        if not (0.0 <= value < 4294967296.0 and value == np.floor(value)):
            wrong += 1
    return wrong == 0


@compiled
def in_order(pos: Ints, counts: Ints) -> bool:
    """Say whether ``pos`` never falls within a group; ``counts`` are the groups' sizes."""
    at = 0
    for size in counts:
        for i in range(at + 1, at + size):
            if pos[i] < pos[i - 1]:
                return False
        at += size
    return True


def sorted_within(pos: Ints, counts: Ints) -> Ints:
    """Return the stable order by (group, ``pos``) of events that are grouped already."""
    group = np.repeat(np.arange(len(counts)), counts)
    low = int(pos.min())
    span = int(pos.max()) - low + 1
    if span * len(counts) < 1 << 62:
        # One key; nearly in order already, which is what this sort likes.
        return np.argsort(group * span + (pos - low), kind="stable")
    return np.lexsort((pos, group))

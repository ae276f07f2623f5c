"""
Finish scanned lines once their names are understood, and add them up by second, in machine code.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"
from __future__ import annotations

from typing import Final

import numpy as np

from headgate.kernel.compiled import compiled, inlined
from headgate.pipeline.logs.scan import columns
from headgate.pipeline.logs.scan.json_text import find_newline
from headgate.pipeline.logs.time_stamps import LATE_MS, OFF_MS

_END_MS: Final = 253_402_300_800_000.0  # the year 10000


@inlined
def _stamp(name, fraction_ms, values):
    """Return a stamp's epoch ms."""
    return fraction_ms if name < 0 else values[name] + fraction_ms


@compiled
def _agreed(first_ms, meaning, ints, doubles, values, shifts_ms, i):
    """
    Return what a line's two stamps give together, as ``StampReader.agreed``.

    Returns:
        Epoch ms; NaN where the line must be given back.
    """
    other = ints[columns.OTHER_STAMP_NAME, i]
    if not meaning >= 0.0:
        return np.nan
    code = np.int64(meaning)
    if other == columns.NO_NAME:
        return first_ms + shifts_ms[0] if code == columns.IS_SHIFTED else np.nan
    other_ms = _stamp(other, doubles[columns.OTHER_FRACTION, i], values)
    own_ms = first_ms
    if code & columns.SECOND_IS_OWN:
        own_ms, other_ms = other_ms, first_ms
    if code < columns.IS_COARSE:
        return own_ms
    if other_ms != other_ms:
        return np.nan
    if code & columns.IS_SHIFTED:
        least_ms, most_ms = shifts_ms
        own_ms += most_ms if other_ms - own_ms - most_ms >= OFF_MS[0] else least_ms
    if code & columns.IS_COARSE:
        late = other_ms - own_ms
        if 0.0 <= late < 1000.0 + LATE_MS:
            own_ms += min(late, 999.0)
    return own_ms


@compiled
def settle(base, ints, doubles, values, shifts_ms, given, found):
    """
    Finish lines taken by ``scan``: when they were charged, and whether to a client's quota.

    Args:
        base: the text's address.
        ints: columns of whole numbers; those of lines that stay move up.
        doubles: columns of doubles, likewise.
        values: by name's number: a stamp's epoch ms; what a frame means (``columns``); NaN for
            either if the line must be given back; an API's CLIENTS, BROKERS or BROKERS_FROM_4.
        shifts_ms: what the wrapper's zone adds, where it counts: the least and the most.
        given: lines given back; gets those with a NaN.
        found: TAKEN and GIVEN are corrected.
    """
    kept = 0
    back = found[columns.GIVEN]
    for i in range(found[columns.TAKEN]):
        meaning = values[ints[columns.FRAME_NAME, i]]
        logged_ms = _stamp(ints[columns.STAMP_NAME, i], doubles[columns.FRACTION, i], values)
        if meaning != 0.0:
            logged_ms = _agreed(logged_ms, meaning, ints, doubles, values, shifts_ms, i)
        charged_ms = logged_ms - doubles[columns.SEND, i] - doubles[columns.QUEUE, i]
        if not 0.0 <= charged_ms < _END_MS:  # also where it's NaN
            start = ints[columns.OFFSET, i]
            given[back, 0] = start
            given[back, 1] = find_newline(base, start)
            back += 1
            continue
        if kept != i:
            for c in range(columns.INTS):
                ints[c, kept] = ints[c, i]
            for c in range(columns.DOUBLES):
                doubles[c, kept] = doubles[c, i]
        doubles[columns.RECORD_MS, kept] = charged_ms
        charged = ints[columns.FORWARDED, kept] == 0 and ints[columns.FOLLOWER, kept] == 0
        if ints[columns.KIND, kept] == columns.OTHER:
            sender = values[ints[columns.API_NAME, kept]]
            if sender == columns.BROKERS or (
                sender == columns.BROKERS_FROM_4 and ints[columns.VERSION, kept] >= 4
            ):
                charged = False
        ints[columns.CHARGED, kept] = 1 if charged else 0
        kept += 1
    found[columns.TAKEN] = kept
    found[columns.GIVEN] = back


@compiled
def add_up(n, ints, doubles, broker, slots, keys, sums, amounts, count):
    """
    Add settled lines to the sums of their groups.

    Args:
        n: how many lines.
        ints: their columns of whole numbers.
        doubles: their columns of doubles.
        broker: the id of the broker that wrote them, -1 if unknown.
        slots: hash table of groups, a power of two, at most half full.
        keys: KEYS columns by group.
        sums: SUMS columns by group.
        amounts: by group, what was charged in the quota's own unit.
        count: how many groups there are.

    Returns:
        How many groups there are now.
    """
    mask = len(slots) - 1
    for i in range(n):
        kind = ints[columns.KIND, i]
        who = ints[columns.LISTENER_NAME, i] << columns.NAME_BITS | ints[columns.PRINCIPAL_NAME, i]
        who = who << columns.NAME_BITS | ints[columns.CLIENT_NAME, i]
        who = who << 3 | kind << 1 | ints[columns.CHARGED, i]
        second = np.int64(doubles[columns.RECORD_MS, i] // 1000.0)
        h = (who ^ (second * -7046029254386353131)) * -4417276706812531889 + broker
        h ^= h >> 32
        slot = h & mask
        while True:
            group = slots[slot] - 1
            if group < 0:
                group = count
                slots[slot] = group + 1
                keys[group, columns.WHO] = who
                keys[group, columns.SECOND] = second
                keys[group, columns.BROKER] = broker
                sums[group, :] = 0
                amounts[group] = 0.0
                count += 1
                break
            if (
                keys[group, columns.WHO] == who
                and keys[group, columns.SECOND] == second
                and keys[group, columns.BROKER] == broker
            ):
                break
            slot = (slot + 1) & mask
        local = doubles[columns.LOCAL, i]
        amount = local / 10.0 if kind == columns.OTHER else np.float64(ints[columns.BYTES, i])
        bytes_ = 0 if kind == columns.MUTATION else ints[columns.BYTES, i]
        told = ints[columns.THROTTLE, i]
        sums[group, columns.REQUESTS] += 1
        sums[group, columns.SUM_BYTES] += bytes_
        if ints[columns.EXACT, i] == 0:
            sums[group, columns.ESTIMATED] += bytes_
        sums[group, columns.NANOS] += np.int64(local * 1e6 + 0.5)
        amounts[group] += amount
        if told > 0:
            sums[group, columns.TOLD] += told
            sums[group, columns.THROTTLED] += 1
            if told > sums[group, columns.MOST_TOLD]:
                sums[group, columns.MOST_TOLD] = told
    return count

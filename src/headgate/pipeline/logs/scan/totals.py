"""
Finish scanned lines once their names are understood, and add them up by second, in machine code.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"
from __future__ import annotations

import numpy as np

from headgate.kernel.compiled import compiled
from headgate.pipeline.logs.scan.columns import (
    API_NAME,
    BROKER,
    BROKERS,
    BROKERS_FROM_4,
    BYTES,
    CHARGED,
    CLIENT_NAME,
    DOUBLES,
    ESTIMATED,
    EXACT,
    FOLLOWER,
    FORWARDED,
    FRACTION,
    GIVEN,
    INTS,
    KIND,
    LISTENER_NAME,
    LOCAL,
    MIDDLE_NAME,
    MOST_TOLD,
    MUTATION,
    NAME_BITS,
    NANOS,
    OFFSET,
    OTHER,
    PRINCIPAL_NAME,
    QUEUE,
    RECORD_MS,
    REQUESTS,
    SECOND,
    SEND,
    STAMP_NAME,
    SUM_BYTES,
    TAKEN,
    THROTTLE,
    THROTTLED,
    TOLD,
    VERSION,
    WHO,
)
from headgate.pipeline.logs.scan.json_text import find_newline


@compiled
def settle(base, ints, doubles, values, given, found):
    """
    Finish lines taken by ``scan``: when they were charged, and whether to a client's quota.

    Args:
        base: the text's address.
        ints: columns of whole numbers; those of lines that stay move up.
        doubles: columns of doubles, likewise.
        values: by name's number: a stamp's epoch ms, a middle's 0, NaN where it isn't one that
            ``scan`` may take; an API's CLIENTS, BROKERS or BROKERS_FROM_4.
        given: lines given back; gets those with a NaN.
        found: TAKEN and GIVEN are corrected.
    """
    kept = 0
    back = found[GIVEN]
    for i in range(found[TAKEN]):
        second = values[ints[STAMP_NAME, i]] + values[ints[MIDDLE_NAME, i]]
        charged_ms = second + doubles[FRACTION, i] - doubles[SEND, i] - doubles[QUEUE, i]
        if not charged_ms >= 0.0:  # also where it's NaN
            start = ints[OFFSET, i]
            given[back, 0] = start
            given[back, 1] = find_newline(base, start)
            back += 1
            continue
        if kept != i:
            for c in range(INTS):
                ints[c, kept] = ints[c, i]
            for c in range(DOUBLES):
                doubles[c, kept] = doubles[c, i]
        doubles[RECORD_MS, kept] = charged_ms
        charged = ints[FORWARDED, kept] == 0 and ints[FOLLOWER, kept] == 0
        if ints[KIND, kept] == OTHER:
            sender = values[ints[API_NAME, kept]]
            if sender == BROKERS or (sender == BROKERS_FROM_4 and ints[VERSION, kept] >= 4):
                charged = False
        ints[CHARGED, kept] = 1 if charged else 0
        kept += 1
    found[TAKEN] = kept
    found[GIVEN] = back


@compiled
def add_up(n, ints, doubles, broker, slots, keys, sums, amounts, count):
    """
    Add settled lines to the sums of their groups.

    Args:
        n: how many lines.
        ints: their columns of whole numbers.
        doubles: their columns of doubles.
        broker: who wrote them, -1 if unknown.
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
        kind = ints[KIND, i]
        who = ints[LISTENER_NAME, i] << NAME_BITS | ints[PRINCIPAL_NAME, i]
        who = who << NAME_BITS | ints[CLIENT_NAME, i]
        who = who << 3 | kind << 1 | ints[CHARGED, i]
        second = np.int64(doubles[RECORD_MS, i] // 1000.0)
        h = (who ^ (second * -7046029254386353131)) * -4417276706812531889 + broker
        h ^= h >> 32
        slot = h & mask
        while True:
            group = slots[slot] - 1
            if group < 0:
                group = count
                slots[slot] = group + 1
                keys[group, WHO] = who
                keys[group, SECOND] = second
                keys[group, BROKER] = broker
                sums[group, :] = 0
                amounts[group] = 0.0
                count += 1
                break
            if (
                keys[group, WHO] == who
                and keys[group, SECOND] == second
                and keys[group, BROKER] == broker
            ):
                break
            slot = (slot + 1) & mask
        local = doubles[LOCAL, i]
        amount = local / 10.0 if kind == OTHER else np.float64(ints[BYTES, i])
        bytes_ = 0 if kind == MUTATION else ints[BYTES, i]
        told = ints[THROTTLE, i]
        sums[group, REQUESTS] += 1
        sums[group, SUM_BYTES] += bytes_
        if ints[EXACT, i] == 0:
            sums[group, ESTIMATED] += bytes_
        sums[group, NANOS] += np.int64(local * 1e6 + 0.5)
        amounts[group] += amount
        if told > 0:
            sums[group, TOLD] += told
            sums[group, THROTTLED] += 1
            if told > sums[group, MOST_TOLD]:
                sums[group, MOST_TOLD] = told
    return count

"""
Find what contradicts itself in a sentence of `headgate why`, by its own figures.

The sentence is read as a person would: "allows 1 MB/s and it produced 1.5 MB/s" explains a wait,
"allows 1 MB/s and it produces 400 kB/s" doesn't.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_SIZES = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_VALUE = r"([0-9.]+(?:e[+-]?[0-9]+)?) ?(?:([kMGT]?)B/s|(%)|(/s)|(?:[a-z]+/s)|shares)(?: in all)?"
_NOW = r"(?:produces|fetches|uses|changes partitions at|takes producer ids at)"
_THEN = r"(?:produced|fetched|used|changed partitions at|took producer ids at)"
_ALLOWS = re.compile(rf"(?:allows|allowed|gone \((?:\S+: )?) ?{_VALUE}")
_PART = re.compile(rf", {_VALUE} of it here[,) ]")
_RATE_NOW = re.compile(rf"{_NOW} (?:up to )?{_VALUE}")
_RATE_THEN = re.compile(rf"{_THEN} (?:up to )?{_VALUE}")
_OWES = re.compile(r"owe[sd] ([0-9.]+)")
_LEFT = re.compile(rf"and {_VALUE} are left")
_CHANGED = re.compile(r"allowed ([^(]+?) \((.+?) now(?:, (raised|lowered))?")
_WAITS = re.compile(r" waits .+? more| waits for its turn")


def _number(groups: tuple[str | None, ...]) -> float:
    return float(groups[0] or 0) * _SIZES[groups[1] or ""]


def _first(pattern: re.Pattern[str], sentence: str) -> float | None:
    found = pattern.search(sentence)
    return None if found is None else _number(found.groups()[:2])


def contradictions(sentence: str) -> Iterator[str]:
    """Yield what is wrong with a sentence; nothing for one that holds together."""
    limit = _first(_PART, sentence) or _first(_ALLOWS, sentence)
    now, then = _first(_RATE_NOW, sentence), _first(_RATE_THEN, sentence)
    owes = _OWES.search(sentence)
    if owes is not None and float(owes[1]) <= 0:
        yield "it waits for a debt of nothing"
    if _WAITS.search(sentence):
        if now is not None:
            yield "the use of this moment doesn't explain a wait that was told before"
        if then is not None and limit is not None and then <= limit:
            yield "it waits, though its use was within the limit"
    will_wait = "waits with what it sends next" in sentence
    if will_wait and now is not None and limit is not None and now <= limit:
        yield "it will wait, though its use is within the limit"
    if "isn't held" in sentence and limit is not None:
        if now is not None and now > limit * 1.001:
            yield "it isn't held, though its use is beyond the limit"
        left = _first(_LEFT, sentence)
        if left is not None and abs(limit - (now or 0.0) - left) > 0.006 * limit:
            yield "what is left isn't the limit without the use"
        if "nothing is left" in sentence and (now or 0.0) < limit * 0.994:
            yield "nothing is left, though the use is below the limit"
    changed = _CHANGED.search(sentence)
    if changed is not None:
        if changed[1] == changed[2]:
            yield "the quota changed to what it was"
        before, after = (_first(re.compile(_VALUE), changed[part]) for part in (1, 2))
        is_more = before is not None and after is not None and after > before
        if changed[3] and is_more != (changed[3] == "raised"):
            yield "it was raised to less, or lowered to more"

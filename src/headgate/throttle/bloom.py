"""
Bloom filters for producer ids: never a false negative, a bounded rate of false positives.

Own code, because the core uses no third party and the sets are small: a first slice of 1,000 ids is
1.6 KB. A full slice is followed by one of twice its capacity at half its error, so the whole stays
below the configured rate however many ids come (Almeida et al., "Scalable Bloom Filters", 2007).
From ``most_ids`` on the last slice takes all further ids, and the error grows: more new ids are
then taken for known ones, and not charged. No known id is charged again. Hashes are arithmetic on
the id alone: the same in every process and on every machine.
"""

from __future__ import annotations

from math import ceil, log
from typing import Final

_MASK: Final = (1 << 64) - 1
_SPARE: Final = 1.05
"""Factor on the formula's bits, so that the measured error stays within the rate asked for."""


def mix64(value: int) -> int:
    """
    Scatter a number over 64 bits.

    Source: SplitMix64's finaliser (Steele, Lea, Flood 2014), constants of its variant 13.
    """
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def hash_pair(producer_id: int) -> tuple[int, int]:
    """Return two independent 64-bit hashes of an id, the second odd, for double hashing."""
    first = mix64((producer_id + 0x9E3779B97F4A7C15) & _MASK)
    return first, mix64((first + 0x9E3779B97F4A7C15) & _MASK) | 1


class BloomFilter:
    """
    A plain Bloom filter of fixed size.

    Args:
        capacity: ids it is sized for.
        error_rate: false positives among ids never added, once ``capacity`` ids were added.

    Source: k = log2(1/p) probes, rounded, and the m bits for which (1 - e^(-kn/m))^k = p (Bloom
    1970); probe i is h1 + i h2 (Kirsch, Mitzenmacher 2006).
    """

    __slots__ = ("_bits", "capacity", "count", "num_bits", "num_probes")

    def __init__(self, capacity: int, error_rate: float) -> None:
        if capacity < 1 or not 0.0 < error_rate < 1.0:
            raise ValueError(f"no filter for {capacity} ids with an error of {error_rate}")
        self.capacity = capacity
        probes = max(1, round(-log(error_rate) / log(2)))
        self.num_probes = probes
        bits = -probes * capacity / log(1.0 - error_rate ** (1.0 / probes))
        self.num_bits = ceil(_SPARE * bits)
        self._bits = bytearray((self.num_bits + 7) // 8)
        self.count = 0

    def add_hash(self, first: int, second: int) -> None:
        """Remember an id by its hashes."""
        bits, size = self._bits, self.num_bits
        at, step = first % size, second % size or 1
        for _ in range(self.num_probes):
            bits[at >> 3] |= 1 << (at & 7)
            at += step
            if at >= size:
                at -= size
        self.count += 1

    def has_hash(self, first: int, second: int) -> bool:
        """Whether an id of these hashes may have been added."""
        bits, size = self._bits, self.num_bits
        at, step = first % size, second % size or 1
        for _ in range(self.num_probes):
            if not bits[at >> 3] >> (at & 7) & 1:
                return False
            at += step
            if at >= size:
                at -= size
        return True


class ScalableBloomFilter:
    """
    Bloom filters that grow, within one error rate.

    Args:
        capacity: ids the first slice is sized for.
        error_rate: bound of the whole: slice i takes error_rate / 2^(i + 1).
        most_ids: from here on the last slice takes everything, and the error grows.
    """

    __slots__ = ("_error_rate", "_room", "_slices", "most_ids")

    def __init__(
        self, capacity: int = 1000, error_rate: float = 0.01, most_ids: int = 1 << 20
    ) -> None:
        self.most_ids = most_ids
        self._error_rate = error_rate
        self._slices = [BloomFilter(min(capacity, most_ids), error_rate / 2)]
        self._room = most_ids - self._slices[0].capacity

    def add(self, producer_id: int) -> None:
        """Remember an id; adding one twice fills the filter twice."""
        newest = self._slices[-1]
        if newest.count >= newest.capacity and self._room > 0:
            capacity = min(2 * newest.capacity, self._room)
            error_rate = self._error_rate / (1 << (len(self._slices) + 1))
            newest = BloomFilter(capacity, error_rate)
            self._slices.append(newest)
            self._room -= capacity
        newest.add_hash(*hash_pair(producer_id))

    def __contains__(self, producer_id: int) -> bool:
        """Whether an id was added (or, within the error rate, another that looks like it)."""
        first, second = hash_pair(producer_id)
        return any(part.has_hash(first, second) for part in reversed(self._slices))

"""Inputs made of others: bytes and words changed, left out, doubled, put in, mixed."""

from __future__ import annotations

import random
from collections.abc import Sequence

MOST_BYTES = 4096
ODD = (b"\xff" * 4, b"\x7f\xff\xff\xff", b"\0" * 4, b"\x80" * 4, b"\xff" * 8, b"\0", b"\n")


def mutated(
    real: Sequence[bytes], words: Sequence[bytes], chance: random.Random, most: int = MOST_BYTES
) -> bytes:
    """Return one of some inputs with up to seven changes."""
    data = bytearray(chance.choice(real))
    for _ in range(chance.randrange(8)):
        _change(data, real, words, chance)
    return bytes(data[:most])


def _change(
    data: bytearray, real: Sequence[bytes], words: Sequence[bytes], chance: random.Random
) -> None:
    at = chance.randrange(len(data) + 1)
    what = chance.randrange(9)
    if what <= 1 and data:
        data[at % len(data)] ^= chance.randrange(256)
    elif what == 2:
        data[at : at + chance.randrange(9)] = b""
    elif what == 3:
        data[at:at] = chance.randbytes(chance.randrange(9))
    elif what == 4:
        data[at : at + 4] = chance.choice(ODD)
    elif what == 5 and words:
        data[at:at] = chance.choice(words)
    elif what == 6:
        piece = data[at : at + chance.randrange(1, 33)]
        data[at:at] = piece * chance.choice((1, 1, 2, 40))
    elif what == 7:
        other = chance.choice(real)
        start = chance.randrange(len(other) + 1)
        data[at:] = other[start:]
    else:
        del data[at : at + chance.randrange(1, 65)]

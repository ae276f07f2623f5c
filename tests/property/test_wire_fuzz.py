"""The fuzzers' targets, with few examples; ``make fuzz`` runs them for millions."""

import random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fuzz_seeds import case, seeds
from fuzz_targets import TARGETS
from wire_oracles import QUICK


@pytest.mark.parametrize(
    ("name", "found"),
    [
        # A ControlledShutdown 0, whose first body bytes were taken for a client id's length.
        ("messages", case(7, 0) + b"\x01" + b"\xff\xfb\x00\x00"),
        # A Produce answer without a body: its correlation id was taken for the throttle.
        ("messages", case(0, 8) + b"\x10"),
        # Endpoints that are null.
        ("messages", case(0, 11) + b"\x10" + b"\x01" + bytes(4) + b"\x01\x00\x01\x00"),
        # A Produce request that ends inside its header.
        (
            "conversation",
            bytes.fromhex("0200410000150000001100030001000000050003617070ffffff033788000014"),
        ),
    ],
)
def test_what_fuzzing_found_stays_mended(name: str, found: bytes) -> None:
    TARGETS[name](found)


@pytest.mark.parametrize("name", sorted(TARGETS))
@QUICK
@example(data=b"")
@given(data=st.binary(max_size=600))
def test_any_bytes_are_read_or_refused(name: str, data: bytes) -> None:
    TARGETS[name](data)


@pytest.mark.parametrize("name", sorted(TARGETS))
@QUICK
@given(pick=st.integers(0, 10**6), flips=st.lists(st.integers(0, 10**6), max_size=6))
def test_real_messages_with_flipped_bytes_are_read_or_refused(
    name: str, pick: int, flips: list[int]
) -> None:
    real = seeds(name)
    data = bytearray(real[pick % len(real)])
    for flip in flips:
        if data:
            data[flip % len(data)] ^= random.Random(flip).randrange(256)
    TARGETS[name](bytes(data))

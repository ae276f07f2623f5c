"""Any bytes for the fuzzers' quicker targets; ``make fuzz`` runs all of them for millions."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fuzzing.real_messages import case
from fuzzing.table import load
from kit.wire_oracles import QUICK

NAMES = ("messages", "sasl", "certificates", "conversation", "crowd", "quotas files", "splits")


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
    load(name).run(found)


@pytest.mark.parametrize("name", NAMES)
@QUICK
@example(data=b"")
@given(data=st.binary(max_size=600))
def test_any_bytes_are_read_or_refused(name: str, data: bytes) -> None:
    load(name).run(data)

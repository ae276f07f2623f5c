"""Grouping by code: what sorting by value would give."""

from __future__ import annotations

import numpy as np
import pytest

from headgate.kernel import grouping

RNG = np.random.default_rng(5)


@pytest.mark.parametrize("space", [50, 1 << 40], ids=["a plain table", "a hashed one"])
def test_codes_are_numbered_by_first_sight(space: int) -> None:
    values = RNG.integers(0, space, 40)
    codes = values[RNG.integers(0, 40, 5000)]
    first, number = grouping.numbered(codes, space)
    seen: list[int] = list(dict.fromkeys(codes.tolist()))
    assert codes[first].tolist() == seen
    assert np.array(seen)[number].tolist() == codes.tolist()
    assert (number[first] == np.arange(len(first))).all()


def test_no_codes_have_no_numbers() -> None:
    first, number = grouping.numbered(np.empty(0, np.int64), 5)
    assert (len(first), len(number)) == (0, 0)


def test_events_are_grouped_stably_and_go_to_each_of_their_groups() -> None:
    # Code 0 goes to group 1, code 1 to groups 1 and 0, code 2 to none.
    start, entry = np.array([0, 1, 3, 3]), np.array([1, 1, 0])
    code = np.array([1, 0, 2, 1, 0], np.int32)
    counts, order, entries = grouping.grouped(code, start, entry, 2)
    assert counts.tolist() == [2, 4]
    assert order.tolist() == [0, 3, 0, 1, 3, 4]
    assert entries.tolist() == [2, 2, 1, 0, 1, 0]


@pytest.mark.parametrize("far", [False, True], ids=["one key", "too wide for one key"])
def test_groups_out_of_order_are_sorted_stably(far: bool) -> None:
    counts = np.array([400, 0, 1, 600])
    pos = RNG.integers(0, 50, 1001) * ((1 << 56) if far else 1)
    order = grouping.sorted_within(pos, counts)
    group = np.repeat(np.arange(4), counts)
    expected = sorted(range(1001), key=lambda i: (group[i], pos[i], i))
    assert order.tolist() == expected
    assert not grouping.in_order(pos, counts)
    assert grouping.in_order(pos[order], counts)


def test_a_fall_between_groups_is_in_order() -> None:
    assert grouping.in_order(np.array([5, 6, 1, 1]), np.array([2, 2]))
    assert not grouping.in_order(np.array([5, 6, 1, 1]), np.array([1, 3]))


def test_sums_by_code() -> None:
    sums = grouping.no_sums(3)
    code, t = np.array([0, 2, 0], np.int32), np.array([30, 20, 10])
    told, ones = np.array([0, 9, 4]), np.array([True, True, False])
    grouping.add_up(sums, code, t, np.array([5, 6, 7]), None, None)
    grouping.add_up(sums, code, t + 1, np.array([5, 6, 7]), told, ones)
    assert sums[0].tolist() == [3, 24, 1, 4, 4, 10, 31]
    assert sums[2].tolist() == [2, 12, 1, 9, 9, 20, 21]
    assert sums[1, :5].tolist() == [0] * 5
    assert sums[1, grouping.FIRST_MS] > sums[1, grouping.LAST_MS]


@pytest.mark.parametrize(
    ("value", "fits"),
    [
        (0.0, True),
        (4294967295.0, True),
        (4294967296.0, False),
        (-1.0, False),
        (0.5, False),
        (float("nan"), False),
        (float("inf"), False),
    ],
)
def test_what_fits_four_bytes(value: float, fits: bool) -> None:
    assert grouping.fits_uint32(np.array([1.0, value])) is fits

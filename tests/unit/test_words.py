"""Numbers in words."""

import pytest

from headgate import words


@pytest.mark.parametrize(
    ("value", "unit", "expected"),
    [
        (1048576, "B/s", "1.05 MB/s"),
        (400_000, "B/s", "400 kB/s"),
        (999, "B", "999 B"),
        (0, "B", "0 B"),
        (12.75, "%", "12.8 %"),
        (0.000123, "ids/s", "0.000123 ids/s"),
        (2.5e12, "B", "2.5 TB"),
        (None, "B/s", "no limit"),
        (None, "B", words.NONE),
    ],
)
def test_amounts(value: float | None, unit: str, expected: str) -> None:
    assert words.amount(value, unit) == expected


@pytest.mark.parametrize(
    ("ms", "expected"),
    [
        (0, "0"),
        (340, "340 ms"),
        (9_850, "9.85 s"),
        (65_000, "1 min 5 s"),
        (7_260_000, "2 h 1 min"),
        (864_000_000, "10 days"),
        (None, words.NONE),
    ],
)
def test_durations(ms: float | None, expected: str) -> None:
    assert words.duration(ms) == expected


def test_moments_are_utc() -> None:
    assert words.moment(1_795_262_069_485) == "2026-11-21 11:54:29 UTC"


def test_counts_and_shares() -> None:
    assert words.count(83_327) == "83\u202f327"
    assert words.share(0.984) == "98.4\u00a0%"

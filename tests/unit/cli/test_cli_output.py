from __future__ import annotations

import math

import pytest

from headgate.cli.output import java_double, printable


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (1.0, "1.0"),
        (1024.0, "1024.0"),
        (-2.5, "-2.5"),
        (12.75, "12.75"),
        (0.001, "0.001"),
        (0.0009999, "9.999E-4"),
        (0.0001, "1.0E-4"),
        (0.012, "0.012"),
        (9999999.0, "9999999.0"),
        (9999999.999, "9999999.999"),
        (1e7, "1.0E7"),
        (10485760.0, "1.048576E7"),
        (1e21, "1.0E21"),
        (9223372036854775807.0, "9.223372036854776E18"),
        (2147483647.0, "2.147483647E9"),
        (5e-324, "4.9E-324"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (math.inf, "Infinity"),
        (-math.inf, "-Infinity"),
        (math.nan, "NaN"),
    ],
)
def test_numbers_read_as_double_to_string_prints_them(value: float, text: str) -> None:
    assert java_double(value) == text


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("alice", "alice"),
        ("ürsüla/π", "ürsüla/π"),
        ("a\x1b[31mred", "a\\x1b[31mred"),
        ("two\nlines\r", "two\\x0alines\\x0d"),
        ("\x9b31m", "\\x9b31m"),
        ("abc\u202ecba", "abc\\u202ecba"),
        ("zero\u200bwidth", "zero\\u200bwidth"),
        ("line\u2028end", "line\\u2028end"),
        ("tag\U000e0041", "tag\\U000e0041"),
        ("half\ud800", "half\\ud800"),
    ],
)
def test_names_cannot_steer_a_terminal(name: str, shown: str) -> None:
    assert printable(name) == shown

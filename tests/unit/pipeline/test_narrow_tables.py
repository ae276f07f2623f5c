"""Closing tables in terminals of 80 and of 60 columns and in a pipe: numbers stay whole."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from headgate.cli.pipeline import print as printing
from headgate.cli.pipeline.print import closing_table

GOLDEN = Path(__file__).parents[2] / "data" / "pipeline" / "narrow_tables.txt"
SOURCE = Path(inspect.getfile(printing)).parent
TABLES: dict[str, tuple[list[str], list[list[str]]]] = {
    "usage": (
        ["quota type", "quota-id", "quota/s", "from", "requests", "bytes", "peak/s", "throttled",
         "throttle s"],
        [["producer_byte_rate", "alice:etl", "300,000 (300 kB/s)", "{user=alice}", "31,356",
          "608,086,894 (608 MB)", "1,192,600 (1.19 MB/s)", "4,511", "28,954"],
         ["request_percentage", ":", "unlimited", "-", "7", "0", "0", "0", "0"]],
    ),
    "replay": (
        ["quota type", "requests", "same decision", "throttled in both", "exact", "within 1 ms",
         "logged s", "replayed s"],
        [["producer_byte_rate", "31,356", "100.0%", "4,511", "99.9%", "100.0%", "84,662",
          "84,661"]],
    ),
    "requests": (
        ["API", "requests", "bytes charged"], [["Produce", "31,356", "608,086,894 (608 MB)"]]
    ),
    "what-if": (
        ["plan", "requests", "throttled", "throttled s", "delayed bytes", "clients throttled"],
        [["logged", "31,356", "4,511", "28,954", "-", "12"],
         ["  by producer_byte_rate", "31,356", "4,511", "28,954 to 84,662", "3.1%", "12"]],
    ),
    "what-if clients": (
        ["quota type", "principal", "client-id", "logged", "prod", "prod-2"],
        [["producer_byte_rate", "CN=payments,OU=a b", "app-0", "1,234", "28,954 to 84,662", "0"]],
    ),
    "recommend": (
        ["quota type", "entity", "action", "current", "recommended", "throttled s", "then", "why"],
        [["producer_byte_rate", "{user=alice, client-id=etl}", "raise", "300,000 (300 kB/s)",
          "1,100,000 (1.1 MB/s)", "28,954", "0", "it waits most of the time, and asks for more"]],
    ),
    "bad lines": (
        ["lines", "reason", "for instance"],
        [["12", "no time stamp", "/var/log/kafka/kafka-request.log.2026-11-27-08 byte 123456789"]],
    ),
    "demand": (
        ["plan", "quota-id", "type", "kind", "limit", "rate B/s", "throttled s", "finish s"],
        [["prod", "alice:etl", "producer", "saturated", "300,000 (300 kB/s)",
          "290,000 to 300,000", "1,200 to 1,300", "86,400"]],
    ),
    "chargeback": (
        ["principal", "from (UTC)", "bytes in", "bytes out", "share", "peak of quota",
         "throttle s", "price"],
        [["alice", "2026-11-01 00:00:00", "608,086,894,123 (608 GB)", "1,234 (1.23 kB)", "12.5%",
          "397.5%", "28,954", "1,234.56 EUR"]],
    ),
    "storms": (
        ["kind", "from (UTC)", "entity", "count", "peak/s", "quota", "why"],
        [["connections", "2026-11-21 11:45:49", "10.0.0.17", "123,456", "1,204", "20",
          "a client connects again for each request"]],
    ),
    "effective": (
        ["", "quota", "principal", "client-id", "limit", "from", "instead of", "bytes"],
        [["dead", "producer_byte_rate", "alice", "etl", "300,000 (300 kB/s)", "{user=alice}",
          "{user=<default>}", "608,086,894 (608 MB)"]],
    ),
    "bill": (
        ["principal or topic", "rows", "cost"], [["alice", "1,204", "1,234.56"]]
    ),
    "usage by topic": (
        ["quota type", "quota-id", "topic", "requests", "bytes"],
        [["consumer_byte_rate", "alice:etl", "orders", "31,356", "608,086,894 (608 MB)"],
         ["producer_byte_rate", "alice:etl", "(not known)", "7", "1,204 (1.2 kB)"]],
    ),
}  # fmt: skip


class Terminal:
    """Says that it is a terminal of some width."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, width: int) -> None:
        if width:
            monkeypatch.setattr("sys.stdout.isatty", lambda: True)
            monkeypatch.setenv("COLUMNS", str(width))
            monkeypatch.setenv("NO_COLOR", "1")
            monkeypatch.setenv("TERM", "dumb")
            monkeypatch.setenv("TTY_COMPATIBLE", "0")


def drawn(name: str, width: int, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    headings, rows = TABLES[name]
    columns = [(heading, lambda row, at=at: row[at]) for at, heading in enumerate(headings)]
    with monkeypatch.context() as patched:
        Terminal(patched, width)
        closing_table(f"Table of {name}", columns, rows)
    printed: str = capsys.readouterr().out
    return printed


@pytest.mark.parametrize("width", [60, 80, 0])
@pytest.mark.parametrize("name", TABLES)
def test_every_number_and_name_is_whole_at_any_width(
    name: str, width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    printed = drawn(name, width, capsys, monkeypatch)
    headings, rows = TABLES[name]
    for word in [word for row in rows for cell in row for word in cell.split()]:
        assert word in printed
    for heading in headings:
        assert all(word in printed for word in heading.split())
    numbers = {n for row in rows for cell in row for n in re.findall(r"\d[\d,.]*\d", cell)}
    assert numbers <= set(re.findall(r"\d[\d,.]*\d", printed))
    longest = max(len(word) for row in rows for cell in row for word in cell.split())
    if width and longest + 4 < width:
        assert max(map(len, printed.splitlines())) <= width


def test_tables_look_as_they_are_kept(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = "".join(
        f"--- {name}, {width or 'a pipe'}\n{drawn(name, width, capsys, monkeypatch)}"
        for name in TABLES
        for width in (80, 60, 0)
    )
    assert found == GOLDEN.read_text(encoding="utf-8")


def test_each_table_of_a_command_is_among_them() -> None:
    """The headings of every call of ``closing_table`` are those of a table above."""
    known = {heading for headings, _ in TABLES.values() for heading in headings} | {"owner"}
    calls = 0
    for file in SOURCE.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "closing_table":
                calls += 1
                pairs = [pair for pair in node.args[1].elts if isinstance(pair, ast.Tuple)]  # type: ignore[attr-defined]
                told = {
                    text.value
                    for pair in pairs
                    for text in ast.walk(pair.elts[0])
                    if isinstance(text, ast.Constant) and isinstance(text.value, str)
                }
                assert told <= known, file.name
    assert calls == len(TABLES)

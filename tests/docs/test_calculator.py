"""The calculator's figures are those of its page's table, and these the measured ones."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "howto" / "capacity.md").read_text(encoding="utf-8")
BENCH = (ROOT / "bench" / "gateway.md").read_text(encoding="utf-8")


def test_the_calculator_has_the_figures_of_the_table_and_of_the_bench() -> None:
    data = dict(re.findall(r'data-([\w-]+)="([\d. ]+)"', PAGE))
    rows = dict(re.findall(r"^\| (request, µs|byte, ns) \| ([\d.]+ \| [\d.]+) \|$", PAGE, re.M))
    request, byte = (rows[name].split(" | ") for name in ("request, µs", "byte, ns"))
    assert data["plain"].split() == [request[0], byte[0]]
    assert data["tls"].split() == [request[1], byte[1]]
    measured = re.findall(r"^\| (without TLS|TLS) \| ([\d.]+) µs \| ([\d.]+) ns \|", BENCH, re.M)
    assert measured == [("without TLS", request[0], byte[0]), ("TLS", request[1], byte[1])]
    opening = re.search(r"^\| opening a connection, µs \| (\d+) \|", PAGE, re.M)
    assert opening is not None
    assert opening[1] == data["open"]
    assert f"| gateway | {opening[1]}, " in BENCH


def test_the_sites_script_reads_each_of_them() -> None:
    script = (ROOT / "docs" / "site" / "static" / "size.js").read_text(encoding="utf-8")
    for name in re.findall(r'data-([\w-]+)="', PAGE):
        spelled = re.sub(r"-(\w)", lambda letter: letter[1].upper(), name)
        assert f"dataset.{spelled}" in script or f'"{spelled}"' in script

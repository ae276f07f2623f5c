"""The README's minute and the tutorial, followed to the letter but for the ports."""

from __future__ import annotations

import re
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from headgate.embedded import free_ports
from kit.pages import Reader

pytestmark = [pytest.mark.kafka4, pytest.mark.slow]


def serving(reader: Reader) -> AbstractContextManager[None]:
    """Run `headgate serve` of the page; then Ctrl-C, as the page says."""
    return reader.running(
        "headgate serve --config headgate.properties", " ready logger=headgate.serve"
    )


def told(said: str) -> float:
    """The seconds that a program was told to wait."""
    return float(re.findall(r"told to wait ([\d.]+) s", said)[-1])


def test_the_readmes_minute(tmp_path: Path, free_port: int) -> None:
    reader = Reader("README.md", tmp_path, {"9092": str(free_port)})
    reader.run(reader.block("headgate.upstream=embedded").splitlines()[0])
    with serving(reader):
        reader.run(reader.block("--add-config"))
        assert told(reader.run(reader.block("import Producer"), shell="python")) > 5
        said = reader.run(reader.block("headgate why"))
        assert "ANONYMOUS" in said
        assert re.search(r"users/<default> +100 kB/s +applies", said)


def test_the_tutorial(tmp_path: Path) -> None:
    ports = map(str, free_ports(2))
    here = dict(zip(("9092", "9192"), ports, strict=True))
    reader = Reader("docs/tutorial.md", tmp_path, here)
    (tmp_path / "headgate.properties").write_text(reader.block("headgate.upstream=embedded"))
    with serving(reader):
        assert "producer_byte_rate=100000" in reader.run(reader.block("--entity-default"))
        assert told(reader.run(reader.block("import Producer"), shell="python")) > 20
    reader.run(reader.block("headgate effective"))
    assert (tmp_path / "tables" / "report.html").stat().st_size > 100_000
    reader.run(reader.block("headgate export"))
    quotas = tmp_path / "quotas.yaml"
    assert "100000" in quotas.read_text()
    quotas.write_text(quotas.read_text().replace("100000", "200000"))
    _, _, planned, *_ = reader.run_lines("headgate recommend")
    assert "100000" in planned
    assert "200000" in planned

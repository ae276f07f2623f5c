from __future__ import annotations

import math
import os
import select
import subprocess
import sys
from pathlib import Path

import pytest

from headgate.cli.output import printable
from headgate.java_text import java_double
from headgate.quota.alteration import Op, QuotaAlteration
from headgate.quota.entity import QuotaEntity
from headgate.quota.file import dump_quotas
from headgate.quota.key import PRODUCER
from headgate.store import open_store


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


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A store of more quotas than a pipe holds lines for."""
    url = f"sqlite:{tmp_path_factory.mktemp('many') / 'quotas.db'}"
    with open_store(url) as store:
        store.alter(
            [
                QuotaAlteration.of(QuotaEntity.of(user=f"user-{n:05}"), [Op(PRODUCER, 1_000.0)])
                for n in range(3_000)
            ]
        )
    return url


def read_one_line(words: list[str]) -> tuple[str, str, int]:
    """Run `headgate WORDS… | head -1`."""
    with subprocess.Popen(
        [sys.executable, "-m", "headgate.cli.main", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        line = process.stdout.readline()
        process.stdout.close()
        said = process.stderr.read()
        return line, said, process.wait(120)


@pytest.mark.parametrize(
    "words",
    [
        ["export"],
        ["history", "--format", "json"],
        ["kafka-quotas", "--list"],
        ["kafka-configs", "--describe", "--entity-type", "users"],
    ],
    ids=lambda words: words[0],
)
def test_a_reader_that_goes_is_no_failure(many: str, words: list[str]) -> None:
    line, said, status = read_one_line([words[0], "--store", many, *words[1:]])
    assert line
    assert (said, status) == ("", 0)


def test_what_is_applied_is_applied_though_nobody_reads(many: str, tmp_path: Path) -> None:
    file = tmp_path / "quotas.yaml"
    with open_store(many) as store:
        file.write_text(dump_quotas(store.snapshot()).replace("1000\n", "2000\n"))
    line, said, status = read_one_line(["apply", "--store", many, str(file)])
    assert line.startswith("Changes to")
    assert (said, status) == ("", 0)
    with open_store(many) as store:
        assert set(store.snapshot().for_key(PRODUCER).values()) == {2_000.0}


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_line_is_read_as_soon_as_it_is_said(unbuffered: str) -> None:
    said = (
        "import sys; from headgate.cli.output import complain, outlive_reader\n"
        "outlive_reader(); complain('here'); sys.stdin.readline()"  # input() would flush
    )
    with subprocess.Popen(
        [sys.executable, "-c", said],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
    ) as program:
        assert program.stdin is not None and program.stderr is not None
        assert select.select([program.stderr], [], [], 60)[0], "it waits, and has said nothing"
        assert program.stderr.readline() == b"here\n"
        program.stdin.write(b"\n")


@pytest.mark.parametrize("words", ["--version", "--help", "why --help", "kafka-quotas --help"])
def test_a_full_disk_is_told_in_one_line(words: str) -> None:
    with Path("/dev/full").open("wb") as full:
        ran = subprocess.run(
            [sys.executable, "-m", "headgate", *words.split()],
            stdout=full, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert ran.stderr == "headgate: stdout: No space left on device; the output isn't complete\n"
    assert ran.returncode == 1

"""The README's minute and the tutorial, followed to the letter but for the ports."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headgate.embedded import free_ports
from headgate.embedded.cache import cache_dir

pytestmark = [pytest.mark.kafka4, pytest.mark.slow]
ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
LONGEST_S = 300


class Reader:
    """Somebody who follows a page: puts its blocks into a shell, in a folder of their own."""

    def __init__(self, page: str, folder: Path) -> None:
        self.folder = folder
        text = (ROOT / page).read_text(encoding="utf-8")
        ports = dict(zip(("9092", "9192"), map(str, free_ports(2)), strict=True))
        text = re.sub(r"\b(9092|9192)\b", lambda port: ports[port[0]], text)
        self.blocks = re.findall(r"^```(sh|python|properties)\n(.*?)^```", text, re.M | re.S)
        self.environment = {
            **os.environ,
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            "HEADGATE_CACHE": str(cache_dir()),
        }

    def block(self, holding: str) -> str:
        """The one block that holds a text."""
        [found] = [text for _, text in self.blocks if holding in text]
        return str(found)

    def run(self, script: str, *, shell: str = "bash", good: tuple[int, ...] = (0,)) -> str:
        command = [shell, "-e" if shell == "bash" else "-u", "-c" if shell == "bash" else "-"]
        if shell == "bash":
            command.append(script)
        done = subprocess.run(
            command,
            input=None if shell == "bash" else script,
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=LONGEST_S,
            check=False,
        )
        assert done.returncode in good, f"{script}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    @contextmanager
    def serving(self) -> Iterator[None]:
        """`headgate serve` of the page, until it is left; then Ctrl-C, as the page says."""
        log = self.folder / "serve.log"
        with log.open("w") as output:
            serve = subprocess.Popen(
                ["headgate", "serve", "--config", "headgate.properties"],
                cwd=self.folder,
                env=self.environment,
                stdout=output,
                stderr=output,
            )
        try:
            until = time.monotonic() + LONGEST_S
            while " ready logger=headgate.serve" not in log.read_text():
                assert serve.poll() is None, log.read_text()
                assert time.monotonic() < until, log.read_text()
                time.sleep(0.2)
            yield
        finally:
            serve.send_signal(signal.SIGINT)
            assert serve.wait(60) in (0, 130), log.read_text()


def told(said: str) -> float:
    """The seconds that a program was told to wait."""
    return float(re.findall(r"told to wait ([\d.]+) s", said)[-1])


def test_the_readmes_minute(tmp_path: Path) -> None:
    reader = Reader("README.md", tmp_path)
    reader.run(reader.block("headgate.upstream=embedded").splitlines()[0])
    with reader.serving():
        reader.run(reader.block("--add-config"))
        assert told(reader.run(reader.block("import Producer"), shell="python")) > 5
        said = reader.run(reader.block("headgate why"))
        assert "ANONYMOUS" in said
        assert re.search(r"users/<default> +100 kB/s +applies", said)


def test_the_tutorial(tmp_path: Path) -> None:
    reader = Reader("docs/tutorial.md", tmp_path)
    (tmp_path / "headgate.properties").write_text(reader.block("headgate.upstream=embedded"))
    with reader.serving():
        assert "producer_byte_rate=100000" in reader.run(reader.block("--entity-default"))
        assert told(reader.run(reader.block("import Producer"), shell="python")) > 20
    reader.run(reader.block("headgate effective"))
    assert (tmp_path / "tables" / "report.html").stat().st_size > 100_000
    reader.run(reader.block("headgate export"))
    quotas = tmp_path / "quotas.yaml"
    assert "100000" in quotas.read_text()
    quotas.write_text(quotas.read_text().replace("100000", "200000"))
    for line in reader.block("headgate recommend").splitlines():
        said = reader.run(line, good=(0, 3) if " plan " in line else (0,))
        if " plan " in line:
            assert "100000" in said
            assert "200000" in said

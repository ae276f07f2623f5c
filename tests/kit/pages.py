"""Find the blocks of the project's pages, and do what they say."""

from __future__ import annotations

import ast
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from headgate.embedded.cache import cache_dir

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs").rglob("*.md"))]
SHELL = ("sh", "bash", "console")
LONGEST_S = 300
_FENCE = re.compile(r"^( *)```(\w+)([^\n]*)\n(.*?)^\1```", re.M | re.S)


class Block(NamedTuple):
    """A block, by its page and its number among those of its languages there."""

    page: Path
    number: int
    text: str

    def __str__(self) -> str:
        return f"{self.page.name}-{self.number}"


def blocks(*languages: str, pages: Iterable[Path] = PAGES) -> list[Block]:
    """Return all blocks of some languages. A block with further words belongs to other tests."""
    found = []
    for page in pages:
        texts = _texts(page.read_text(encoding="utf-8"), languages)
        found += [Block(page, number, text) for number, text in enumerate(texts, 1)]
    return found


def _texts(page: str, languages: tuple[str, ...] = ()) -> list[str]:
    return [
        textwrap.dedent(text)
        for _, language, more, text in _FENCE.findall(page)
        if (not languages or language in languages) and not more
    ]


class Reader:
    """
    Somebody who follows a page in a folder of their own.

    Args:
        page: its path in the project.
        folder: where commands run.
        here: addresses, folders and names of the page, each with the test's in its place.
    """

    def __init__(self, page: str, folder: Path, here: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        text = (ROOT / page).read_text(encoding="utf-8")
        if here:
            assert [name for name in here if name not in text] == []
            said = "|".join(map(re.escape, sorted(here, key=len, reverse=True)))
            text = re.sub(rf"(?<!\w)({said})(?!\w)", lambda found: here[found[1]], text)
        self._blocks = _texts(text)
        self.environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "HEADGATE_CACHE": str(cache_dir()),
        }

    def block(self, holding: str) -> str:
        """Return the one block that holds a text."""
        [found] = [text for text in self._blocks if holding in text]
        return found

    def run(
        self, script: str, *, shell: str = "bash", good: tuple[int, ...] = (0,), typed: str = ""
    ) -> str:
        """Run a script with ``bash`` or ``python``; return what it printed."""
        command = [shell, "-e", "-c", script] if shell == "bash" else [shell, "-u", "-"]
        done = subprocess.run(
            command,
            input=typed if shell == "bash" else script,
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=LONGEST_S,
            check=False,
        )
        assert done.returncode in good, f"{script}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def run_lines(self, holding: str) -> list[str]:
        """Run each command of a block; a plan may also find changes, which is status 3."""
        return [
            self.run(line, good=(0, 3) if " plan " in line else (0,))
            for line in self.block(holding).replace("\\\n", " ").splitlines()
        ]

    def run_console(self, holding: str, *, good: tuple[int, ...] = (0,)) -> tuple[str, str]:
        """Run the command of a block ``console``; return the output that it shows, and ours."""
        command, _, shown = self.block(holding).removeprefix("$ ").partition("\n")
        return shown, self.run(command, good=good)

    @contextmanager
    def running(self, command: str, ready: str) -> Iterator[None]:
        """Start a command, wait until it says that it's ready, and end it by Ctrl-C."""
        log = self.folder / "running.log"
        with log.open("w") as output:
            process = subprocess.Popen(
                ["bash", "-c", f"exec {command}"],
                cwd=self.folder,
                env=self.environment,
                stdout=output,
                stderr=output,
            )
        try:
            until = time.monotonic() + LONGEST_S
            while ready not in log.read_text():
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < until, log.read_text()
                time.sleep(0.2)
            yield
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(60) in (0, 130), log.read_text()


def run_python(
    text: str, names: dict[str, Any], seen: Callable[[Any], object] = lambda _: None
) -> None:
    """
    Run Python in this process, as its prompt does.

    Args:
        text: one block or more.
        names: what the text may use; what it defines comes in.
        seen: gets the value of each line that is only an expression.
    """
    kept, sys.displayhook = sys.displayhook, seen
    try:
        for statement in ast.parse(text).body:
            exec(compile(ast.Interactive([statement]), "a page's block", "single"), names)
    finally:
        sys.displayhook = kept

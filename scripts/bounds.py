"""
Run the unit tests with both ends of the declared versions, and on other Pythons: `make bounds`.

``lowest`` is the lower end of every package that pyproject.toml declares; ``highest`` is what an
installation gets today; both use the oldest Python. The others are the pinned versions on a newer
Python, where this machine has one. Each has an environment of its own below .cache/bounds. The
result is written to bench/bounds.md.
"""

from __future__ import annotations

import argparse
import datetime
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import prometheus

ROOT = Path(__file__).resolve().parent.parent
PLACE = ROOT / ".cache" / "bounds"
PAGE = ROOT / "bench" / "bounds.md"
UV = [sys.executable, "-m", "uv", "--quiet"]
PIN = ["pip", "install", "--quiet", "--no-deps", "--require-hashes", "-r"]
HEAD = """\
# Both ends of the declared versions, and other Pythons

`make bounds` writes this page. A run installs all extras and goes through every unit test.

| run | Python | date | packages | passed | failed | what failed |
|---|---|---|---|---|---|---|
"""


class End(NamedTuple):
    """A set of versions to test with."""

    python: str
    resolution: str
    """uv's ``--resolution``; empty: what requirements/runtime.txt pins."""


ENDS = {
    "lowest": End("3.11", "lowest-direct"),
    "highest": End("3.11", "highest"),
    "3.12": End("3.12", ""),
    "3.13": End("3.13", ""),
}


def run(*command: str | Path, cwd: Path = ROOT) -> str:
    """Run a command that has to succeed; return what it printed."""
    done = subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\nended with {done.returncode}:\n{done.stdout}")
    return done.stdout


def versions(name: str, end: End) -> Path:
    """Return a file with the versions of all that is declared, at one end."""
    if not end.resolution:
        return ROOT / "requirements" / "runtime.txt"
    out = PLACE / f"{name}.txt"
    options = ["--no-header", "--no-annotate", "--no-emit-index-url", "--all-extras"]
    options += [f"--python-version={end.python}", f"--resolution={end.resolution}", "--upgrade"]
    run(*UV, "pip", "compile", *options, "pyproject.toml", "-o", out)
    return out


def environment(name: str, end: End) -> tuple[Path, int]:
    """Make an environment with these versions; return its Python, and how many packages it pins."""
    folder = PLACE / name
    shutil.rmtree(folder, ignore_errors=True)
    run(*UV, "venv", "--python", end.python, folder)
    wanted = versions(name, end)
    python = folder / "bin" / "python"
    install = [*UV, "pip", "install", "--python", python]
    requirements = ROOT / "requirements"
    run(*install, "-r", requirements / "build.txt")  # PySpark comes as source only
    run(*install, "--no-build-isolation", "--no-deps", "-r", wanted)
    # The tests' own packages come in versions that fit these, so their pins don't apply here.
    tests = PLACE / f"{name}-tests.in"
    names = (requirements / "dev.in").read_text()
    tests.write_text(re.sub(r"^-c .*\n", "", names, flags=re.M))
    plain = PLACE / f"{name}-versions.txt"
    plain.write_text(
        "".join(f"{pin}\n" for pin in re.findall(r"^[\w.-]+==\S+", wanted.read_text(), re.M))
    )
    run(*install, "--no-build-isolation", "-r", tests, "-c", plain)
    run(*install, "--no-build-isolation", "--no-deps", "-e", ROOT)
    run(*UV, "pip", "check", "--python", python)
    return python, len(plain.read_text().splitlines())


def test(python: Path, more: list[str]) -> tuple[int, int, list[str]]:
    """Run the unit tests; return how many passed and failed, and which failed."""
    command = [python, "-m", "pytest", "-n", "2", "-p", "no:cacheprovider", "-m", "not slow"]
    command += more or ["tests/unit"]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    print(done.stdout[-3000:], flush=True)
    counts = re.findall(r"(\d+) (passed|failed|error)s?\b", done.stdout)
    by_kind = {kind: int(count) for count, kind in counts}
    failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.M)
    wrong = by_kind.get("failed", 0) + by_kind.get("error", 0)
    return by_kind.get("passed", 0), max(wrong, len(failed), int(done.returncode != 0)), failed


def keep(name: str, row: str) -> None:
    """Write a run's row to the page, in place of the same run's older one."""
    text = PAGE.read_text(encoding="utf-8") if PAGE.is_file() else HEAD
    rows = [line for line in text.splitlines() if re.match(r"\| (?!run |---)", line)]
    rows = [line for line in rows if not line.startswith(f"| {name} |")]
    PAGE.write_text(HEAD + "\n".join(sorted([*rows, row])) + "\n", encoding="utf-8")


def main() -> int:
    """Test the ends named, or all; 1 if a test failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ends", nargs="*", choices=[[], *ENDS], metavar="END")
    options, more = parser.parse_known_args()
    PLACE.mkdir(parents=True, exist_ok=True)
    if prometheus.main() != 0:  # tests of alerts need it
        return 1
    run(sys.executable, "-m", *PIN, ROOT / "requirements" / "pins.txt")
    bad = 0
    for name in options.ends or ENDS:
        end = ENDS[name]
        found = subprocess.run(
            [*UV, "python", "find", end.python], capture_output=True, check=False
        )
        if found.returncode != 0:
            print(f"{name}: there is no Python {end.python} here: untested", flush=True)
            continue
        began = time.monotonic()
        python, count = environment(name, end)
        print(f"{name}: {count} packages, {time.monotonic() - began:.0f} s", flush=True)
        version = run(python, "-c", "import platform; print(platform.python_version())").strip()
        passed, wrong, failed = test(python, more)
        bad += wrong
        day = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d")
        if not more:
            what = ", ".join(f"`{test}`" for test in failed) or "-"
            keep(name, f"| {name} | {version} | {day} | {count} | {passed} | {wrong} | {what} |")
        print(f"{name}: {passed} passed, {wrong} failed", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())

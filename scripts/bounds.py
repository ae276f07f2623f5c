"""
Run the unit tests with both ends of the declared versions, and on other Pythons: `make bounds`.

``lowest`` is the lower end of every package that pyproject.toml declares; ``highest`` is what an
installation gets today; both use the oldest Python. The others are the pinned versions on a newer
Python, where this machine has one. Each has an environment of its own below .cache/bounds. The
result is written to bench/bounds.md.

``make bounds SPARK=3.5`` (or ``SPARK=all``) runs the pipeline with the newest PySpark 3.5 instead:
some of its unit tests, and every command and function (spark_answers.py), whose tables are
compared with those of the pinned PySpark. That isn't part of any other run.
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

from headgate.cli.extras import EXTRAS

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
SPARK_HEAD = """
## Each Spark

`make bounds SPARK=all` writes these rows. A run installs the newest release of that Spark, with the
packages of our extras but `sail`, into one environment. It runs unit tests of the pipeline
({tests}). Then it asks every command and, in a stock session, every function of
`headgate.pipeline` ([`spark_answers.py`](../scripts/spark_answers.py)), about the bundled log and a
journal. It compares every table with the pinned PySpark's, each figure to its last digit.

| PySpark | Python | date | with | tests | tables equal | refused | what failed or differs |
|---|---|---|---|---|---|---|---|
"""
SPARKS = ("3.5", "4.0", "4.1", "4.2", "4.3")
"""Of which each has its newest release tried."""
SPARK_TESTS = ("spark_versions", "schema", "replay", "recommend", "focus", "journal", "runs")
"""Unit tests of the pipeline that import nothing that a Spark may lack."""


class End(NamedTuple):
    """A set of versions to test with."""

    python: str
    resolution: str
    """uv's ``--resolution``; empty: what requirements/runtime.txt pins."""
    spark: str = ""
    """The PySpark to install, such as 3.5; empty: what the resolution gives, and all extras."""


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
    options = ["--no-header", "--no-annotate", "--no-emit-index-url"]
    if end.spark:
        wanted = PLACE / f"{name}.in"
        wanted.write_text(f"pyspark=={end.spark}.*\n")
        # Sail needs a newer Spark than 3.5.
        options += [f"--extra={extra}" for extra in EXTRAS if extra != "sail"] + ["-c", str(wanted)]
    else:
        options += ["--all-extras"]
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
    rows = [line for line in text.splitlines() if re.match(r"\| (?!run |PySpark \|)", line)]
    rows = sorted([row, *(line for line in rows if not line.startswith(f"| {name} |"))])
    sparks = [line for line in rows if line.startswith("| PySpark ")]
    others = [line for line in rows if line not in sparks]
    tests = ", ".join(f"`{name}`" for name in SPARK_TESTS)
    text = HEAD + "".join(f"{line}\n" for line in others)
    if sparks:
        text += SPARK_HEAD.format(tests=tests) + "".join(f"{line}\n" for line in sparks)
    PAGE.write_text(text, encoding="utf-8")


def answers(python: Path | str, folder: Path) -> list[str]:
    """Ask every command and function with a Python; return what couldn't be asked."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    wrong = []
    for what in ("commands", "library"):
        with (folder / f"{what}.log").open("w") as log:
            command = [str(python), str(ROOT / "scripts" / "spark_answers.py"), what, str(folder)]
            done = subprocess.run(
                command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT, check=False
            )
        if done.returncode != 0:
            wrong.append(f"{what} ended with {done.returncode} ({folder}/{what}.log)")
    return wrong


class Compared(NamedTuple):
    """How the tables of a Spark compare with those of the pinned one, by name."""

    equal: list[str]
    refused: list[str]
    wrong: list[str]


def compare(folder: Path, pinned: Path) -> Compared:
    """Compare the tables of two folders."""
    found = Compared([], [], [])
    for path in sorted(pinned.glob("*.txt")):
        other = folder / path.name
        text = other.read_text() if other.is_file() else "failed: it is missing"
        kind = found.wrong
        if text.startswith("refused: "):
            kind = found.refused
        elif text == path.read_text() and not text.startswith("failed: "):
            kind = found.equal
        kind.append(path.stem)
    return found


def try_spark(spark: str, end: End, pinned: Path) -> int:
    """Run one Spark's tests and answers, and keep its row; return how much went wrong."""
    name = f"spark-{spark}"
    python, _ = environment(name, end)
    folder = PLACE / f"{name}-answers"
    wrong = row_of_spark(python, answers(python, folder), compare(folder, pinned))
    shutil.rmtree(PLACE / name)
    return wrong


def row_of_spark(python: Path, failed: list[str], found: Compared) -> int:
    """Run one Spark's tests, and keep its row; return how much went wrong."""
    passed, bad, tests = test(python, [f"tests/unit/pipeline/test_{n}.py" for n in SPARK_TESTS])
    tell = "import platform, numpy, pandas, pyarrow, pyspark; print(platform.python_version(),"
    tell += " pyspark.__version__, numpy.__version__, pandas.__version__, pyarrow.__version__)"
    version, exact, *others = run(python, "-c", tell).split()
    beside = ", ".join(map(" ".join, zip(("NumPy", "pandas", "PyArrow"), others, strict=True)))
    wrong = ", ".join(f"`{what}`" for what in [*tests, *failed, *found.wrong]) or "-"
    refused = ", ".join(f"`{what}`" for what in found.refused) or "-"
    tables = sum(map(len, found))
    day = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d")
    cells = [f"PySpark {exact}", version, day, beside, f"{passed} passed, {bad} failed"]
    cells += [f"{len(found.equal)} of {tables}", refused, wrong]
    keep(cells[0], f"| {' | '.join(cells)} |")
    print("; ".join(cells), flush=True)
    return bad + len(failed) + len(found.wrong)


def try_sparks(wanted: list[str]) -> int:
    """Try each Spark; return how much went wrong."""
    pinned = PLACE / "pinned-answers"
    wrong = answers(sys.executable, pinned)
    if wrong:
        sys.exit(f"the pinned PySpark: {'; '.join(wrong)}")
    return sum(try_spark(spark, End("3.11", "highest", spark), pinned) for spark in wanted)


def main() -> int:
    """Test the ends named, or all; 1 if a test failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ends", nargs="*", choices=[[], *ENDS], metavar="END")
    parser.add_argument("--spark", choices=["all", *SPARKS], help="try this Spark instead")
    options, more = parser.parse_known_args()
    PLACE.mkdir(parents=True, exist_ok=True)
    if not options.spark and prometheus.main() != 0:  # tests of alerts need it
        return 1
    run(sys.executable, "-m", *PIN, ROOT / "requirements" / "pins.txt")
    if options.spark:
        wanted = list(SPARKS) if options.spark == "all" else [options.spark]
        return 1 if try_sparks(wanted) else 0
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

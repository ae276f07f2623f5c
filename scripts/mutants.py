"""
Change the code that decides, bit by bit, and see whether a test notices: `make mutants`.

For each package, mutants are drawn in an order that the seed gives (the date), until the time is
over; a night draws others than the last. What no test notices is either listed in
tests/data/mutants_allowed.txt with the reason why it may live, or printed, and the run fails.
bench/mutants.md keeps the last result of each package.
"""

from __future__ import annotations

import argparse
import collections
import datetime
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mutant_source import Mutant

ROOT = Path(__file__).resolve().parent.parent
HOUSE = ROOT / "src" / "headgate"
ALLOWED = ROOT / "tests" / "data" / "mutants_allowed.txt"
RESULT = ROOT / "bench" / "mutants.md"
REQUIREMENTS = ROOT / "requirements" / "mutants.txt"
_OF_A_SESSION = (
    *("session", "session_sasl", "charges", "enforce", "pacing", "lanes", "mute", "quota_rules"),
    *("fetch_gate", "fetch_hold", "journal", "producer_id_events", "clock_set_back", "rewrite"),
    *("edges_of_charges", "settings_obeyed", "quota_changes", "reload"),
)
_GATEWAY = [f"tests/unit/gateway/test_{name}.py" for name in _OF_A_SESSION]
ROOMS = {
    "throttle": ["tests/unit/throttle", "tests/golden/test_throttle_golden.py"],
    "quota": ["tests/unit/quota", "tests/property/test_quota_laws.py"],
    "gateway/charging": _GATEWAY,
    "gateway/session": _GATEWAY,
}
"""Packages, and the quick tests that know them."""
LIVES = ("survived", "untouched")
Name = tuple[str, str, str]
"""A mutant's file and function, its lines, and what they become."""
Allowed = dict[Name, str]
"""Why a mutant may live."""


def name_of(mutant: Mutant) -> Name:
    """Name a mutant so that it stays the same when lines move."""
    where = f"{mutant.path.relative_to(HOUSE)} {mutant.function or '(module)'}"
    return where, mutant.before, mutant.after


def read_allowed(path: Path) -> Allowed:
    """
    Read which mutants may live, and why.

    ``= REASON`` holds for all that follow, up to the next; a mutant is ``FILE FUNCTION`` and below
    it ``- LINE`` and ``+ LINE``.
    """
    allowed = {}
    reason = where = before = ""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        text = line.strip()
        if text.startswith("= "):
            reason = text[2:]
        elif text.startswith("- "):
            before = text[2:]
        elif text == "+" or text.startswith("+ "):
            if not (reason and where and before):
                raise ValueError(f"{path.name}:{number}: a mutant without reason, place or line")
            allowed[where, before, text[2:]] = reason
        elif text and not text.startswith("#"):
            where = text
    return allowed


class Told:
    """Counts what became of a package's mutants, and tells what lives."""

    def __init__(self, room: str, mutants: Sequence[Mutant], allowed: Allowed) -> None:
        self.room = room
        self.mutants = mutants
        self.allowed = allowed
        self.began = time.monotonic()
        self.counts: collections.Counter[str] = collections.Counter()
        self.may_live: list[Name] = []
        self.lives: list[Name] = []

    def note(self, text: str) -> None:
        """Print a line about the progress."""
        print(f"[{self.room} {time.monotonic() - self.began:.0f} s] {text}", flush=True)

    def one(self, index: int, fate: str) -> None:
        """Take one mutant's fate."""
        self.counts[fate] += 1
        name = name_of(self.mutants[index])
        if fate in LIVES and name in self.allowed:
            self.may_live.append(name)
        elif fate in LIVES:
            self.lives.append(name)
            print("LIVES {}\n  - {}\n  + {}".format(*name), flush=True)
        if self.counts.total() % 100 == 0:
            self.note(f"{self.counts.total()} of {len(self.mutants)}: {dict(self.counts)}")

    def row(self, seed: str) -> str:
        """Return the row of bench/mutants.md."""
        run = self.counts.total() - self.counts["same"] - self.counts["invalid"]
        killed = run - len(self.may_live) - len(self.lives)
        took = time.monotonic() - self.began
        date = datetime.datetime.now(datetime.UTC).date()
        figures = f"{run} | {killed} | {len(self.may_live)} | {len(self.lives)} | {took:.0f}"
        return f"| `{self.room}` | {date} | {seed} | {len(self.mutants)} | {figures} |"


def main() -> int:
    """Run the packages; 1 if a mutant lives that may not."""
    options = parsed()
    install()
    os.environ.update(HYPOTHESIS_PROFILE="ci", PYTHONHASHSEED="0")
    os.chdir(ROOT)
    from mutant_runs import Run
    from mutant_source import mutants_of

    preload()
    allowed = read_allowed(ALLOWED)
    packages = options.room or list(ROOMS)
    rows, lives = {}, []
    for place, room in enumerate(packages):
        paths = [p for p in sorted((HOUSE / room).rglob("*.py")) if options.file in p.name]
        mutants = [mutant for path in paths for mutant in mutants_of(path)]
        told = Told(room, mutants, allowed)
        order = random.Random(options.seed).sample(range(len(mutants)), len(mutants))
        lived = ROOT / ".cache" / "mutants" / f"{room.replace('/', '-')}-lived.json"
        if options.lived:
            again = {tuple(name) for name in json.loads(lived.read_text())}
            order = [index for index in order if name_of(mutants[index]) in again]
        share = (options.ends - time.time()) / (len(packages) - place)
        told.note(f"{len(mutants)} mutants, seed {options.seed}, for at most {share:.0f} s")
        run = Run(
            mutants=mutants,
            order=order[options.skip :][: options.most],
            tests=ROOMS[room],
            jobs=options.jobs,
            until=time.time() + share,
            most_s=options.tests_seconds,
            folder=HOUSE / room,
            kept=ROOT / ".cache" / "mutants" / f"{room.replace('/', '-')}.json",
            note=told.note,
            tell=told.one,
        )
        run.all()
        lived.write_text(json.dumps(told.lives))
        rows[room] = told.row(options.seed)
        lives += told.lives
        told.note(rows[room])
    if not (options.file or options.lived):
        write(rows, lives, allowed)
    return 1 if lives else 0


def write(rows: Mapping[str, str], lives: Sequence[Name], allowed: Allowed) -> None:
    """Write bench/mutants.md; packages that did not run keep their rows."""
    old = RESULT.read_text().splitlines() if RESULT.exists() else []
    kept = {line.split("`")[1]: line for line in old if line.startswith("| `")}
    kept.update(rows)
    reasons = collections.Counter(allowed.values())
    lines = [
        "# Mutants of what decides",
        "",
        "`make mutants` changes the code of these packages bit by bit and runs the tests that see "
        "each change (`scripts/mutants.py`).",
        "A run is bounded, and draws its mutants in the order of its seed, the date unless told "
        "otherwise.",
        "",
        "| package | date | seed | mutants | run | killed | may live | live | s |",
        "|---|---|---|---|---|---|---|---|---|",
        *(kept[room] for room in ROOMS if room in kept),
        "",
        "## Lived in the last run, and nothing says why",
        "",
        *[f"- {where}: `{before}` became `{after}`" for where, before, after in sorted(lives)],
        *([] if lives else ["None."]),
        "",
        "## May live",
        "",
        "Each is named in `tests/data/mutants_allowed.txt`.",
        "",
        "| mutants | why |",
        "|---|---|",
        *(f"| {count} | {reason} |" for reason, count in reasons.most_common()),
    ]
    RESULT.write_text("\n".join(lines) + "\n")


def preload() -> None:
    """Import what tests need that isn't Headgate's: forks have it then."""
    import cryptography.x509  # noqa: F401
    import hypothesis.strategies  # noqa: F401
    import numpy  # noqa: F401
    import prometheus_client  # noqa: F401
    import pyarrow  # noqa: F401
    import structlog  # noqa: F401


def parsed() -> argparse.Namespace:
    """Parse the command line."""
    today = datetime.datetime.now(datetime.UTC).date()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--room", action="append", choices=ROOMS, help="one package (all)")
    parser.add_argument("--seconds", type=float, default=3600, help="ends after about (3600)")
    parser.add_argument("--seed", default=today.isoformat(), help="the order (today's date)")
    parser.add_argument("--most", type=int, help="at most this many mutants a package (all)")
    parser.add_argument("--skip", type=int, default=0, help="of the order, this many (0)")
    parser.add_argument("--jobs", type=int, default=2, help="processes at once (2)")
    parser.add_argument(
        "--tests-seconds", type=float, default=20, help="of tests for each mutant (20)"
    )
    parser.add_argument("--lived", action="store_true", help="only those that lived last time")
    parser.add_argument("--file", default="", help="only files with this in their names")
    options = parser.parse_args()
    options.ends = time.time() + options.seconds
    return options


def install() -> None:
    """Install what draws mutants, each package checked against its hashes, where it isn't there."""
    try:
        import mutmut.mutation.mutators  # noqa: F401
    except ImportError:
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
        subprocess.run([*command, "--require-hashes", "-r", str(REQUIREMENTS)], check=True)


if __name__ == "__main__":
    sys.exit(main())

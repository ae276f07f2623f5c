"""
Change the code that decides, bit by bit, and see whether a test notices: `make mutants`.

For each package, mutants are drawn in an order that the seed gives (the date), until the time is
over. Killed mutants are kept in .cache until their function changes, and only ``--fresh`` runs them
again; so runs add up. What neither a test nor mypy notices is either listed in
tests/data/mutants_allowed.txt with the reason why it may live, or printed, and the run fails.
bench/mutants.md keeps the result of each package.
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
from collections.abc import Callable, Mapping, Sequence
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
    *("session", "session_sasl", "charges", "enforce", "pacing", "lanes", "quota_rules"),
    *("gates", "hold", "journal", "producer_id_events", "clock_set_back", "rewrite"),
    *("edges_of_charges", "edges_of_enforcement", "edges_of_claims", "edges_of_sessions"),
    *("edges_of_passing", "edges_of_holds", "edges_of_ends", "edges_of_changes"),
    *("settings_obeyed", "quota_changes", "reload", "session_laws", "session_throttles", "budgets"),
    "hostile_bounds",
)
_GATEWAY = [f"tests/unit/gateway/test_{name}.py" for name in _OF_A_SESSION]
_GATEWAY.append("lab/simulation/test_each_life.py")
ROOMS = {
    "throttle": ["tests/unit/throttle", "tests/golden/test_throttle_golden.py"],
    "quota": ["tests/unit/quota", "tests/property/test_quota_laws.py"],
    "gateway/charging": _GATEWAY,
    "gateway/session": _GATEWAY,
}
"""Packages, each with the quick tests that check it."""
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

    ``= REASON`` applies to all mutants below it, up to the next reason. A mutant is ``FILE
    FUNCTION``, and below it ``- LINE`` and ``+ LINE``.
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
    """
    Knows what became of a package's mutants, in this run and in those before.

    Args:
        room: the package.
        mutants: all mutants of the package.
        allowed: which may live.
        kept: where fates are kept between runs.
        fresh: forget the fates of earlier runs.
    """

    def __init__(
        self, room: str, mutants: Sequence[Mutant], allowed: Allowed, kept: Path, *, fresh: bool
    ) -> None:
        self.room = room
        self.mutants = mutants
        self.allowed = allowed
        self.kept = kept
        self.began = time.monotonic()
        self.known: dict[str, str] = (
            json.loads(kept.read_text()) if kept.exists() and not fresh else {}
        )
        self.fates = {
            index: self.known[mutant.key]
            for index, mutant in enumerate(mutants)
            if mutant.key in self.known
        }
        self.ran: dict[int, str] = {}

    def note(self, text: str) -> None:
        """Print a line about the progress."""
        print(f"[{self.room} {time.monotonic() - self.began:.0f} s] {text}", flush=True)

    def one(self, index: int, fate: str) -> None:
        """Take one mutant's fate."""
        self.fates[index] = self.ran[index] = fate
        if len(self.ran) % 50 == 0:
            self.note(f"{len(self.ran)} run: {dict(collections.Counter(self.ran.values()))}")
            self.keep()

    def keep(self) -> None:
        """Write down what is known."""
        self.known |= {self.mutants[index].key: fate for index, fate in self.fates.items()}
        self.kept.parent.mkdir(parents=True, exist_ok=True)
        self.kept.write_text(json.dumps(self.known))

    def ask_types(self, refused: Callable[..., set[int]]) -> None:
        """Ask mypy for those that lived in this run (``mutant_types.refused``)."""
        live = [i for i, fate in self.ran.items() if fate in LIVES and not self.may_live(i)]
        for index in refused(self.mutants, live, self.note):
            self.fates[index] = "refused"
        self.keep()

    def may_live(self, index: int) -> bool:
        """Whether a mutant has a reason to live."""
        return name_of(self.mutants[index]) in self.allowed

    @property
    def lives(self) -> list[Name]:
        """The mutants that live without a reason."""
        live = [index for index, fate in self.fates.items() if fate in LIVES]
        return [name_of(self.mutants[index]) for index in live if not self.may_live(index)]

    def row(self, seed: str) -> str:
        """Return the row of bench/mutants.md."""
        counts = collections.Counter(self.fates.values())
        run = counts.total() - counts["same"] - counts["invalid"]
        lives = len(self.lives)
        may_live = sum(counts[fate] for fate in LIVES) - lives
        killed = run - may_live - lives - counts["refused"]
        figures = f"{run} | {killed} | {counts['refused']} | {may_live} | {lives}"
        date = datetime.datetime.now(datetime.UTC).date()
        return f"| `{self.room}` | {date} | {seed} | {len(self.mutants)} | {figures} |"


def main() -> int:
    """Run the packages; 1 if a mutant lives that may not."""
    options = parsed()
    install()
    os.environ.update(HYPOTHESIS_PROFILE="ci", PYTHONHASHSEED="0")
    os.chdir(ROOT)
    from mutant_runs import Run
    from mutant_source import mutants_of
    from mutant_types import refused

    preload()
    allowed = read_allowed(ALLOWED)
    packages = options.room or list(ROOMS)
    rows, lives = {}, []
    for place, room in enumerate(packages):
        paths = [p for p in sorted((HOUSE / room).rglob("*.py")) if options.file in p.name]
        mutants = [mutant for path in paths for mutant in mutants_of(path)]
        name = room.replace("/", "-")
        kept = ROOT / ".cache" / "mutants" / f"{name}-fates.json"
        told = Told(room, mutants, allowed, kept, fresh=options.fresh)
        order = random.Random(options.seed).sample(range(len(mutants)), len(mutants))
        lived = [index for index in order if told.fates.get(index) in LIVES]
        fresh = [index for index in order if index not in told.fates]
        order = lived if options.lived else [*fresh, *lived]
        share = (options.ends - time.time()) / (len(packages) - place)
        told.note(f"{len(mutants)} mutants, seed {options.seed}, for at most {share:.0f} s")
        run = Run(
            mutants=mutants,
            order=order[: options.most],
            tests=ROOMS[room],
            jobs=options.jobs,
            until=time.time() + share,
            most_s=options.tests_seconds,
            folders=[HOUSE / other for other in ROOMS if ROOMS[other] is ROOMS[room]],
            kept=ROOT / ".cache" / "mutants" / f"{room.split('/')[0]}.json",
            note=told.note,
            tell=told.one,
        )
        run.all()
        told.ask_types(refused)
        for where, before, after in told.lives:
            print(f"LIVES {where}\n  - {before}\n  + {after}", flush=True)
        rows[room] = told.row(options.seed)
        lives += told.lives
        told.note(rows[room])
    if not options.file:
        write(rows, lives, allowed)
    return 1 if lives else 0


def write(rows: Mapping[str, str], lives: Sequence[Name], allowed: Allowed) -> None:
    """Write bench/mutants.md; packages that did not run keep their rows."""
    old = RESULT.read_text().splitlines() if RESULT.exists() else []
    kept = {line.split("`")[1]: line for line in old if line.startswith("| `")}
    kept.update(rows)
    living = [f"- {where}: `{before}` became `{after}`" for where, before, after in lives]
    living += [
        line for line in old if line.startswith("- ") and not line[2:].startswith(tuple(rows))
    ]
    reasons = collections.Counter(allowed.values())
    lines = [
        "# Mutants of what decides",
        "",
        "`make mutants` changes the code of these packages bit by bit and runs the tests that see "
        "each change (`scripts/mutants.py`).",
        "A run is bounded, and draws its mutants in the order of its seed, the date unless told "
        "otherwise; runs add up. `mypy`: no test noticed, and mypy --strict refuses it.",
        "",
        "| package | date | seed | mutants | run | killed | mypy | may live | live |",
        "|---|---|---|---|---|---|---|---|---|",
        *(kept[room] for room in ROOMS if room in kept),
        "",
        "## Live, and nothing says why",
        "",
        *(sorted(living) or ["None."]),
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
    """Import other projects' packages that tests need, so that forks have them already."""
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
    parser.add_argument("--fresh", action="store_true", help="run again what was killed before")
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

"""
Feed targets for some time each: by chance, or one watched by atheris.

A fault doesn't end it: each is kept once, by the place where it arose. What was done is a line of
``out/fuzz/runs.jsonl``.
"""

from __future__ import annotations

import argparse
import atexit
import hashlib
import json
import logging
import random
import resource
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "out" / "fuzz"
CPU_S = 30.0
"""CPU time that no input may take."""
MEMORY_KB = 1_500_000
"""What inputs may add to the process, which libraries fill as well."""
GROWTH_EACH = 5_000
"""One of this many inputs is repeated, and its steps are counted."""
TIMES = 8
NOTE_S = 1.0
sys.path[:1] = [str(ROOT / "tests"), str(ROOT / "lab")]


class TooLong(BaseException):
    """An input took more CPU time than any may."""


class Feeding:
    """
    Calls a target, counts, and keeps what fails.

    Args:
        name: of the target.
        how: ``chance`` or ``guided``.
    """

    def __init__(self, name: str, how: str) -> None:
        self.name, self.how = name, how
        self.inputs = 0
        self.faults: dict[str, str] = {}
        self._run: Any = None
        self._commit = _commit()
        self._noted = time.monotonic()
        self._noted_cpu = time.process_time()
        self._told = 0
        self._memory_kb = 0
        signal.signal(signal.SIGVTALRM, self._too_long)
        atexit.register(self.note)

    def begin(self, run: Any) -> None:
        """Feed this from now on."""
        self._run = run
        self._noted = time.monotonic()
        self._noted_cpu = time.process_time()

    def _too_long(self, *_: object) -> None:
        raise TooLong(f"more than {CPU_S:.0f} s of CPU time")

    def feed(self, data: bytes) -> None:
        """Call the target with one input."""
        self.inputs += 1
        signal.setitimer(signal.ITIMER_VIRTUAL, CPU_S)
        try:
            self._run(data)
            if self.inputs % GROWTH_EACH == 0:
                self._grow(data)
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:
            self._found(data, error)
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        if self.inputs % 1_000 == 0:
            self._look_at_memory(data)
        if self.inputs % 20 == 0 and time.monotonic() > self._noted + NOTE_S:
            self.note()  # atheris ends the process, and nothing is called then

    def _grow(self, data: bytes) -> None:
        """An input as many times longer takes about as many times more steps, not their square."""
        if not 20 <= len(data) <= 2_000:
            return
        once, often = self._steps(data), self._steps(data * TIMES)
        assert often <= 2 * TIMES * once + 20_000, f"{once} steps, {TIMES} times longer {often}"

    def _steps(self, data: bytes) -> int:
        count = 0

        def line(frame: Any, event: str, _: object) -> Any:
            nonlocal count
            count += 1
            return line

        before = sys.gettrace()
        sys.settrace(line)
        try:
            self._run(data)
        finally:
            sys.settrace(before)
        return count

    def _look_at_memory(self, data: bytes) -> None:
        used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        if not self._memory_kb:
            self._memory_kb = used
        elif used > self._memory_kb + MEMORY_KB:
            self._memory_kb = used
            self._found(data, MemoryError(f"{used} KB after {self.inputs} inputs"))

    def _found(self, data: bytes, error: BaseException) -> None:
        frames = traceback.extract_tb(error.__traceback__)
        ours = [f for f in frames if str(ROOT) in f.filename and "/lab/fuzzing/" not in f.filename]
        where = ours[-1] if ours else frames[-1] if frames else None
        place = f"{type(error).__name__} {where.filename}:{where.lineno}" if where else str(error)
        if place in self.faults or len(self.faults) > 50:
            return
        name = f"{self.name.replace(' ', '_')}-{hashlib.sha256(place.encode()).hexdigest()[:8]}"
        folder = OUT / "faults"
        folder.mkdir(parents=True, exist_ok=True)
        self.faults[place] = name
        if not (folder / name).exists():
            (folder / name).write_bytes(data)
            told = "".join(traceback.format_exception(error))
            (folder / f"{name}.txt").write_text(f"{told}\n{data!r}\n")
        print(f"{self.name}: {type(error).__name__}: {str(error)[:200]} ({name})", flush=True)

    def note(self) -> None:
        """Write down what was done."""
        if self._run is None or self.inputs == self._told:
            return
        line = {
            "target": self.name, "how": self.how, "inputs": self.inputs - self._told,
            "seconds": round(time.process_time() - self._noted_cpu, 2),
            "faults": sorted(self.faults.values()), "commit": self._commit,
        }  # fmt: skip
        OUT.mkdir(parents=True, exist_ok=True)
        with (OUT / "runs.jsonl").open("a") as out:
            out.write(json.dumps(line) + "\n")
        self._told, self._noted = self.inputs, time.monotonic()
        self._noted_cpu = time.process_time()


def _commit() -> str:
    words = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    return subprocess.run(words, check=False, capture_output=True, text=True).stdout.strip()


class ByChance:
    """
    Mutates seeds, kept inputs and found ones of a target at random.

    Args:
        name: of the target.
    """

    def __init__(self, name: str) -> None:
        from fuzzing.corpus import kept
        from fuzzing.table import load

        self.feeding, target = Feeding(name, "chance"), load(name)
        found = [path.read_bytes() for path in corpus(name).iterdir()]
        self._real = [*seeds_of(name), *kept(name), *found]
        self._target = target
        self._chance = random.Random(random.SystemRandom().getrandbits(64))
        self._fresh = True

    def go_on(self, seconds: float) -> None:
        """Feed for this many seconds of CPU time."""
        from fuzzing.mutation import mutated

        self.feeding.begin(self._target.run)
        if self._fresh:
            for data in self._real:
                self.feeding.feed(data)
        self._fresh = False
        until = time.process_time() + seconds
        while time.process_time() < until:
            for _ in range(20):
                self.feeding.feed(mutated(self._real, self._target.words, self._chance))
        self.feeding.note()


def seeds_of(name: str) -> list[bytes]:
    """Return a target's seeds, kept for the next time: some take ten seconds to make."""
    from fuzzing.table import load

    path = OUT / "seeds" / f"{name.replace(' ', '_')}-{_commit()}.txt"
    if path.exists():
        return [bytes.fromhex(line) for line in path.read_text().split("\n")[:-1]]
    made = list(load(name).seeds())
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{data.hex()}\n" for data in made))
    return made


def guided(name: str, seconds: float) -> None:
    """Have atheris look for inputs that reach something new; ends the process."""
    import atheris

    from fuzzing.table import TABLE

    feeding = Feeding(name, "guided")
    with atheris.instrument_imports(include=list(TABLE[name].watched)):
        from fuzzing.table import load

        target = load(name)
    from fuzzing.corpus import kept

    where = corpus(name)
    for data in [*seeds_of(name), *kept(name)]:
        (where / hashlib.sha256(data).hexdigest()[:24]).write_bytes(data[:4096])
    words = where.with_suffix(".words")
    texts = ("".join(f"\\x{byte:02x}" for byte in word) for word in target.words)
    words.write_text("".join(f'"{text}"\n' for text in texts))
    options = [
        sys.argv[0], str(where), f"-max_total_time={int(seconds)}", "-max_len=4096",
        "-verbosity=0", "-rss_limit_mb=0", "-timeout=600",
        *([f"-dict={words}"] if target.words else ()),
    ]  # fmt: skip
    atheris.Setup(options, feeding.feed)
    feeding.begin(target.run)
    atheris.Fuzz()


def corpus(name: str) -> Path:
    """Return the folder of what was found to reach something new."""
    folder = OUT / "corpus" / name.replace(" ", "_")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def main() -> int:
    """Feed; 1 where a fault was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="+")
    parser.add_argument("--seconds", type=float, default=30.0, help="of CPU time, for each")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--guided", action="store_true")
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)
    if arguments.guided:
        guided(arguments.targets[0], arguments.seconds)
        return 0
    feeders: dict[str, ByChance] = {}
    for _ in range(arguments.rounds):
        for name in arguments.targets:
            if name not in feeders:
                feeders[name] = ByChance(name)
            feeders[name].go_on(arguments.seconds)
    return 1 if any(each.feeding.faults for each in feeders.values()) else 0


if __name__ == "__main__":
    sys.exit(main())

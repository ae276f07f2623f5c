"""
Run one target with inputs nobody wrote.

First by mutating real messages at random, which is fast, then with atheris (coverage-guided) where
it can be installed, for as long. ``FUZZ_SECONDS`` is the time for each target, 60 by default; what
fails is kept in ``out/fuzz``.
"""

from __future__ import annotations

import os
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOUND = ROOT / "out" / "fuzz"
GUIDED = "--guided"
ODD = (b"\xff" * 4, b"\x7f\xff\xff\xff", b"\0" * 4, b"\x80" * 4)
sys.path.insert(0, str(ROOT / "tests"))

try:
    import atheris
except ImportError:
    atheris = None


def run(name: str) -> None:
    """Fuzz a target of tests/fuzz_targets.py; ends the process, with 0 if nothing was found."""
    seconds = int(os.environ.get("FUZZ_SECONDS", "60"))
    FOUND.mkdir(parents=True, exist_ok=True)
    if atheris is None:
        _by_chance(name, seconds)
        return
    if GUIDED not in sys.argv:
        _by_chance(name, seconds // 2)
        # A process of its own: atheris watches what is imported after it.
        os.execv(sys.executable, [sys.executable, sys.argv[0], GUIDED])
    with atheris.instrument_imports(include=["headgate.wire", "headgate.gateway"]):
        from fuzz_targets import TARGETS
    from fuzz_seeds import seeds

    corpus = tempfile.mkdtemp(prefix=f"headgate-fuzz-{name}-")
    for number, seed in enumerate(seeds(name)):
        (Path(corpus) / f"{number:05}").write_bytes(seed)
    options = [
        sys.argv[0],
        corpus,
        f"-max_total_time={seconds - seconds // 2}",
        "-max_len=4096",
        "-print_final_stats=1",
        "-verbosity=0",
        f"-artifact_prefix={FOUND}/{name}-",
    ]
    atheris.Setup(options, TARGETS[name])
    try:
        atheris.Fuzz()
    finally:
        shutil.rmtree(corpus, ignore_errors=True)


def _by_chance(name: str, seconds: int) -> None:
    from fuzz_seeds import seeds
    from fuzz_targets import TARGETS

    target, real = TARGETS[name], seeds(name)
    seed = random.SystemRandom().getrandbits(32)
    chance = random.Random(seed)
    until = time.monotonic() + seconds
    count = 0
    while time.monotonic() < until:
        for _ in range(1000):
            data = bytearray(chance.choice(real))
            for _ in range(chance.randrange(8)):
                _mutate(data, chance)
            count += 1
            try:
                target(bytes(data))
            except Exception:
                (FOUND / f"{name}-{seed}-{count}").write_bytes(data)
                print(f"{name}: input {count} of seed {seed} failed; it is in {FOUND}")
                raise
    print(
        f"{name}: {count} inputs by chance in {seconds} s, nothing found (seed {seed})", flush=True
    )


def _mutate(data: bytearray, chance: random.Random) -> None:
    at = chance.randrange(len(data) + 1)
    what = chance.randrange(5)
    if what <= 1 and data:
        data[at % len(data)] ^= chance.randrange(256)
    elif what == 2:
        data[at : at + chance.randrange(9)] = b""
    elif what == 3:
        data[at:at] = chance.randbytes(chance.randrange(9))
    else:
        data[at : at + 4] = chance.choice(ODD)

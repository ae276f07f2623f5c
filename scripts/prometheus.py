"""
See that there is a Prometheus, and its promtool, for the tests of rules: `make prometheus`.

They are looked for in the folder that HEADGATE_PROMETHEUS names, else on PATH, and linked into the
cache, where tests look. Where there is none, Debian's packages are unpacked into the cache: apt
checks signed lists and hashes, and no service is installed or started.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import chromium

from headgate.embedded.cache import cache_dir, locked

NAMES = ("prometheus", "promtool")
WAY_OUT = (
    "Tests of the alerts need prometheus and promtool: install them (Debian 12: apt-get install "
    "prometheus; newer: apt-get install prometheus promtool), or name the folder that holds them "
    "in HEADGATE_PROMETHEUS"
)


def say(text: str) -> None:
    """Print a progress line."""
    print(f"[prometheus] {text}", flush=True)


def folder() -> Path:
    """Where tests look for both programs."""
    return cache_dir() / "prometheus"


def missing() -> list[str]:
    """Return the programs that aren't in the cache or don't print their version."""
    return [name for name in NAMES if not chromium.runs(str(folder() / name))]


def link() -> None:
    """Link those that this machine has into the cache."""
    named = os.environ.get("HEADGATE_PROMETHEUS")
    for name in NAMES:
        found = str(Path(named) / name) if named else shutil.which(name)
        if found:
            (folder() / name).unlink(missing_ok=True)
            (folder() / name).symlink_to(found)


def fetch(package: str, into: Path) -> bool:
    """Fetch a package of Debian's; a new machine has no lists of packages yet."""
    return chromium.apt("download", package, cwd=into) or (
        chromium.apt("update") and chromium.apt("download", package, cwd=into)
    )


def unpack() -> None:
    """
    Unpack Debian's packages into the cache.

    Debian 12 has both programs in the package prometheus. Since Debian 13 promtool is a package of
    its own.
    """
    say("unpacking Debian's prometheus, 20 MB …")
    packages = folder() / "packages"
    unpacked = packages / "root"
    for name in NAMES:
        if chromium.runs(str(folder() / name)):
            continue
        shutil.rmtree(packages, ignore_errors=True)
        packages.mkdir()
        if not fetch(name, packages):
            continue  # main says what is missing
        for package in packages.glob("*.deb"):
            subprocess.run(["dpkg-deb", "--extract", package, unpacked], check=True)
        for program in NAMES:
            if (found := unpacked / "usr" / "bin" / program).is_file():
                (folder() / program).unlink(missing_ok=True)
                shutil.move(found, folder() / program)
    shutil.rmtree(packages, ignore_errors=True)


def main() -> int:
    """Find or bring both; 1 where that can't be done."""
    with locked("prometheus"):
        folder().mkdir(exist_ok=True)
        if os.environ.get("HEADGATE_PROMETHEUS") or missing():
            link()
        if missing() and shutil.which("apt-get"):
            unpack()
        if lacking := missing():
            print(f"error: no {' and no '.join(lacking)}. {WAY_OUT}", file=sys.stderr)
            return 1
    say(str(folder()))
    return 0


if __name__ == "__main__":
    sys.exit(main())

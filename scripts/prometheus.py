"""
See that there is a Prometheus, and its promtool, for the tests of rules: `make prometheus`.

They are looked for in the folder that HEADGATE_PROMETHEUS names, else on PATH, and linked into the
cache, where tests look. Where there is none, Debian's package is unpacked into the cache: apt
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
    "Tests of the alerts need both: install them (Debian: apt-get install prometheus), or name the "
    "folder that holds them in HEADGATE_PROMETHEUS"
)


def say(text: str) -> None:
    """Print a progress line."""
    print(f"[prometheus] {text}", flush=True)


def folder() -> Path:
    """Where tests look for both programs."""
    return cache_dir() / "prometheus"


def there() -> bool:
    """Tell whether both are in the cache and print their version."""
    return all(chromium.runs(str(folder() / name)) for name in NAMES)


def link() -> None:
    """Link those that this machine has into the cache."""
    named = os.environ.get("HEADGATE_PROMETHEUS")
    for name in NAMES:
        found = str(Path(named) / name) if named else shutil.which(name)
        if found:
            (folder() / name).unlink(missing_ok=True)
            (folder() / name).symlink_to(found)


def unpack() -> None:
    """Unpack Debian's package into the cache."""
    say("unpacking Debian's prometheus, 20 MB …")
    packages = folder() / "packages"
    packages.mkdir(exist_ok=True)
    # A new machine has no lists of packages yet.
    if not chromium.apt("download", "prometheus", cwd=packages):
        chromium.apt("update")
        chromium.apt("download", "prometheus", cwd=packages)
    for package in packages.glob("*.deb"):
        unpacked = packages / "root"
        subprocess.run(["dpkg-deb", "--extract", package, unpacked], check=True)
        for name in NAMES:
            (folder() / name).unlink(missing_ok=True)
            shutil.move(unpacked / "usr" / "bin" / name, folder() / name)
    shutil.rmtree(packages)


def main() -> int:
    """Find or bring both; 1 where that can't be done."""
    with locked("prometheus"):
        folder().mkdir(exist_ok=True)
        if os.environ.get("HEADGATE_PROMETHEUS") or not there():
            link()
        if not there() and shutil.which("apt-get"):
            unpack()
        if not there():
            print(f"error: no Prometheus was found. {WAY_OUT}", file=sys.stderr)
            return 1
    say(str(folder()))
    return 0


if __name__ == "__main__":
    sys.exit(main())

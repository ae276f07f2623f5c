"""
See that there is a Chromium for the tests that look at pages: `make browser`.

It looks in HEADGATE_CHROMIUM, then on PATH, then in the cache. Playwright, which drives it, brings
a program of its own, which needs a library that not every Debian has. Where either doesn't run,
root gets Debian's packages installed, and other users get them unpacked into the cache. In both
cases apt checks signed lists and hashes.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

from headgate.embedded.cache import cache_dir, locked

NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome", "chrome")
DEBIAN = "/usr/bin/chromium"  # where the package puts it, on PATH or not
PACKAGES = ("chromium", "libatomic1")
"""What is needed of Debian: the browser, and what Playwright's own program is linked with."""
WAY_OUT = (
    "Tests in a browser need a Chromium: install one (Debian: apt-get install chromium), or name "
    "its program in HEADGATE_CHROMIUM"
)
NO_DRIVER = (
    "Playwright's driver doesn't run, so no test in a browser can: install the library that it "
    "names (Debian: apt-get install libatomic1)"
)


def say(text: str) -> None:
    """Print a progress line."""
    print(f"[browser] {text}", flush=True)


def unpacked() -> Path:
    """Where the packages are unpacked for users other than root."""
    return cache_dir() / "chromium"


def find() -> str | None:
    """Return a Chromium that runs."""
    named = os.environ.get("HEADGATE_CHROMIUM")
    candidates = [named, *map(shutil.which, NAMES), DEBIAN, str(unpacked() / "chromium")]
    for candidate in candidates:
        if candidate and Path(candidate).is_file() and runs(candidate):
            return candidate
    return None


def runs(program: str | Path) -> bool:
    """Tell whether it prints its version."""
    environment = {**os.environ, "LD_LIBRARY_PATH": libraries()}
    try:
        done = subprocess.run(
            [program, "--version"], env=environment, capture_output=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def libraries() -> str:
    """Return LD_LIBRARY_PATH with what was unpacked; where nothing was, as it is."""
    folders = [str(path) for path in sorted((unpacked() / "root/usr/lib").glob("*-linux-gnu"))]
    return ":".join(folders + [path for path in [os.environ.get("LD_LIBRARY_PATH")] if path])


def driver_runs() -> bool:
    """Tell whether Playwright's own program starts; without Playwright nothing needs it."""
    found = importlib.util.find_spec("playwright")
    if found is None or found.origin is None:
        return True
    return runs(Path(found.origin).parent / "driver" / "node")


def apt(*arguments: str, cwd: Path | None = None) -> bool:
    """Run apt-get without questions; show its words when it fails."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    command = ["apt-get", "--quiet", "--yes", *arguments]
    done = subprocess.run(
        command, env=environment, cwd=cwd, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        print((done.stdout + done.stderr)[-2_000:], file=sys.stderr)
    return done.returncode == 0


def install() -> bool:
    """Install Debian's packages, as root."""
    say("installing Debian's chromium, about a minute …")
    return apt("update") and apt("install", "--no-install-recommends", *PACKAGES)


def unpack() -> bool:
    """Unpack the packages and what they depend on into the cache, for users other than root."""
    folder = unpacked()
    packages = folder / "packages"
    packages.mkdir(parents=True, exist_ok=True)
    plan = subprocess.run(
        ["apt-get", "--simulate", "--no-install-recommends", "install", *PACKAGES],
        capture_output=True,
        text=True,
        check=False,
    )
    names = [line.split()[1] for line in plan.stdout.splitlines() if line.startswith("Inst ")]
    if not names:
        return False
    say(f"unpacking {len(names)} of Debian's packages for a browser into {folder} …")
    if not apt("download", *names, cwd=packages):
        return False
    for package in sorted(packages.glob("*.deb")):
        subprocess.run(["dpkg-deb", "--extract", package, folder / "root"], check=True)
    shutil.rmtree(packages)
    root = folder / "root"
    program = folder / "chromium"
    if not (root / "usr/lib/chromium/chromium").exists():
        return True  # there was one already
    program.write_text(
        "#!/bin/sh\n"
        f'export LD_LIBRARY_PATH="{libraries()}"\n'
        f'exec "{root}/usr/lib/chromium/chromium" "$@"\n'
    )
    program.chmod(0o755)
    return True


def main() -> int:
    """Find or bring one; 1 where that can't be done."""
    with locked("chromium"):
        program, drives = find(), driver_runs()
        if not (program and drives) and shutil.which("apt-get"):
            (install if os.geteuid() == 0 else unpack)()
            program, drives = find(), driver_runs()
    if program is None:
        print(f"error: no Chromium was found. {WAY_OUT}", file=sys.stderr)
        return 1
    if not drives:
        print(f"error: {NO_DRIVER}", file=sys.stderr)
        return 1
    say(program)
    return 0


if __name__ == "__main__":
    sys.exit(main())

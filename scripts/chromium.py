"""
See that there is a Chromium for the tests that look at pages: `make browser`.

It looks in HEADGATE_CHROMIUM, then on PATH, then in the cache. Where there is none, root gets
Debian's package installed, and other users get it unpacked into the cache. In both cases apt checks
signed lists and hashes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from headgate.embedded.cache import cache_dir, locked

NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome", "chrome")
DEBIAN = "/usr/bin/chromium"  # where the package puts it, on PATH or not
WAY_OUT = (
    "Tests in a browser need a Chromium: install one (Debian: apt-get install chromium), or name "
    "its program in HEADGATE_CHROMIUM"
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


def runs(program: str) -> bool:
    """Tell whether it prints its version."""
    try:
        done = subprocess.run([program, "--version"], capture_output=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


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
    """Install Debian's package, as root."""
    say("installing Debian's chromium, about a minute …")
    package = ["install", "--no-install-recommends", "chromium"]
    return apt("update") and apt(*package)


def unpack() -> bool:
    """Unpack the package and what it depends on into the cache, for users other than root."""
    folder = unpacked()
    packages = folder / "packages"
    packages.mkdir(parents=True, exist_ok=True)
    plan = subprocess.run(
        ["apt-get", "--simulate", "--no-install-recommends", "install", "chromium"],
        capture_output=True,
        text=True,
        check=False,
    )
    names = [line.split()[1] for line in plan.stdout.splitlines() if line.startswith("Inst ")]
    if not names:
        return False
    say(f"unpacking Debian's chromium and {len(names) - 1} packages it needs into {folder} …")
    if not apt("download", *names, cwd=packages):
        return False
    for package in sorted(packages.glob("*.deb")):
        subprocess.run(["dpkg-deb", "--extract", package, folder / "root"], check=True)
    shutil.rmtree(packages)
    root = folder / "root"
    libraries = ":".join(str(path) for path in sorted((root / "usr/lib").glob("*-linux-gnu")))
    program = folder / "chromium"
    program.write_text(
        "#!/bin/sh\n"
        f'export LD_LIBRARY_PATH="{libraries}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"\n'
        f'exec "{root}/usr/lib/chromium/chromium" "$@"\n'
    )
    program.chmod(0o755)
    return True


def main() -> int:
    """Find or bring one; 1 where that can't be done."""
    with locked("chromium"):
        program = find()
        if program is None and shutil.which("apt-get"):
            (install if os.geteuid() == 0 else unpack)()
            program = find()
    if program is None:
        print(f"error: no Chromium was found. {WAY_OUT}", file=sys.stderr)
        return 1
    say(program)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""
Run the two commands of the README on Debian releases that have nothing but Python, make and git.

    python scripts/bare_root.py [bookworm] [trixie]

Each release gets a root folder of its own, made by debootstrap, and a clone of what is committed.
`make demo` and `make test` run in it, as root, in a mount namespace. The date and the results go to
bench/bare-root.md. It needs root, debootstrap and some 6 GB; it takes about 20 minutes a release.
"""

from __future__ import annotations

import argparse
import datetime
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import deploy_tools
from run_tests import commit_now

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "bench" / "bare-root.md"
SUITES = ("bookworm", "trixie")
# git is there wherever a repository was cloned.
PACKAGES = ("python3", "python3-venv", "make", "ca-certificates", "git")
COMMANDS = ("make demo", "make test")
# How this machine reaches its package registries, and which certificates it trusts.
PASSED_ON = (
    "PIP_INDEX_URL",
    "PIP_CERT",
    "PIP_DEFAULT_TIMEOUT",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "NO_PROXY",
    "HEADGATE_IVY_SETTINGS",
)
NETWORK = ("/etc/resolv.conf", "/etc/hosts", "/etc/pip.conf", "/etc/ssl/certs/ca-certificates.crt")
# The root is bound to itself, because Java looks for its mount point.
ENTER = """
set -e
mount --make-rprivate /
mount --bind "$1" "$1"
mount -t proc proc "$1/proc"
mount --rbind /dev "$1/dev"
mount --rbind /sys "$1/sys"
exec chroot "$1" sh -c "cd /headgate && exec $2"
"""


class Result(NamedTuple):
    """How a command ended on a release."""

    suite: str
    python: str
    command: str
    exit_code: int
    seconds: float


def prepare(suite: str, root: Path) -> None:
    """Unpack the release into `root`, and lay a clone of this commit into it."""
    base = deploy_tools.base(suite, PACKAGES)
    root.mkdir()
    subprocess.run(["tar", "-C", root, "-xf", base], check=True)
    for name in NETWORK:
        if Path(name).is_file():
            there = root / name.lstrip("/")
            there.parent.mkdir(parents=True, exist_ok=True)
            there.unlink(missing_ok=True)
            shutil.copy(name, there)
    subprocess.run(["git", "clone", "--quiet", ROOT, root / "headgate"], check=True)


def run(suite: str, root: Path, command: str) -> Result:
    """Run a command in the clone, with what it prints on this terminal."""
    environment = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    environment |= {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LANG": "C.UTF-8"}
    enter = ["unshare", "--mount", "--pid", "--fork", "sh", "-c", ENTER, "enter", str(root)]
    print(f"--- {suite}: {command}", flush=True)
    started = time.monotonic()
    done = subprocess.run([*enter, command], env=environment, stdin=subprocess.DEVNULL, check=False)
    version = subprocess.run(
        ["chroot", root, "python3", "--version"], stdout=subprocess.PIPE, text=True, check=True
    ).stdout.strip()
    return Result(suite, version, command, done.returncode, time.monotonic() - started)


def record(results: list[Result], commit: str) -> None:
    """Write the results to bench/bare-root.md; the commit is that of the clones."""
    lines = [
        "# The README's two commands on bare Debian releases",
        "",
        f"Written by `scripts/bare_root.py` on {datetime.datetime.now(datetime.UTC):%Y-%m-%d} for "
        f"commit {commit}. Each release had {', '.join(PACKAGES)} and nothing else; the times hold "
        "what each command fetched.",
        "",
        "| release | Python | command | result | seconds |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| {r.suite} | {r.python.removeprefix('Python ')} | `{r.command}` | "
        f"{'passed' if r.exit_code == 0 else f'FAILED ({r.exit_code})'} | {r.seconds:.0f} |"
        for r in results
    ]
    PAGE.write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> int:
    """Run both commands on the releases that are named, or on all; 1 if one failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("suites", nargs="*", metavar="SUITE", default=SUITES)
    suites = parser.parse_args().suites
    try:
        deploy_tools.programs(("debootstrap",))
    except deploy_tools.Missing as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    results, commit = [], commit_now().removesuffix("-dirty")
    for suite in suites:
        with tempfile.TemporaryDirectory(prefix="bare-root-", dir=deploy_tools.folder()) as made:
            root = Path(made) / suite
            prepare(suite, root)
            results += [run(suite, root, command) for command in COMMANDS]
    record(results, commit)
    for r in results:
        print(f"{r.suite:<10} {r.command:<10} exit {r.exit_code}  {r.seconds:6.0f} s", flush=True)
    return int(any(r.exit_code for r in results))


if __name__ == "__main__":
    sys.exit(main())

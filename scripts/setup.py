"""
Make the environment in .venv and fetch what later commands need: `make setup`.

Standard library only, since it runs before anything is installed. Each step leaves a stamp with a
hash of what it was made from, so a second run does nothing but compare. Packages come by pip, each
checked against the hashes in requirements/; Kafka's jars by `python -m headgate.embedded`.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMPS = VENV / "headgate-setup"
REQUIREMENTS = ROOT / "requirements"
STARTED = time.monotonic()


def say(text: str) -> None:
    """Print a progress line with the seconds since the start."""
    print(f"[setup {time.monotonic() - STARTED:4.0f} s] {text}", flush=True)


def fail(text: str) -> None:
    """End with a message."""
    print(f"error: {text}", file=sys.stderr, flush=True)
    sys.exit(1)


def step(name: str, key: str, work: Callable[[], None]) -> bool:
    """Do a step unless its stamp says that it was done from the same key."""
    stamp = STAMPS / name
    if stamp.is_file() and stamp.read_text() == key:
        return False
    stamp.unlink(missing_ok=True)
    work()
    STAMPS.mkdir(parents=True, exist_ok=True)
    stamp.write_text(key)
    return True


def hash_of(*paths: Path) -> str:
    """Hash files and the environment's path: an environment that was moved is made again."""
    digest = hashlib.sha256(str(VENV).encode())
    for path in paths:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def make_environment() -> None:
    """Make .venv; again where it is broken, was moved, or has too old a Python."""
    if VENV.exists():
        say(f"{VENV.name} was moved or is broken; making it again")
        shutil.rmtree(VENV)
    say(f"making {VENV.name} with Python {sys.version.split()[0]}")
    done = subprocess.run([sys.executable, "-m", "venv", str(VENV)], check=False)
    if done.returncode != 0:
        fail("no environment could be made; on Debian and Ubuntu install python3-venv")


def environment_works() -> bool:
    """Tell whether .venv is there, runs, and is the one that was made here."""
    if not PYTHON.exists():
        return False
    ask = "import sys, pip; print(sys.prefix); sys.exit(sys.version_info < (3, 11))"
    try:
        done = subprocess.run([PYTHON, "-c", ask], capture_output=True, text=True, check=False)
    except OSError:
        return False
    return done.returncode == 0 and Path(done.stdout.strip()).resolve() == VENV.resolve()


def pip_install(what: str, *arguments: str, total: int = 0) -> None:
    """Run pip install, and tell how far it is."""
    command = [str(PYTHON), "-m", "pip", "--disable-pip-version-check", "--no-input", "install"]
    command += ["--no-deps", "--progress-bar", "off", *arguments]
    # An index, proxy or certificate that this machine's pip is set up with stays in force.
    lines: list[str] = []
    seen = 0
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as pip:
        assert pip.stdout is not None
        for line in pip.stdout:
            lines.append(line.rstrip())
            if re.match(r"(Collecting|Requirement already satisfied)", line):
                seen += 1
                if total and (seen % 10 == 0 or seen == total):
                    say(f"{what}: {seen} of {total}")
            elif re.match(r"\s*(Building wheel|Installing collected)", line):
                say(f"{what}: {line.strip()[:60]}")
            elif found := re.match(r"\s*Downloading (\S+) \((\d{2,} MB|\d{2,}\.\d MB)\)", line):
                say(f"{what}: {Path(found[1]).name}, {found[2]}")
    if pip.returncode != 0:
        tail = "\n".join(lines[-25:])
        fail(f"pip couldn't install {what}:\n{tail}\n{hint(tail)}")


def hint(text: str) -> str:
    """Return what to do about an error of pip."""
    if "DO NOT MATCH THE HASHES" in text:
        return "A download isn't what was pinned. Nothing of it is installed; see who serves it."
    if "CERTIFICATE_VERIFY_FAILED" in text:
        return "Name your proxy's CA bundle in PIP_CERT."
    if "Temporary failure" in text or "NewConnectionError" in text or "timed out" in text:
        return "The package index is out of reach: set HTTPS_PROXY or PIP_INDEX_URL; run it again."
    if "gcc" in text or "command 'cc' failed" in text:
        return (
            "A package has no wheel for this Python: install gcc and Python's headers, or use 3.11."
        )
    return "Run `make setup` again; what is done stays done."


def install(name: str) -> bool:
    """Install what a requirements file pins, each package checked against its hashes."""
    file = REQUIREMENTS / f"{name}.txt"
    pinned = len(re.findall(r"^\S+==", file.read_text(), re.MULTILINE))

    def work() -> None:
        say(f"{name} packages: {pinned} pinned")
        # PySpark comes as source only: it's built with the pinned setuptools of build.txt.
        arguments = ["--require-hashes", "--no-build-isolation", "-r", str(file)]
        pip_install(f"{name} packages", *arguments, total=pinned)

    return step(name, hash_of(file), work)


def install_project() -> bool:
    """Install Headgate itself, editable."""

    def work() -> None:
        say("headgate itself (editable)")
        # Its first name, headgate, is another project's; one environment can't hold both.
        old = [PYTHON, "-m", "pip", "--disable-pip-version-check", "uninstall", "-qqy", "headgate"]
        subprocess.run(old, stderr=subprocess.DEVNULL, check=False)
        pip_install("headgate", "--no-build-isolation", "--editable", ".")

    return step("project", hash_of(ROOT / "pyproject.toml"), work)


def check_packages() -> None:
    """Let pip say whether the installed packages fit each other."""
    done = subprocess.run(
        [PYTHON, "-m", "pip", "--disable-pip-version-check", "check"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        fail(f"the installed packages don't fit each other:\n{done.stdout}")


def fetch_jars() -> None:
    """Fetch Kafka's jars, or see that they haven't changed."""
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    done = subprocess.run([PYTHON, "-m", "headgate.embedded"], env=environment, check=False)
    if done.returncode != 0:
        fail("Kafka's jars aren't there (see above); run `make setup` again when that is fixed")


def warm_up() -> None:
    """Prepare files that Spark, its workers and Kafka load, if they are missing: a minute, once."""
    done = subprocess.run([PYTHON, ROOT / "scripts" / "warm.py"], check=False)
    if done.returncode != 0:
        say("Spark and Kafka will start more slowly: `python scripts/warm.py` failed (see above)")


def main() -> int:
    """Do what isn't done yet."""
    with (ROOT / ".setup.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # `make test` beside `make demo`: one does the work
        if not environment_works():
            make_environment()
        changed = [install("build"), install("runtime"), install("dev"), install_project()]
        if any(changed):
            check_packages()
        fetch_jars()
        warm_up()
    say("ready" if any(changed) else "ready (nothing to do)")
    return 0


if __name__ == "__main__":
    sys.exit(main())

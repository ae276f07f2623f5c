"""
Build the wheel and the sdist twice, compare them byte by byte, and let the index's own tools check.

The second build is made from the first one's sdist, unpacked in another folder, at another time,
with another umask, time zone, language and order of hashes.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PINS = ROOT / "requirements" / "package.txt"
TOOLS = ROOT / ".cache" / "package-tools"
BILL = "kafka-headgate.cdx.json"
SUMS = "SHA256SUMS"
OTHERWISE = {"TZ": "Asia/Kathmandu", "LC_ALL": "C", "PYTHONHASHSEED": "17", "HOME": "/nowhere"}
LONG_AGO_S = 1_000_000_000  # what the second build's files are dated: 2001
VALIDATE = """
import sys
from pathlib import Path
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
wrong = JsonStrictValidator(SchemaVersion.V1_6).validate_str(Path(sys.argv[1]).read_text())
sys.exit(str(wrong) if wrong else 0)
"""


class Failed(Exception):
    """A command failed; holds its output."""


class Built(NamedTuple):
    """What a release consists of."""

    wheel: Path
    sdist: Path
    bill: Path


def run(command: list[str | Path], cwd: Path = ROOT, **more: object) -> str:
    """Run a command that has to succeed; return what it printed."""
    done = subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        **more,  # type: ignore[call-overload]
    )
    if done.returncode != 0:
        raise Failed(f"{' '.join(map(str, command))}\nended with {done.returncode}:\n{done.stdout}")
    return str(done.stdout)


def build(source: Path, out: Path, *, umask: int = 0o022, **environment: str) -> list[Path]:
    """
    Build wheel and sdist with the Hatchling of this environment.

    Args:
        source: a checkout or an unpacked sdist.
        out: folder for the two files.
        umask: of the process that builds.
        environment: variables to set.

    Returns:
        The two files, sorted by name.
    """
    env = {**os.environ, **environment}
    env.pop("SOURCE_DATE_EPOCH", None)  # Hatchling's own fixed time, here and for all who rebuild
    run([sys.executable, "-m", "hatchling", "build", "-d", out], source, env=env, umask=umask)
    return sorted(out.iterdir())


def build_otherwise(sdist: Path, folder: Path) -> list[Path]:
    """Build again from an sdist; whatever may differ between two machines differs here."""
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    (source,) = folder.iterdir()
    for path in [source, *source.rglob("*")]:
        path.chmod(path.stat().st_mode & 0o700)
        os.utime(path, (LONG_AGO_S, LONG_AGO_S))
    return build(source, folder / "out of another build", umask=0o077, **OTHERWISE)


def compare(first: list[Path], second: list[Path]) -> None:
    """
    Compare two builds.

    Raises:
        Failed: they aren't the same bytes; names the members that differ.
    """
    if [path.name for path in first] != [path.name for path in second]:
        raise Failed(f"one build gives {first}, the other {second}")
    for one, other in zip(first, second, strict=True):
        if one.read_bytes() != other.read_bytes():
            before, after = members(one), members(other)
            order = "the order of its members"
            found = [name for name in {**before, **after} if before.get(name) != after.get(name)]
            raise Failed(f"{one.name} differs between two builds: {', '.join(found) or order}")


def members(archive: Path) -> dict[str, tuple[str, int, object]]:
    """Return what an archive holds: hash, mode and time of each member, by its name."""

    def digest(content: bytes) -> str:
        return hashlib.sha256(content).hexdigest()

    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as file:
            return {
                one.filename: (digest(file.read(one)), one.external_attr, one.date_time)
                for one in file.infolist()
            }
    with tarfile.open(archive) as file:
        found = {}
        for one in file.getmembers():
            content = file.extractfile(one)
            found[one.name] = (digest(content.read() if content else b""), one.mode, one.mtime)
        return found


def tools(pins: Path = PINS, folder: Path = TOOLS) -> Path:
    """
    Return the folder of programs that check, in an environment that is made when missing.

    Args:
        pins: what it holds, with hashes.
        folder: the environment's.
    """
    stamp = folder / "made-from"
    key = hashlib.sha256(f"{folder} {sys.version} {pins.read_text()}".encode()).hexdigest()
    if not stamp.is_file() or stamp.read_text() != key:
        shutil.rmtree(folder, ignore_errors=True)
        run([sys.executable, "-m", "venv", "--without-pip", folder])
        install = [
            "install",
            "--quiet",
            "--no-deps",
            "--no-compile",
            "--require-hashes",
            "-r",
            pins,
        ]
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input"]
        run([*pip, "--python", folder / "bin" / "python", *install])
        stamp.write_text(key)
    return folder / "bin"


def check(built: Built, say: Callable[[str], None]) -> None:
    """
    Let the tools look at wheel, sdist and bill of materials.

    Raises:
        Failed: one of them found something.
    """
    program = tools()
    environment = {**os.environ, "PATH": f"{program}:{os.environ['PATH']}"}
    checks: list[list[str | Path]] = [
        [program / "twine", "check", "--strict", built.wheel, built.sdist],
        [program / "check-wheel-contents", built.wheel],
        # The project has no public page and no author's address yet.
        [program / "pyroma", "--min=10", "--skip-tests=AuthorEmail,Url", built.sdist],
        [program / "python", "-c", VALIDATE, built.bill],
    ]
    if (ROOT / ".git").exists():
        # An sdist's own tests have no checkout to compare it with.
        checks.append([program / "check-manifest", "--no-build-isolation", ROOT])
    for command in checks:
        run(command, env=environment)
    names = [*(Path(command[0]).name for command in checks if "-c" not in command), "cyclonedx"]
    say(f"{built.wheel.name}, {built.sdist.name}: {', '.join(names)} found nothing")


def take_bill(wheel: Path, folder: Path) -> Path:
    """Take the bill of materials out of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        (inside,) = (name for name in archive.namelist() if name.endswith(f"/sboms/{BILL}"))
        out = folder / BILL
        out.write_bytes(archive.read(inside))
    return out


def make(folder: Path, say: Callable[[str], None]) -> Built:
    """
    Build, compare with a second build, and check.

    Args:
        folder: an empty one; ``dist`` in it takes the files.
        say: told what was done.

    Raises:
        Failed: the builds differ, or a tool found something.
    """
    first = build(ROOT, folder / "dist")
    sdist, wheel = sorted(first, key=lambda path: path.suffix)
    compare(first, build_otherwise(sdist, folder / "again"))
    say(f"{wheel.name}, {sdist.name}: the same bytes in two builds")
    refuse_private(sdist)
    built = Built(wheel, sdist, take_bill(wheel, folder / "dist"))
    check(built, say)
    return built


def refuse_private(sdist: Path) -> None:
    """
    Refuse an sdist that holds private or generated files.

    Raises:
        Failed: names it.
    """
    private = re.compile(r"(^|/)(\.cache|\.venv|\.git|__pycache__|out|dist|\.env[^/]*)(/|$)|\.pyc$")
    found = [name for name in members(sdist) if private.search(name.partition("/")[2])]
    if found:
        raise Failed(f"{sdist.name} has {', '.join(found)}")


def keep(built: Built, dist: Path) -> list[Path]:
    """Put what was built into dist/, in place of what an earlier run left, with checksums."""
    dist.mkdir(exist_ok=True)
    for pattern in ("kafka_headgate-*", "*.cdx.json", SUMS):
        for old in dist.glob(pattern):
            old.unlink()
    kept = [Path(shutil.copy(path, dist)) for path in built]
    sums = (f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in kept)
    (dist / SUMS).write_text("".join(sums))
    return [*kept, dist / SUMS]

"""
Kafka's jars: fetched once by the Ivy inside PySpark, checked against hashes kept in the package.

``pins/kafka-VERSION.txt`` names every jar: its SHA-256, its coordinates and its file. Those of
Delta, of Hadoop's S3 client and of an S3 server are pinned beside them, for tests. Ivy gets exactly
these, one by one, so nothing is resolved again.

Ivy's own default (or ``HEADGATE_IVY_SETTINGS``) says where to fetch them, so no file here names a
host. ``python -m headgate.embedded`` fetches; ``make pins`` resolves again and rewrites the pins.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from headgate.embedded.cache import cache_dir, locked
from headgate.embedded.java import Java, find_java
from headgate.embedded.process import EmbeddedError
from headgate.embedded.truststore import truststore_options
from headgate.files import write_whole

KAFKA_4 = "4.3.1"
KAFKA_3 = "3.9.2"
VERSIONS = (KAFKA_4, KAFKA_3)
CLIENTS = ("3.0.2", "2.8.2", "2.1.1")
"""Kafkas of which only clients and tools are used; each is fetched when it is first used."""

DELTA = "delta-4.4.0"
"""Delta for Spark 4.2, pinned in the same way."""
S3A = "s3a-3.5.0"
"""What ``s3a://`` needs beside the Hadoop that PySpark brings; half a gigabyte."""
S3PROXY = "s3proxy-2.7.0"
"""An S3 server over a folder."""

_AGAIN_S = (2.0, 10.0)  # pauses before the second and the third try
_DISTRUST = re.compile(r"PKIX|SSLHandshake|trustAnchors|unable to find valid cert")
PINS = Path(__file__).parent / "pins"
_PKIX_HINT = (
    "The Java in use ({java}) doesn't trust the certificate it was shown, as behind a proxy with "
    "a CA of its own. Name a PEM bundle that holds this CA in HEADGATE_CA_BUNDLE (or "
    "SSL_CERT_FILE), or set JAVA_HOME to a Java that trusts it"
)
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Pin:
    """One jar: its hash, where it comes from in Maven's terms, its file name."""

    sha256: str
    coordinates: str
    file: str


def folder_of(version: str) -> str:
    """Return the name of a Kafka's jars (or others') in the cache and among the pins."""
    return version if version in (DELTA, S3A, S3PROXY) else f"kafka-{version}"


def _title(version: str) -> str:
    return folder_of(version).replace("-", " ").capitalize()


def read_pins(version: str) -> tuple[Pin, ...]:
    """
    Return the jars that make up a Kafka.

    Args:
        version: one of `VERSIONS` or `CLIENTS`.

    Raises:
        EmbeddedError: we have no pins for this version.
    """
    path = PINS / f"{folder_of(version)}.txt"
    if not path.is_file():
        raise EmbeddedError(f"no embedded Kafka {version}; there are {', '.join(VERSIONS)}")
    lines = path.read_text().splitlines()
    return tuple(Pin(*line.split()) for line in lines if line and not line.startswith("#"))


def ensure_jars(version: str = KAFKA_4, *, progress: Progress | None = None) -> Path:
    """
    Return the folder with a Kafka's jars, fetched when missing and verified.

    Hashes are compared after the fetch; later, files whose size and time haven't changed since are
    taken as they are, and others are hashed again.

    Args:
        version: one of `VERSIONS` or `CLIENTS`.
        progress: told what is going on; stderr by default.

    Raises:
        EmbeddedError: they couldn't be fetched, or a jar isn't what the pins say.
    """
    say = progress or to_stderr
    pins = read_pins(version)
    folder = cache_dir() / folder_of(version)
    if _unchanged(folder, pins):
        return folder
    with locked(folder_of(version)):
        if _unchanged(folder, pins):
            return folder
        if folder.is_dir() and not (wrong := _mismatches(folder, pins)):
            _stamp(folder, pins)
            return folder
        if folder.is_dir():
            say(f"{_title(version)}: {len(wrong)} jars in {folder} are not what they were; again")
        _fetch(version, pins, folder, say)
    return folder


def classpath(version: str = KAFKA_4) -> str:
    """
    Return the class path of a Kafka, fetched when missing.

    Args:
        version: one of `VERSIONS` or `CLIENTS`.
    """
    return f"{ensure_jars(version)}/*"


def to_stderr(text: str) -> None:
    """Print a line of progress; a ready ``progress`` for commands."""
    print(text, file=sys.stderr, flush=True)  # noqa: T201 - progress of a fetch that takes a minute


def sha256(path: Path) -> str:
    """Return a file's hash."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _mismatches(folder: Path, pins: Iterable[Pin]) -> list[str]:
    """Names of jars that are missing, differ, or don't belong."""
    expected = {pin.file: pin.sha256 for pin in pins}
    wrong = [
        name
        for name, digest in expected.items()
        if not (folder / name).is_file() or sha256(folder / name) != digest
    ]
    return wrong + [jar.name for jar in folder.glob("*.jar") if jar.name not in expected]


def _state(folder: Path, pins: Iterable[Pin]) -> str:
    """What the quick check compares: the pins, and each file's size and time."""
    lines = []
    for pin in pins:
        try:
            stat = (folder / pin.file).stat()
        except OSError:
            return ""
        lines.append(f"{pin.sha256} {pin.file} {stat.st_size} {stat.st_mtime_ns}")
    return "\n".join(lines)


def _unchanged(folder: Path, pins: Iterable[Pin]) -> bool:
    stamp = folder / ".verified"
    return stamp.is_file() and stamp.read_text() == _state(folder, pins)


def _stamp(folder: Path, pins: Iterable[Pin]) -> None:
    write_whole(folder / ".verified", _state(folder, pins).encode())


def _fetch(version: str, pins: tuple[Pin, ...], folder: Path, say: Progress) -> None:
    """Fetch what is missing, in three tries; what has come is kept for the next try or run."""
    kept = cache_dir() / f"{folder_of(version)}.part"
    kept.mkdir(exist_ok=True)
    for name in _mismatches(kept, pins):
        (kept / name).unlink(missing_ok=True)
    _keep(folder, pins, kept)
    started = time.monotonic()
    lines: list[str] = []
    wrong: list[str] = []
    for pause_s in (0.0, *_AGAIN_S):
        missing = _missing(kept, pins)
        if not missing or any(map(_DISTRUST.search, lines)):
            break
        if lines:
            say(f"  {_title(version)}: {len(missing)} of {len(pins)} jars didn't come; these again")
            time.sleep(pause_s)
        else:
            say(f"{_title(version)}: fetching {len(missing)} jars, about a minute …")
        module = ivy_module(pin.coordinates for pin in missing)
        # A new Ivy cache each time: what a broken fetch leaves in one makes later fetches fail.
        with tempfile.TemporaryDirectory(dir=cache_dir(), prefix="fetch-") as work:
            _, lines = run_ivy(version, module, Path(work), say)
            wrong = _keep(Path(work), missing, kept)
    if wrong:
        raise EmbeddedError(
            f"{_title(version)}: what was fetched isn't what headgate/embedded/pins says: "
            f"{', '.join(sorted(wrong))}. Nothing of it is used. If a mirror is in between "
            "(HEADGATE_IVY_SETTINGS, a proxy), look at what it serves"
        )
    if missing := _missing(kept, pins):
        raise EmbeddedError(
            f"{explain(find_java(), lines)}\n{len(pins) - len(missing)} of {len(pins)} jars have "
            "come and are kept; the next run fetches the rest"
        )
    if folder.exists():
        shutil.rmtree(folder)
    kept.rename(folder)
    _stamp(folder, pins)
    say(f"{_title(version)}: {len(pins)} jars, verified, {time.monotonic() - started:.0f} s")


def _missing(folder: Path, pins: Iterable[Pin]) -> list[Pin]:
    return [pin for pin in pins if not (folder / pin.file).is_file()]


def _keep(source: Path, pins: Iterable[Pin], kept: Path) -> list[str]:
    """Move the jars below a folder that have the pinned hash; return the names of others."""
    wrong = []
    for pin in pins:
        found = list(source.rglob(pin.file))
        fitting = [jar for jar in found if sha256(jar) == pin.sha256]
        if fitting:
            fitting[0].replace(kept / pin.file)
        elif found:
            wrong.append(pin.file)
    return wrong


def ivy_module(coordinates: Iterable[str]) -> str:
    """Return Ivy's order for exactly these jars, without what they depend on."""
    root = ET.Element("ivy-module", version="2.0")
    ET.SubElement(root, "info", organisation="headgate", module="kafka", revision="1")
    ET.SubElement(ET.SubElement(root, "configurations"), "conf", name="default")
    dependencies = ET.SubElement(root, "dependencies")
    for one in coordinates:
        org, name, rev = one.split(":")
        where = {"org": org, "name": name, "rev": rev}
        ET.SubElement(dependencies, "dependency", where, transitive="false", conf="default->master")
    return ET.tostring(root, encoding="unicode")


def run_ivy(name: str, module: str, work: Path, say: Progress, *more: str) -> tuple[int, list[str]]:
    """Let Ivy fetch a module's jars into ``work/ivy``; returns its exit status and its lines."""
    java = find_java()
    (work / "ivy.xml").write_text(module)
    command: list[str | Path] = [
        java.executable,
        *truststore_options(java),
        *_proxy_options(),
        f"-Divy.default.ivy.user.dir={work}/ivy",
        "-jar",
        _ivy_jar(),
        *_settings(),
        "-ivy",
        work / "ivy.xml",
        "-confs",
        "default",
        *more,
    ]
    fetched = 0
    lines: list[str] = []
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as ivy:
        assert ivy.stdout is not None
        for line in ivy.stdout:
            lines.append(line.rstrip())
            if "[SUCCESSFUL ]" in line:
                fetched += 1
                if fetched % 10 == 0:
                    say(f"  {_title(name)}: {fetched} jars")
    return ivy.returncode, lines


def explain(java: Java, lines: list[str]) -> str:
    """Return what went wrong in Ivy's lines, and the way out."""
    text = "\n".join(lines)
    shown = [
        re.sub(r"\bhttps?://\S+", "…", line.strip())
        for line in lines
        if re.search(r"Exception|not found|error|FAILED", line, re.IGNORECASE)
    ]
    causes = "\n".join(f"  {line}" for line in list(dict.fromkeys(shown))[:8])
    message = f"Ivy couldn't fetch the jars:\n{causes or text[-2_000:]}"
    if _DISTRUST.search(text):
        return f"{message}\n{_PKIX_HINT.format(java=java)}"
    if re.search(r"UnknownHost|ConnectException|timed? ?out|unreachable", text, re.IGNORECASE):
        return (
            f"{message}\nThe network seems out of reach: set HTTPS_PROXY, or HEADGATE_IVY_SETTINGS "
            "to an ivysettings file that names a mirror, or copy the cache folder "
            f"({cache_dir()}) from a machine where `python -m headgate.embedded` has run"
        )
    return message


def _ivy_jar() -> Path:
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise EmbeddedError(
            "PySpark isn't installed, and it brings Ivy: pip install 'kafka-headgate[embedded]'"
        )
    found = sorted((Path(spec.origin).parent / "jars").glob("ivy-*.jar"))
    if not found:
        raise EmbeddedError("this PySpark holds no Ivy (jars/ivy-*.jar); reinstall it")
    return found[-1]


def _settings() -> list[str]:
    settings = os.environ.get("HEADGATE_IVY_SETTINGS")
    return ["-settings", settings] if settings else []


def _proxy_options() -> list[str]:
    """Java's spelling of the proxy that HTTPS_PROXY names."""
    proxy = os.environ.get("HTTPS_PROXY") or os.environ.get("https_proxy") or ""
    found = re.fullmatch(r"(?:https?://)?([^:/@]+):(\d+)/?", proxy)
    if not found:
        return []
    return [f"-Dhttps.proxyHost={found[1]}", f"-Dhttps.proxyPort={found[2]}"]

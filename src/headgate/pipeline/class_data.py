"""
Keep Spark's Java classes in an archive that the JVM maps into memory, instead of parsing jars.

Loading and verifying some ten thousand classes is half of what starting Spark costs. The JVM's own
remedy (class data sharing, JDK 13 and newer) is an archive that one run writes and later ones map.
``make setup`` has it written; without it Spark only starts more slowly.
"""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from typing import Final

from headgate.embedded.cache import cache_dir
from headgate.embedded.java import options_to_use_classes
from headgate.pipeline.spark_versions import spark_home

# The first JDK with -XX:ArchiveClassesAtExit.
_MIN_JAVA: Final = 13


def archive() -> Path | None:
    """
    Return where the archive for this Java and this Spark lies, or would lie.

    Returns:
        None where the Java isn't known (no JAVA_HOME) or too old, or there's no folder for it.
    """
    home = os.environ.get("JAVA_HOME")
    if not home:
        return None
    program = Path(home) / "bin" / "java"
    release = program.resolve().parents[1] / "release"
    try:
        text = release.read_text() if release.is_file() else program.read_text(errors="replace")
        jars, folder = _jars(), cache_dir()
    except OSError:
        return None
    version = re.search(r'^JAVA_VERSION="(\d+)', text, re.MULTILINE)
    if version and int(version[1]) < _MIN_JAVA:
        return None
    key = hashlib.sha256(repr((text, jars)).encode()).hexdigest()[:16]
    return folder / f"spark-classes-{key}.jsa"


def _jars() -> list[tuple[str, int, int]]:
    """Return name, size and time of Spark's jars: the JVM takes an archive for the same only."""
    home = spark_home()
    folder = Path() if home is None else home / "jars"
    found = ((p.name, p.stat()) for p in folder.glob("*.jar"))
    return sorted((name, stat.st_size, int(stat.st_mtime)) for name, stat in found)


def options() -> list[str]:
    """Return the JVM's options to use the archive; none where there isn't one."""
    path = archive()
    return [] if path is None else options_to_use_classes(path)

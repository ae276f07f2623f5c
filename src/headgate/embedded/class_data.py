"""
Keep Kafka's Java classes in an archive that Java maps into memory, instead of parsing jars.

Loading and verifying its classes is 40 % of what starting a broker or a tool costs. Java's own
remedy (class data sharing) is an archive that one run writes and later ones map. ``make setup`` has
it written; without it brokers and tools only start more slowly.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from headgate.embedded.cache import cache_dir
from headgate.embedded.jars import ensure_jars, folder_of
from headgate.embedded.java import find_java, options_to_use_classes


def archive(version: str) -> Path:
    """
    Return where the archive for this Java and a Kafka's jars lies, or would lie.

    Args:
        version: one of ``jars.VERSIONS`` or ``jars.CLIENTS``.
    """
    java = find_java()
    release = java.home.resolve() / "release"
    told = release.read_text() if release.is_file() else str(java)
    # Java takes an archive for the same jars only, told by path, size and time.
    stats = ((str(jar), jar.stat()) for jar in ensure_jars(version).glob("*.jar"))
    jars = sorted((path, stat.st_size, stat.st_mtime_ns) for path, stat in stats)
    key = hashlib.sha256(repr((told, jars)).encode()).hexdigest()[:16]
    return cache_dir() / f"{folder_of(version)}-classes-{key}.jsa"


def options(version: str) -> list[str]:
    """
    Return Java's options to use a Kafka's archive; none where there isn't one.

    Args:
        version: one of ``jars.VERSIONS`` or ``jars.CLIENTS``.
    """
    return options_to_use_classes(archive(version))

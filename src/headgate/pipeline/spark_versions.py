"""
What a version of Spark lacks, and which PySpark is used.

A cluster's Spark is what its owner gives: PySpark 3.5 to 4.3 work. What a version lacks is refused
alone, by ``refuse``, with the version that has it; ``LACKED`` is the whole list.
"""

from __future__ import annotations

import os
import re
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple

from headgate.errors import ConfigError

Version = tuple[int, int]
OLDEST: Final[Version] = (3, 5)
"""The first version that can be used: the first with all SQL functions that answers use."""
NEWEST: Final[Version] = (4, 3)
"""The last version that was tried; a newer one is tried where it is found."""


class Lacked(NamedTuple):
    """
    Something that not every version of Spark has.

    Args:
        what: of it, for a sentence that begins ``Spark 3.5 has no …``.
        since: the first version that has it.
        instead: what to do with an older version.
    """

    what: str
    since: Version
    instead: str


DATA_SOURCE: Final = Lacked(
    "data sources in Python",
    (4, 0),
    "read files by hp.requests(spark, path)",
)
BOUNDED_STREAM: Final = Lacked(
    "streams of a Python data source that are told where to go on",
    (4, 2),
    "read the whole directory each time: --requests DIR, or hp.requests(spark, path)",
)
ARROW_FRAMES: Final = Lacked("frames made of Arrow tables", (4, 0), "make them of rows")
LACKED: Final = (DATA_SOURCE, BOUNDED_STREAM, ARROW_FRAMES)
"""All that an older version lacks; nobody is refused the last, which has a slower way."""

_ICEBERG: Final = "org.apache.iceberg:iceberg-spark-runtime-"
# A format's package for each Spark that has one; 3.5 as PySpark's packages bring it, with Scala
# 2.12.
_PACKAGES: Final[dict[str, dict[Version, str]]] = {
    "delta": {
        (3, 5): "io.delta:delta-spark_2.12:3.3.2",
        (4, 0): "io.delta:delta-spark_4.0_2.13:4.4.0",
        (4, 1): "io.delta:delta-spark_4.1_2.13:4.4.0",
        (4, 2): "io.delta:delta-spark_4.2_2.13:4.4.0",
    },
    "iceberg": {
        (3, 5): f"{_ICEBERG}3.5_2.12:1.12.0",
        (4, 0): f"{_ICEBERG}4.0_2.13:1.10.1",
        (4, 1): f"{_ICEBERG}4.1_2.13:1.12.0",
    },
}
# Formats of which no release runs on a Spark, and why.
_NONE: Final[dict[tuple[str, Version], str]] = {
    ("iceberg", (4, 2)): (
        "no release of Iceberg runs on Spark 4.2: the newest, 1.12.0, is made for Spark 4.1 and "
        "ends in IncompatibleClassChangeError; write Delta or Parquet, or use Spark 4.1"
    ),
}


def read_version(text: str) -> Version | None:
    """Return major and minor of a version such as ``3.5.2-amzn-1``; None: it isn't one."""
    found = re.match(r"(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else None


def lacks(version: str, feature: Lacked) -> str | None:
    """
    Say what a version of Spark lacks, and the way out.

    Args:
        version: Spark's or PySpark's, as it calls itself.
        feature: what is needed.

    Returns:
        A sentence; None: the version has it, or doesn't look like a version.
    """
    known = read_version(version)
    if known is None or known >= feature.since:
        return None
    return (
        f"Spark {version} has no {feature.what}, which came with Spark "
        f"{_plain(feature.since)}; {feature.instead}"
    )


def refuse(needing: str, version: str, *features: Lacked) -> None:
    """
    Refuse what a version of Spark lacks.

    Args:
        needing: what was asked for, such as ``--topic``.
        version: Spark's, or PySpark's.
        features: what that needs.

    Raises:
        ConfigError: the version lacks one.
    """
    for feature in features:
        why = lacks(version, feature)
        if why is not None:
            raise ConfigError(f"{needing}: {why}")


def refuse_format(format: str, version: str) -> None:
    """
    Refuse a format of which no release runs on a version of Spark.

    Args:
        format: parquet, delta or iceberg.
        version: Spark's.

    Raises:
        ConfigError: says why, and the way out.
    """
    why = _NONE.get((format, read_version(version) or OLDEST))
    if why is not None:
        raise ConfigError(f"format {format}: {why}")


def way_to(format: str, version: str, fetch: str, give: str) -> str:
    """
    Say how a Spark comes to have Delta or Iceberg.

    Args:
        format: delta or iceberg.
        version: Spark's.
        fetch: the setting that has packages fetched, such as ``--packages {}``.
        give: what gives Spark jars, such as ``--jars PATH,PATH``.
    """
    known, packages = read_version(version), _PACKAGES[format]
    if known not in packages:
        return (
            f"No {format.capitalize()} for Spark {version} is known here; if there is one, give "
            f"its jars by {give}"
        )
    return (
        f"Let Spark fetch it by {fetch.format(packages[known])} (for Spark {_plain(known)}), or "
        f"give jars of your own by {give}"
    )


def spark_home() -> Path | None:
    """Return the Spark whose JVM is started: SPARK_HOME, else PySpark's own; None: there's none."""
    given = os.environ.get("SPARK_HOME")
    return Path(given) if given else _package()


def use_spark_home(path: list[str]) -> None:
    """
    Put the PySpark of SPARK_HOME before others, as spark-submit does.

    PySpark starts the JVM of SPARK_HOME, and doesn't fit a JVM of another version. A SPARK_HOME
    without a PySpark, such as that of an installed package, changes nothing.

    Args:
        path: as ``sys.path``; changed.
    """
    given = os.environ.get("SPARK_HOME")
    if not given:
        return
    folder = Path(given) / "python"
    if not (folder / "pyspark" / "__init__.py").is_file():
        return
    found = [str(folder), *map(str, sorted((folder / "lib").glob("py4j-*.zip")))]
    path[:] = [*found, *(entry for entry in path if entry not in found)]


def installed() -> str | None:
    """Return the version of the PySpark that is imported, or would be; None: there is none."""
    loaded = sys.modules.get("pyspark")
    if loaded is not None:  # workers have it in a zip
        return str(loaded.__version__)
    package = _package()
    if package is None:
        return None
    try:
        text = (package / "version.py").read_text(encoding="utf-8")
    except OSError:
        return ""
    found = re.search(r"^__version__\b[^=]*=\s*['\"]([^'\"]+)", text, re.MULTILINE)
    return found[1] if found else ""


def check(needing: str, *, sources: bool = False) -> None:
    """
    Check the PySpark that would be imported.

    Args:
        needing: what was asked for, for messages.
        sources: whether that is a data source in Python.

    Raises:
        ModuleNotFoundError: there is no PySpark.
        ConfigError: its version can't be used, or lacks data sources.
    """
    version = installed()
    if version is None:
        raise ModuleNotFoundError("No module named 'pyspark'", name="pyspark")
    known = read_version(version)
    if known is not None and known < OLDEST:
        package, home = _package(), os.environ.get("SPARK_HOME")
        named = bool(home) and package is not None and package.is_relative_to(str(home))
        way_out = "SPARK_HOME names it: unset that" if named else "Upgrade it"
        raise ConfigError(
            f"the PySpark in {package} is {version}, and Headgate needs Spark {_plain(OLDEST)} or "
            f"newer. {way_out}, or name another Spark by SPARK_HOME"
        )
    if sources:
        refuse(needing, version, DATA_SOURCE)


def prepare(command: str) -> None:
    """
    Choose a command's PySpark before it is imported, and check it.

    Raises:
        ModuleNotFoundError: there is none.
        ConfigError: its version can't be used.
    """
    if "pyspark" not in sys.modules:
        use_spark_home(sys.path)
    check(command)
    home = spark_home()
    jars = [] if home is None else sorted((home / "jars").glob("spark-core_*.jar"))
    jar = re.match(r"spark-core_[\d.]+-(\d+\.\d+)", jars[0].name) if jars else None
    own = read_version(installed() or "")
    if jar and own and read_version(jar[1]) != own:
        raise ConfigError(
            f"SPARK_HOME={home} is Spark {jar[1]} without a PySpark of its own, and the PySpark in "
            f"{_package()} is {installed()}: the two don't fit. Unset SPARK_HOME, or install "
            f"PySpark {jar[1]}"
        )


def _package() -> Path | None:
    spec = find_spec("pyspark")
    return Path(spec.origin).parent if spec is not None and spec.origin else None


def _plain(version: Version) -> str:
    return ".".join(map(str, version))

"""
Check, before Spark starts, that tables can be written and that disks have room.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from headgate.cli.pipeline.print import number
from headgate.pipeline.tables.folders import local_path
from headgate.pipeline.tables.lake import LAKES, is_name

_S3A: Final = (
    "it needs jars of Spark's Hadoop, such as by --spark-conf "
    "spark.jars.packages=org.apache.hadoop:hadoop-aws:VERSION"
)
# Stores of objects, where a rename is a copy of each file.
_OBJECTS: Final = ("s3a", "gs", "abfs", "abfss", "wasb", "wasbs", "oss", "cosn", "obs")


def unwritable(out: str, format: str = "parquet", *, growing: bool = False) -> list[str]:
    """
    Make the directory for tables; return a sentence for each thing that prevents it.

    Args:
        out: a local path, or a URI, whose file system Spark knows better; or a catalog's name.
        format: the tables'.
        growing: the input grows; what is remembered is kept there too, and renamed in each round.
    """
    local = local_path(out)
    if local is None:
        scheme = out.partition("://")[0]
        if scheme in ("s3", "s3n"):
            return [f"--out {out}: to Spark that is s3a://{out.partition('://')[2]}; {_S3A}"]
        if growing and scheme in _OBJECTS:
            return [
                f"--out {out}: --incremental and --follow rename what they keep, and {scheme}:// "
                "can't in one step; give a directory or hdfs://"
            ]
        return []
    if format in LAKES and is_name(out):
        if growing:
            said = "--incremental and --follow keep what they read there; give a directory"
            return [f"--out {out} is a catalog's name, and {said} (./{out}, if it is one)"]
        said = f"a catalog's name, and there is a file or folder {out}; write ./{out} for that"
        return [f"--out {out}: {said}"] if Path(out).exists() else []
    path = Path(local).absolute()
    there = next(p for p in (path, *path.parents) if p.exists())
    if not there.is_dir():
        which = "is" if there == path else f"{there} is"
        return [f"--out {out}: {which} a file; give a directory for the tables"]
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as exc:
        why = exc.strerror or exc
        return [f"--out {out}: can't be written to ({why}); give another directory for the tables"]
    return []


# Bytes of text per byte of a compressed log: request lines are much alike.
_UNPACKED: Final = 20.0
# What a run takes of a log's bytes, measured on real brokers' logs and rounded up: in its tables,
# with what is kept there for a second look; and in Spark's own files, which it shuffles.
_TABLES: Final = {"replay": 0.16, "requests": 0.12, "what-if": 0.06}
_SPARKS: Final = {"replay": 0.1, "recommend": 0.05}
_TABLES_ELSE, _SPARKS_ELSE = 0.03, 0.03
_LEAST_BYTES: Final = 64e6
_COMPRESSED: Final = (".gz", ".zst", ".bz2", ".lz4", ".xz", ".lzma")


def too_small(command: str, out: str, files: Iterable[tuple[str, int]], spark: str) -> list[str]:
    """
    Say which disk has too little room for a run.

    Args:
        command: its name.
        out: where its tables are written; the older ones stay until the new ones are complete.
        files: (path, bytes) of what it reads.
        spark: folder of Spark's own files; "": the system's.
    """
    text = sum(size * (_UNPACKED if p.endswith(_COMPRESSED) else 1.0) for p, size in files)
    spark = spark or tempfile.gettempdir()
    wants: dict[int, tuple[float, str, list[str]]] = {}
    for flag, place, share in (
        ("--out", out, _TABLES.get(command, _TABLES_ELSE)),
        ("--spark-conf spark.local.dir", spark, _SPARKS.get(command, _SPARKS_ELSE)),
    ):
        place = local_path(place) or ""
        if not place or not Path(place).is_dir():
            continue
        disk = Path(place).stat().st_dev
        needed, _, names = wants.get(disk, (0.0, "", []))
        wants[disk] = (needed + text * share, place, [*names, f"{flag} {place}"])
    found = []
    for needed, place, names in wants.values():
        free = shutil.disk_usage(place).free
        needed += _LEAST_BYTES
        if free < needed:
            found.append(
                f"{' and '.join(names)}: the run needs about {number(needed / 1e6)} MB there, and "
                f"{number(free / 1e6)} MB are free; make room, or give another place"
            )
    return found

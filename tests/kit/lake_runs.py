"""
Run commands that write tables of a format, in a Spark that has it; print what is in the tables.

`python lake_runs.py FORMAT JARS LOG QUOTAS FOLDER CATALOG.DB`: JARS as Spark's `spark.jars` has
them. CATALOG.DB is made. More arguments are Spark settings, NAME=VALUE.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headgate.cli.main import main
from headgate.pipeline.tables import lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run(*words: str) -> str:
    """Run a command; return what it wrote to stderr."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        status = main(list(words))
    return f"{status} {said.getvalue()}"


def ask() -> None:
    """Write to a path and to a catalog: overwrite, append, merge; read it again for a report."""
    from pyspark.sql import SparkSession

    import headgate.pipeline as hp

    format, jars, log, quotas, place, named, *settings = sys.argv[1:]
    lines = Path(log).read_bytes().splitlines(keepends=True)
    half = Path(place) / "half.log"
    half.write_bytes(b"".join(lines[:1200]))
    other = Path(place) / "other.log"
    other.write_bytes(b"".join(lines).replace(lines[0][1:11], b"2031-01-02"))
    conf = [f"spark.jars={jars}", *settings]
    flags = ["--format", format, "--quotas", quotas, "--master", "local[2]"]
    flags += [word for name in conf for word in ("--spark-conf", name)]
    flags += ["--partition-by", "day", "--requests"]
    found: dict[str, Any] = {"said": []}

    def counts(out: str, table: str) -> list[tuple[str, int]]:
        spark: SparkSession = SparkSession.builder.getOrCreate()
        name = lake.identifier(spark, f"{out}{'.' if lake.is_name(out) else '/'}{table}", format)
        rows = spark.read.table(name).groupBy("day").sum("requests").orderBy("day").collect()
        return [(str(row[0]), int(row[1])) for row in rows]

    outs = (f"{place}/tables", named)
    ways = (("overwrite", half), ("append", other), ("merge", log))
    for number, out in enumerate(outs):
        for way, source in ways:
            said = run("usage", "--out", out, "--mode", way, *flags, str(source))
            found["said"].append(said)
            spark = SparkSession.builder.getOrCreate()
            found[f"{number} {way}"] = [counts(out, "usage"), counts(out, "usage_day")]
        page = ["report", "--tables", out, "--out", f"{place}/{number}.html"]
        found[f"{number} report"] = run(*page, "--format", format)
    found["said"].append(run("storms", "--out", outs[0], *flags, str(half)))
    rows = spark.read.table(lake.identifier(spark, f"{outs[0]}/summary", format))
    found["summary"] = sorted({row["command"] for row in rows.collect()})
    found["runs"] = [path.name for path in Path(place).glob("*/run-*")]
    found["left"] = sorted(path.name for path in Path(outs[0]).iterdir())
    found["plain report"] = run("report", "--tables", outs[0], "--out", f"{place}/x.html")
    used = hp.usage(hp.requests(spark, log, broker_id=1), quotas)
    key = ("quota_type", "quota_id", "broker_id", "second_ms")
    for table in (f"{place}/written", f"{named}.written"):
        for part in (used.where("second_ms % 2000 = 0"), used):
            hp.write(part, table, format=format, mode="merge", key=key)
        name = lake.identifier(spark, table, format)
        found.setdefault("written", []).append(spark.read.table(name).count())
    found["rows"] = used.count()
    print(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    ask()

"""
Usage from raw request logs: Headgate on Spark beside DuckDB and spark.read.json, one after another.

    python bench/pipeline/bench_usage.py [--gb 1] [--times 3] [--log FILE] [--without duckdb]

What `make setup` makes ready (``scripts/warm.py``) is made first where it isn't
there. With --times all go several times in turn, and the ratios are those of the medians. The log
is the test's real one, repeated with later times; --make FILE only writes it. All end with bytes
and requests per (principal, client-id, quota type, second); Headgate and DuckDB must agree on the
rows, the bytes produced, the requests and the throttle time.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import datetime, timedelta
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from cpu import tree_cpu

SUMS = ("bytes", "requests", "throttle_ms", "rows")
ROOT = Path(__file__).parents[2]
LOG = ROOT / "tests/data/pipeline/public.log.gz"
_TYPE = (
    '{"requestHeader":{"requestApiKeyName":"VARCHAR","requestApiVersion":"INTEGER",'
    '"clientId":"VARCHAR"},"request":{"transactionalId":"VARCHAR","topicData":[{"name":"VARCHAR",'
    '"partitionData":[{"recordsSizeInBytes":"BIGINT"}]}]},"principal":"VARCHAR",'
    '"sendTimeMs":"DOUBLE","responseQueueTimeMs":"DOUBLE","throttleTimeMs":"BIGINT"}'
)
_DUCKDB = f"""
create macro v(n) as case when n < 128 then 1 when n < 16384 then 2 when n < 2097152 then 3
  when n < 268435456 then 4 else 5 end;
copy (
  with lines as (
    select epoch_ms(line[2:20]::timestamp) + line[22:24]::int as log_ms,
      from_json(line[strpos(line, '{{'):length(line) - 23], '{_TYPE}') as j
    from read_csv('%s', columns = {{'line': 'varchar'}}, delim = '\x01', quote = '', escape = '',
      header = false, auto_detect = false, max_line_size = 16777216)),
  sized as (
    select j.principal as principal, j.requestHeader.clientId as client_id,
      case j.requestHeader.requestApiKeyName when 'PRODUCE' then 'producer_byte_rate'
        when 'FETCH' then 'consumer_byte_rate' when 'CREATE_TOPICS' then 'controller_mutation_rate'
        when 'DELETE_TOPICS' then 'controller_mutation_rate'
        when 'CREATE_PARTITIONS' then 'controller_mutation_rate'
        else 'request_percentage' end as quota_type,
      j.throttleTimeMs as throttle_ms,
      floor((log_ms - j.sendTimeMs - j.responseQueueTimeMs) / 1000) as second,
      case when j.requestHeader.requestApiKeyName = 'PRODUCE' then
        11 + strlen(j.requestHeader.clientId)
        + case when j.request.transactionalId is null then 1 else
            v(strlen(j.request.transactionalId) + 1) + strlen(j.request.transactionalId) end
        + 7 + v(len(j.request.topicData) + 1)
        + list_sum(list_transform(j.request.topicData, lambda t:
            case when j.requestHeader.requestApiVersion >= 13 then 16
                 else v(strlen(t.name) + 1) + strlen(t.name) end
            + v(len(t.partitionData) + 1) + 1
            + list_sum(list_transform(t.partitionData, lambda p:
                5 + v(p.recordsSizeInBytes + 1) + p.recordsSizeInBytes))))
      else 0 end as bytes
    from lines)
  select principal, client_id, quota_type, second, count(*) as requests,
    sum(bytes)::bigint as bytes,
    sum(throttle_ms) as throttle_ms
  from sized group by all
) to '%s' (format parquet)
"""


def make_log(out: Path, gigabytes: float) -> Path:
    """Write the log again and again, each time seven minutes later."""
    text = gzip.decompress(LOG.read_bytes()).decode()
    lines = text.splitlines()
    written, n = 0, 0
    with out.open("w") as file:
        while written < gigabytes * 1e9:
            later = timedelta(minutes=7 * n)
            known: dict[str, str] = {}
            for line in lines:
                stamp = line[1:20]
                if stamp not in known:
                    known[stamp] = str(datetime.fromisoformat(stamp) + later)
                file.write(f"[{known[stamp]}{line[20:]}\n")
                written += len(line) + 1
            n += 1
    return out


def duckdb_usage(log: str, out: str) -> dict[str, float]:
    import duckdb

    db = duckdb.connect()
    db.execute("set threads = 2")
    cpu, wall = tree_cpu(), time.perf_counter()
    for statement in (_DUCKDB % (log, f"{out}/duckdb.parquet")).split(";\n"):
        db.execute(statement)
    figures = {"cpu_s": tree_cpu() - cpu, "wall_s": time.perf_counter() - wall}
    told = "sum(throttle_ms) filter (quota_type like '%byte_rate')"
    sums = f"sum(bytes), sum(requests), {told}, count(*)"
    found = db.execute(f"select {sums} from '{out}/duckdb.parquet'").fetchone()
    return figures | dict(zip(SUMS, map(int, found), strict=True))


def session() -> tuple[object, float]:
    from headgate.embedded import spark_env

    os.environ.update(spark_env())
    from headgate.pipeline.session import open_session

    cpu = tree_cpu()
    spark = open_session("bench", master="local[2]", log=Path(tempfile.gettempdir()) / "bench.log")
    spark.range(2).count()
    return spark, tree_cpu() - cpu


def headgate_usage(log: str, out: str) -> dict[str, float]:
    spark, start = session()
    from pyspark.sql import functions as F

    from headgate.pipeline import frames
    from headgate.pipeline.sources.files import find_files
    from headgate.pipeline.sources.pieces import pieces_of
    from headgate.pipeline.workers.log_reader import ReadOptions

    cpu, wall = tree_cpu(), time.perf_counter()
    emitted = frames.emit_activity(spark, ReadOptions(tuple(pieces_of(find_files([log])))))
    keys = ("principal", "client_id", "quota_type", "second_ms")
    sums = frames.sums_of(emitted).groupBy(*keys).sum("requests", "bytes", "throttle_time_ms")
    names = (*keys, "requests", "bytes", "throttle_time_ms")
    sums.toDF(*names).write.parquet(f"{out}/headgate")
    figures = {
        "cpu_s": tree_cpu() - cpu,
        "wall_s": time.perf_counter() - wall,
        "start_cpu_s": start,
    }
    produced = F.when(F.col("quota_type") == "producer_byte_rate", F.col("bytes"))
    # What changes of topics were told stands inside their answers, which the SQL doesn't read.
    told = F.when(F.col("quota_type").like("%byte_rate"), F.col("throttle_time_ms"))
    found = (
        spark.read.parquet(f"{out}/headgate")
        .agg(F.sum(produced), F.sum("requests"), F.sum(told), F.count(F.lit(1)))
        .first()
    )
    return figures | dict(zip(SUMS, map(int, found), strict=True))


def spark_json(log: str, out: str) -> dict[str, float]:
    spark, start = session()
    from pyspark.sql import functions as F

    schema = (
        "requestHeader struct<requestApiKeyName:string,requestApiVersion:int,clientId:string>,"
        "request struct<topicData:array<struct<name:string,partitionData:array<struct<"
        "recordsSizeInBytes:bigint>>>>>, principal string, sendTimeMs double, "
        "responseQueueTimeMs double, throttleTimeMs bigint"
    )
    stripped = f"{out}/stripped.json"
    with Path(log).open() as source, Path(stripped).open("w") as target:
        for line in source:
            target.write(line[line.index("{") : line.rindex("}") + 1] + "\n")
    cpu, wall = tree_cpu(), time.perf_counter()
    frame = spark.read.schema(schema).json(stripped)
    sizes = F.flatten(
        F.transform("request.topicData", lambda t: t.partitionData.recordsSizeInBytes)
    )
    frame.select(
        "principal", "requestHeader.clientId", "requestHeader.requestApiKeyName", "throttleTimeMs",
        F.aggregate(sizes, F.lit(0).cast("long"), lambda a, b: a + b).alias("bytes"),
    ).groupBy("principal", "clientId", "requestApiKeyName").agg(
        F.sum("bytes"), F.sum("throttleTimeMs")
    ).toDF("a", "b", "c", "d", "e").write.parquet(f"{out}/json")  # fmt: skip
    return {
        "cpu_s": tree_cpu() - cpu,
        "wall_s": time.perf_counter() - wall,
        "start_cpu_s": start,
        "bytes": 0,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gb", type=float, default=1.0)
    parser.add_argument("--log", help="a log written before")
    parser.add_argument("--make", help="write the log to this file, and end")
    parser.add_argument("--times", type=int, default=1, help="how often, in turn")
    parser.add_argument("--without", action="append", default=[], help="leave one out")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--out", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    contestants = {
        "duckdb": duckdb_usage,
        "headgate": headgate_usage,
        "spark.read.json": spark_json,
    }
    if arguments.one:
        print(json.dumps(contestants[arguments.one](arguments.log, arguments.out)))
        return
    if arguments.make:
        make_log(Path(arguments.make), arguments.gb)
        return
    subprocess.run([sys.executable, ROOT / "scripts" / "warm.py"], check=True)
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as folder:
        given = arguments.log
        log = Path(given) if given else make_log(Path(folder) / "request.log", arguments.gb)
        names = [name for name in contestants if name not in arguments.without]
        compare(log, folder, names, arguments.times)


def compare(log: Path, folder: str, names: list[str], times: int) -> None:
    """Run the contestants one after another; print what each took, and the ratios."""
    megabytes = log.stat().st_size / 1e6
    found: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    for n in range(times):
        for name in names:
            out = Path(folder) / str(n)
            out.mkdir(exist_ok=True)
            argv = [sys.executable, __file__, "--one", name, "--log", str(log), "--out", str(out)]
            done = subprocess.run(argv, capture_output=True, text=True, check=True)
            r = json.loads(done.stdout.splitlines()[-1])
            found[name].append(r)
            print(
                f"{name:16} {megabytes:8,.0f} MB  {r['cpu_s']:6.2f} CPU-s  {r['wall_s']:6.1f} s  "
                f"{megabytes / r['cpu_s']:6.0f} MB per CPU-s  "
                f"(session: {r.get('start_cpu_s', 0):.1f} CPU-s)",
                flush=True,
            )
            shutil.rmtree(out)
    cpu = {name: statistics.median(r["cpu_s"] for r in runs) for name, runs in found.items()}
    ours = cpu["headgate"]
    if "duckdb" in cpu:
        for name in SUMS:
            values = {r[name] for c in ("headgate", "duckdb") for r in found[c]}
            if len(values) > 1:
                sys.exit(f"{name} differ: {sorted(values)}")
        whole = statistics.median(r["cpu_s"] + r["start_cpu_s"] for r in found["headgate"])
        print(
            f"headgate / duckdb           {ours / cpu['duckdb']:5.2f}  "
            "(asked for: at most 1 from 1 GB on)\n"
            f"the session's start with it {whole / cpu['duckdb']:5.2f}  "
            "(asked for: at most 1 from 5 GB on)"
        )
        r = found["headgate"][0]
        print(
            f"equal: {r['rows']:,} rows, {r['bytes']:,} bytes, {r['requests']:,} requests, "
            f"{r['throttle_ms']:,} ms"
        )
    if "spark.read.json" in cpu:
        ratio = cpu["spark.read.json"] / ours
        print(f"spark.read.json / headgate  {ratio:5.2f}  (asked for: at least 3)")


if __name__ == "__main__":
    main()

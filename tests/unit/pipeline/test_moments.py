"""TIMESTAMP columns beside milliseconds, as workers write them."""

from __future__ import annotations

import datetime
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from headgate.pipeline import schema
from headgate.pipeline.tables.worker_files import Part, finish

DAY = datetime.datetime(2001, 9, 9, 1, 46, 40, tzinfo=datetime.UTC)


def test_every_time_of_a_written_table_has_its_moment() -> None:
    for table in schema.TABLES.values():
        names = table.timed.names
        assert [n for n in names if not n.endswith("_at")] == list(table.names)
        docs = {column.name: column.doc for column in table.columns}
        for name in table.names:
            is_epoch = name.endswith("_ms") and "epoch ms" in docs[name]
            assert (f"{name[:-3]}_at" in names) == is_epoch, name
    assert schema.SUMMARY.timed.names == schema.SUMMARY.names


def test_a_moment_is_to_the_microsecond_and_null_where_its_time_is() -> None:
    rows = schema.REQUESTS.batch(3, {"record_ms": [1e12, 1e12 + 0.0014, None]})
    found = schema.REQUESTS.with_moments(rows)["record_at"].to_pylist()
    assert found == [DAY, DAY + datetime.timedelta(microseconds=1), None]


def test_workers_files_have_moments_also_where_there_is_no_row(tmp_path: Path) -> None:
    part = Part(schema.USAGE, str(tmp_path))
    part.add(schema.USAGE.batch(1, {"second_ms": [10**12]}))
    (name,) = part.close()
    written = pq.read_table(tmp_path / "usage" / name)
    assert written["second_at"].to_pylist() == [DAY]
    assert written.schema.names == list(schema.USAGE.timed.names)
    told = written.schema.metadata[b"org.apache.spark.sql.parquet.row.metadata"].decode()
    fields = {field["name"]: field["type"] for field in json.loads(told)["fields"]}
    assert fields["second_at"] == "timestamp"
    finish(schema.USAGE, str(tmp_path / "none"), [])
    empty = pq.read_table(tmp_path / "none" / "usage")
    assert (len(empty), empty.schema.field("second_at").type) == (0, pa.timestamp("us", tz="UTC"))

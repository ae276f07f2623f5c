"""A Delta table's files by its log: overwritten ones don't count, unknown features are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headgate.errors import ConfigError
from headgate.pipeline.report import read_tables
from headgate.pipeline.report.delta import is_delta, live_files
from headgate.pipeline.schema import USAGE


def commit(folder: Path, version: int, *actions: dict[str, Any]) -> None:
    log = folder / "_delta_log"
    log.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(action) for action in actions]
    (log / f"{version:020d}.json").write_text("\n".join(lines) + "\n")


def add(path: str, **more: Any) -> dict[str, Any]:
    return {"add": {"path": path, "partitionValues": {}, "size": 1, "dataChange": True, **more}}


def remove(path: str) -> dict[str, Any]:
    return {"remove": {"path": path, "dataChange": True}}


PROTOCOL = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
META = {"metaData": {"id": "1", "format": {"provider": "parquet"}, "configuration": {}}}


def names(folder: Path) -> list[str]:
    return sorted(Path(path).name for path in live_files(folder))


def test_files_are_added_and_removed_commit_by_commit(tmp_path: Path) -> None:
    commit(tmp_path, 0, PROTOCOL, META, add("a.parquet"), add("b%20c.parquet"))
    commit(tmp_path, 1, remove("a.parquet"), add("d.parquet"))
    assert names(tmp_path) == ["b c.parquet", "d.parquet"]
    assert is_delta(tmp_path)
    assert not is_delta(tmp_path / "_delta_log")


@pytest.mark.parametrize("parts", [1, 2])
def test_a_checkpoint_stands_for_the_commits_before_it(tmp_path: Path, parts: int) -> None:
    rows: list[dict[str, Any]] = [PROTOCOL, META, add("a.parquet"), add("b.parquet")]
    for part in range(parts):
        mine = rows[part::parts]
        table = pa.Table.from_pylist(
            [{n: r.get(n) for n in ("add", "remove", "protocol")} for r in mine],
            schema=pa.schema(
                [
                    ("add", pa.struct([("path", pa.string())])),
                    ("remove", pa.struct([("path", pa.string())])),
                    ("protocol", pa.struct([("minReaderVersion", pa.int32())])),
                ]
            ),
        )
        (tmp_path / "_delta_log").mkdir(exist_ok=True)
        middle = "" if parts == 1 else f"{part + 1:010d}.{parts:010d}."
        pq.write_table(table, tmp_path / "_delta_log" / f"{10:020d}.checkpoint.{middle}parquet")
    commit(tmp_path, 10, add("old.parquet"))  # is in the checkpoint, or removed again
    commit(tmp_path, 11, remove("b.parquet"), add("c.parquet"))
    assert names(tmp_path) == ["a.parquet", "c.parquet"]


@pytest.mark.parametrize(
    ("actions", "why"),
    [
        ([add("a.parquet", deletionVector={"storageType": "u"})], "deletion vectors"),
        ([{"metaData": {"configuration": {"delta.columnMapping.mode": "name"}}}], "mapped"),
        ([{"protocol": {"minReaderVersion": 3, "readerFeatures": ["v2Checkpoint"]}}], "v2Check"),
        ([{"protocol": {"minReaderVersion": 9}}], "know more"),
        ([add("s3://elsewhere/a.parquet")], "outside"),
        ([add("../secret.parquet")], "outside"),
        ([add("a/%2E%2E/../secret.parquet")], "outside"),
        ([add("%2Fetc/secret.parquet")], "outside"),
        ([["add"]], "commit 0 of its Delta log"),
        ([{"add": 5}], "commit 0 of its Delta log"),
    ],
)
def test_what_isnt_known_is_refused(
    tmp_path: Path, actions: list[dict[str, Any]], why: str
) -> None:
    commit(tmp_path, 0, *actions)
    with pytest.raises(ValueError, match=why):
        live_files(tmp_path)


def test_a_log_with_gaps_is_refused(tmp_path: Path) -> None:
    commit(tmp_path, 0, add("a.parquet"))
    commit(tmp_path, 2, add("b.parquet"))
    with pytest.raises(ValueError, match="gaps"):
        live_files(tmp_path)


def test_a_report_reads_the_live_files_only_and_says_the_way_out(tmp_path: Path) -> None:
    usage = tmp_path / "usage"
    usage.mkdir()
    row = dict.fromkeys(USAGE.names) | {
        "quota_type": "producer_byte_rate",
        "quota_id": "alice:",
        "broker_id": 1,
        "second_ms": 1_700_000_000_000,
        "requests": 3,
        "bytes": 30,
        "amount": 30.0,
    }
    for name in ("old", "new"):
        table = pa.Table.from_pylist([row], schema=USAGE.arrow)
        pq.write_table(table, usage / f"{name}.parquet")
    commit(usage, 0, PROTOCOL, META, add("old.parquet"))
    commit(usage, 1, remove("old.parquet"), add("new.parquet"))
    assert read_tables(tmp_path).tables["usage"].num_rows == 1
    commit(usage, 2, add("new.parquet", deletionVector={"storageType": "u"}))
    with pytest.raises(ConfigError, match=r"deletion vectors.*; write it with --format parquet"):
        read_tables(tmp_path)

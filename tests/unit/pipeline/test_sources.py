"""How many tasks read a run's inputs: all cores have work, and no task is for nothing."""

from __future__ import annotations

import pytest

from headgate.pipeline.frames import tasks_for
from headgate.pipeline.sources.pieces import FilePiece

LOG = FilePiece("a.log", 0, 8 << 20)
GZIP = FilePiece("a.log.gz", 0, -1, compression="gzip")
JOURNAL = FilePiece("a.arrow", 0, -1, "journal")
TABLE = FilePiece("a.parquet", 0, 1, "requests")


@pytest.mark.parametrize(
    ("pieces", "cores", "tasks"),
    [
        ([], 2, 1),
        ([LOG], 2, 1),
        ([LOG] * 6, 2, 2),
        ([LOG] * 128, 2, 6),  # 1 GB
        ([LOG] * 640, 2, 16),
        ([LOG] * 128, 64, 64),
        ([GZIP] * 5, 2, 5),
        ([GZIP] * 50, 2, 16),
        ([LOG] * 24 + [JOURNAL] * 3, 2, 4),
        ([TABLE] * 3, 4, 3),
        ([TABLE] * 50, 2, 4),
    ],
)
def test_how_many_tasks(pieces: list[FilePiece], cores: int, tasks: int) -> None:
    assert tasks_for(pieces, cores) == tasks

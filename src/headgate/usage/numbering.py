"""
The number with which a worker's next run begins, so that no number is used twice.
"""

from __future__ import annotations

import logging
from pathlib import Path

import pyarrow as pa

from headgate.usage import files
from headgate.usage.retention import noted_number

log = logging.getLogger("headgate.usage")


def next_number(directory: Path, worker_id: str, most: int, *, gap: bool) -> int:
    """
    Return the number a new run begins with.

    Args:
        directory: the journal's.
        worker_id: the worker of this journal.
        most: events that a file may hold at most. If the last file is damaged, this many numbers
            are left out, because it is unknown how many it held, and no number may be used twice.
        gap: leave one number out, because the last run didn't end normally, so that a loss shows.

    Raises:
        FileNotFoundError: the last file was compacted or removed meanwhile.
    """
    last = 0
    aside = [file for file in files.set_aside(directory) if file.worker_id == worker_id]
    damaged = [file.first_seq for file in aside][-1:]
    mine = [file for file in files.journal_files(directory) if file.worker_id == worker_id]
    if mine:
        newest = mine[-1]
        last = newest.first_seq - 1
        damage: str | None = None
        if newest.suffix == files.CLOSED:
            closed = files.ClosedBatches(newest.path)
            for batch in closed:
                last = batch.column("seq")[-1].as_py()
            damage = closed.damage
        else:
            try:
                for batch in files.read_batches(newest):
                    last = batch.column("seq")[-1].as_py()
            except FileNotFoundError:
                raise
            except (pa.ArrowException, OSError) as exc:
                damage = str(exc)
        if damage is not None:
            damaged = [newest.first_seq]
        elif damaged and damaged[0] < newest.first_seq:
            damaged = []
    noted = noted_number(directory, worker_id)
    if damaged:
        log.error("journal %s: its last file is damaged; its next number is far higher", worker_id)
        return max(last + 1, damaged[0], noted) + most
    return max(last + (2 if gap else 1), noted)

"""
Say what a round of a growing input is: what it reads, and what is remembered of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from headgate.pipeline.table import make_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

INPUTS: Final = make_table(
    "inputs",
    "What was read: a row per file, and of a journal's one per start of a broker in it.",
    ("folder", "string", "where the file lies; of a topic, its name"),
    ("worker_id", "string", "whose journal it is; of a log, its name"),
    ("first_seq", "long", "of a journal's first event; of a log, -1; -2: not read"),
    ("broker_id", "int", "of a start event; -1: of all brokers"),
    ("seq", "long", "of a start event; of a log, bytes of text read; null: none"),
    ("t_ms", "long", "of a start event; of a log, when it was read, epoch ms"),
    ("head", "string", "of a log, what tells it from others"),
    ("device", "long", "of a log"),
    ("inode", "long", "of a log"),
)


class Input(NamedTuple):
    """A row of INPUTS."""

    folder: str
    worker_id: str
    first_seq: int
    broker_id: int | None
    seq: int | None
    t_ms: int | None
    head: str | None = None
    device: int | None = None
    inode: int | None = None


class Round(Protocol):
    """What a micro-batch brought, to be read as sums or as requests."""

    def activity(self, *, connections: bool) -> DataFrame:
        """Return EMITTED_ACTIVITY, in rows."""

    def requests(self) -> DataFrame:
        """Return EMITTED_REQUESTS."""

    def inputs(self) -> Sequence[Input]:
        """Return what to remember for later rounds."""


class Query(Protocol):
    """What follows an input, in a thread of its own; Spark's StreamingQuery is one."""

    @property
    def isActive(self) -> bool:
        """Say whether it goes on."""

    def awaitTermination(self, timeout: int | None = None) -> bool | None:
        """Wait for its end, ``timeout`` seconds at most."""

    def stop(self) -> None:
        """End it, in the middle of a round if need be."""

    def exception(self) -> Exception | None:
        """Return the exception that ended it; None: none did."""

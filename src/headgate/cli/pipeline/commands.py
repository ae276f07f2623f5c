"""
The pipeline's commands: usage, replay, what-if, recommend, chargeback, storms, effective, splits.

Each reads request logs or journals, runs one transform on Spark, writes its tables and prints a
closing table. Here they are by name; each lives in a room of its own beside this one.
"""

from __future__ import annotations

from headgate.cli.pipeline.answers import main_chargeback, main_effective, main_storms
from headgate.cli.pipeline.recommend import main_recommend
from headgate.cli.pipeline.replay import main_replay
from headgate.cli.pipeline.splits import main_splits
from headgate.cli.pipeline.usage import main_usage
from headgate.cli.pipeline.what_if import main_what_if

__all__ = [
    "main_chargeback",
    "main_effective",
    "main_recommend",
    "main_replay",
    "main_splits",
    "main_storms",
    "main_usage",
    "main_what_if",
]

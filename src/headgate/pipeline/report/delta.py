"""
Say which files a Delta table consists of now, from its log; no Spark, no Delta library.

Overwriting a Delta table leaves the old files where they were: the log alone says which count.
Known are checkpoints of one or several Parquet files and commits after them. What needs more than
a list of files (deletion vectors, renamed columns, newer checkpoints) is refused.

Source: Delta Transaction Log Protocol, "Action Reconciliation".
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import pyarrow.parquet as pq

from headgate.errors import MALFORMED

LOG: Final = "_delta_log"
_COMMIT: Final = re.compile(r"(\d{20})\.json")
_CHECKPOINT: Final = re.compile(r"(\d{20})\.checkpoint(?:\.\d{10}\.(\d{10}))?\.parquet")
# Reader features that change nothing in which files count and how they are read.
_HARMLESS: Final = frozenset({"timestampNtz", "vacuumProtocolCheck", "deletionVectors"})


def is_delta(folder: Path) -> bool:
    """Say whether a folder is a Delta table."""
    return (folder / LOG).is_dir()


def live_files(folder: Path) -> list[str]:
    """
    Return the table's files, in no particular order.

    Raises:
        ValueError: the log is incomplete, or needs more than this reader knows.
    """
    commits, checkpoints = _listed(folder / LOG)
    since = max(checkpoints, default=-1)
    live: set[str] = set()
    actions = _of_checkpoint(checkpoints[since]) if checkpoints else iter(())
    later = sorted(v for v in commits if v > since)
    if later != list(range(since + 1, since + 1 + len(later))) or (not later and not checkpoints):
        raise ValueError("its Delta log has gaps")
    for action in actions:
        _apply(action, live)
    for version in later:
        for line in commits[version].read_text(encoding="utf-8").splitlines():
            try:
                _apply(json.loads(line), live)
            except MALFORMED as exc:
                raise ValueError(f"commit {version} of its Delta log: {exc}") from exc
    return [str(folder / path) for path in live]


def _listed(log: Path) -> tuple[dict[int, Path], dict[int, list[Path]]]:
    """Return commits by version, and complete checkpoints by version."""
    commits: dict[int, Path] = {}
    parts: dict[int, list[Path]] = {}
    wanted: dict[int, int] = {}
    for path in log.iterdir():
        if found := _COMMIT.fullmatch(path.name):
            commits[int(found[1])] = path
        elif found := _CHECKPOINT.fullmatch(path.name):
            parts.setdefault(int(found[1]), []).append(path)
            wanted[int(found[1])] = int(found[2] or 1)
    return commits, {v: paths for v, paths in parts.items() if len(paths) == wanted[v]}


def _of_checkpoint(paths: list[Path]) -> Iterator[dict[str, Any]]:
    """Yield a checkpoint's actions that matter here."""
    names = ("add", "remove", "metaData", "protocol")
    for path in paths:
        have = [n for n in names if n in pq.read_schema(path).names]
        yield from pq.read_table(path, columns=have).to_pylist()


def _apply(action: dict[str, Any], live: set[str]) -> None:
    if add := action.get("add"):
        if add.get("deletionVector"):
            raise ValueError("it has deletion vectors")
        live.add(_path(add["path"]))
    if remove := action.get("remove"):
        live.discard(_path(remove["path"]))
    if meta := action.get("metaData"):
        configuration = dict(meta.get("configuration") or {})
        if configuration.get("delta.columnMapping.mode", "none") != "none":
            raise ValueError("its columns are mapped to other names")
    if protocol := action.get("protocol"):
        unknown = set(protocol.get("readerFeatures") or ()) - _HARMLESS
        if unknown or protocol.get("minReaderVersion", 1) > 3:
            raise ValueError(f"it needs readers that know {', '.join(sorted(unknown)) or 'more'}")


def _path(text: str) -> str:
    """Return an action's path, which is a URL relative to the table."""
    path = unquote(text)
    if "://" in path or path.startswith("/") or ".." in path.split("/"):
        raise ValueError(f"it names a file outside of its folder: {path}")
    return path

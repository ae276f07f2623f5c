"""
Find logs and journals that begin as another does: copies, by mistake or on purpose.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from headgate.errors import ConfigError


class Beginning(NamedTuple):
    """
    How a file begins: its first request or event (nothing: there is none), and its bytes.

    ``is_compressed`` as its first bytes say, whatever its name.
    """

    path: str
    first: bytes
    size: int
    is_compressed: bool = False


def unread_copies(files: Iterable[Beginning], how: str) -> dict[str, str]:
    """
    Say which files aren't read because another is, and why.

    Args:
        files: in order of name, so that ``x`` comes before ``x.gz``, which counts as one with it.
        how: ``refuse`` other copies, read the largest ``once``, or ``count`` them all.

    Raises:
        ConfigError: for each file that is refused, all at once.
    """
    groups: dict[bytes, list[Beginning]] = defaultdict(list)
    for file in files:
        if file.first:
            groups[file.first].append(file)
    unread: dict[str, str] = {}
    refused = []
    for group in groups.values():
        there = {file.path for file in group}
        plain = []
        for file in group:
            original = file.path.rpartition(".")[0]
            if file.is_compressed and original in there:
                unread[file.path] = f"it is {original}, compressed, which is read"
            else:
                plain.append(file)
        kept = max(plain, key=lambda file: file.size)
        for file in plain:
            if file is kept or how == "count":
                continue
            unread[file.path] = f"it begins as {kept.path} does, which is read"
            refused.append(f"--requests {file.path} begins with what {kept.path} begins with")
    if refused and how == "refuse":
        hint = (
            "Are they copies? Leave some out, or give --copies once (the largest counts) or "
            "--copies count (all do)"
        )
        raise ConfigError([*refused, hint])
    return unread

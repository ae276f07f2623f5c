"""KIP-55's "Sample configuration" as the KIP prints it: paths in ZooKeeper, and the JSON there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from headgate.quota.entity import entity_from_path
from headgate.quota.table import QuotaTable
from headgate.store.zookeeper.layout import KAFKA_HOME, decode_config, decode_values

TEXT: Final = (Path(__file__).parents[1] / "data" / "kip55_sample.txt").read_text(encoding="utf-8")
_ENTRY = re.compile(r"^// Zookeeper persistence path (\S+)\n(\{.*?^\})", re.DOTALL | re.MULTILINE)
NODES: Final[dict[str, bytes]] = {
    # The names in the sample are the same when they are encoded.
    re.sub(r"<encoded-(\w+)>", r"\1", path): data.encode()
    for path, data in _ENTRY.findall(TEXT)
}


def table() -> QuotaTable:
    """Return the sample's quotas, read as what ZooKeeper holds is read."""
    found = {}
    for path, data in NODES.items():
        values, problems = decode_values(KAFKA_HOME, decode_config(data))
        assert not problems
        found[entity_from_path(path.removeprefix(f"{KAFKA_HOME}/"))] = values
    return QuotaTable.of(found)

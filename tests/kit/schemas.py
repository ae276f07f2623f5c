"""
The JSON Schema of what each command prints for ``--json``.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from headgate.cli.completion import Script
from headgate.cli.console import Console
from headgate.cli.results import (
    Altered,
    Applied,
    Checked,
    DescribedAll,
    Drawn,
    Examined,
    Exported,
    Failed,
    History,
    Imported,
    Listed,
    Planned,
    QuotasListed,
    Result,
    Splits,
    StoreAccepted,
    StoreCopied,
    StoreShown,
    Storms,
    Tables,
    Written,
)
from headgate.cli.top.top import TopShown
from headgate.cli.why import Explained

RESULTS: Final[dict[str, tuple[type[Result], ...]]] = {
    "serve": (Checked,),
    "console": (Console,),
    "monitoring": (Written,),
    "export": (Exported,),
    "import": (Imported,),
    "plan": (Planned,),
    "apply": (Applied,),
    "history": (History,),
    "quotas": (QuotasListed,),
    "undo": (Applied, Planned),
    "top": (TopShown,),
    "why": (Explained,),
    "store": (StoreShown, StoreAccepted, StoreCopied),
    "doctor": (Examined,),
    **dict.fromkeys(
        ("usage", "requests", "effective", "replay", "what-if", "recommend", "chargeback"),
        (Tables,),
    ),
    "storms": (Storms,),
    "splits": (Splits,),
    "report": (Drawn,),
    "kafka-quotas": (Listed, DescribedAll, Altered),
    "completion": (Script,),
}
"""What a command's ``--json`` prints: one of these, or ``Failed``."""


def schema_of(command: str) -> dict[str, Any]:
    """
    Return the JSON Schema of what a command's ``--json`` prints.

    Raises:
        KeyError: it prints none, or there is no such command.
    """
    kinds = (*RESULTS[command], Failed)
    heads, parts = msgspec.json.schema_components(kinds, ref_template="#/$defs/{name}")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": command if command.startswith("kafka-") else f"headgate {command}",
        "anyOf": list(heads),
        "$defs": parts,
    }

"""
What is packed: one row per quota-id and piece, its events in blobs; and what is asked of packing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from headgate.pipeline import schema
from headgate.pipeline.quotas import Quotas

DEFAULT_SAMPLES: Final = 11
DEFAULT_WINDOW_MS: Final = 1000

PACKED: Final = schema.Table(
    "packed",
    "One row per (who shares a quota, piece), or a bad line or count (`kind`).",
    tuple(
        schema.Column(*c)
        for c in (
            ("kind", "string", "chunk, plain (rows that can't be replayed), bad or stat"),
            ("key", "string", "quota type, worker or broker, and tags: one sensor"),
            ("quota_type", "string", "quota type"),
            ("quota_user", "string", "user tag, raw"),
            ("quota_client_id", "string", "client-id tag, raw"),
            ("broker_id", "int", "broker"),
            ("worker_id", "string", "gateway worker (journals)"),
            ("num_samples", "int", "quota.window.num"),
            ("window_ms", "int", "a window's length, ms"),
            ("first", "long", "order of the first event: its time, or a journal's seq"),
            ("tie", "long", "order of chunks with the same first: hash of the file"),
            ("n", "int", "events"),
            ("t", "binary", "int64 ms per event"),
            ("amount", "binary", "float64 per event"),
            ("op", "binary", "uint8 per event; null = all charged and checked"),
            ("pos", "binary", "int64 order per event; null = by time"),
            ("rows", "binary", "the requests themselves, an Arrow batch; null if not wanted"),
            ("who", "binary", "int32 per event: which of whos; null = the only one"),
            ("whos", "string", "JSON list of [principal, client_id]"),
            ("bound", "binary", "float64 per who and plan: the limit; NaN = not its sensor"),
            ("sums", "binary", "int64 per one of whos: what LOGGED names"),
            ("file", "string", "bad, stat: file"),
            ("offset", "long", "bad: byte offset"),
            ("reason", "string", "bad: why"),
            ("line", "string", "bad: its beginning"),
            ("lines", "long", "stat: lines read"),
            ("input_bytes", "long", "stat: bytes read"),
        )
    ),
)
# What the log says of each (principal, client-id) of a row.
LOGGED: Final = ("requests", "bytes", "throttled", "told_ms", "max_told_ms", "first_ms", "last_ms")


@dataclass(frozen=True)
class PackOptions:
    """
    What a replay needs packed.

    Args:
        plans: quotas to replay under; one for `replay`, several for `what-if`.
        rows: keep the requests, to hand them back with the decision (one plan only).
        num_samples: quota.window.num, for logs.
        window_ms: quota.window.size.seconds x 1000, for logs.
        own: a journal's charges keep the limits that were in force, and their exact order.
    """

    plans: tuple[Quotas, ...]
    rows: bool = True
    num_samples: int = DEFAULT_SAMPLES
    window_ms: int = DEFAULT_WINDOW_MS
    own: bool = True

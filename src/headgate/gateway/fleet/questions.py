"""
What a supervisor asks of its workers.
"""

from __future__ import annotations

from typing import Final

import msgspec

HELLO: Final = "hello"
"""Asked by the worker: it can be asked from now on."""
BEAT: Final = "beat"
"""Asked again and again: a worker that answers has an event loop that runs."""
STATUS: Final = "status"
SILENT: Final = "silent"
"""Asked by the worker: why brokers don't answer, whichever workers front them, by id."""
METRICS: Final = "metrics"
NOTHING: Final = msgspec.msgpack.encode(None)


class Status(msgspec.Struct):
    """
    How a worker is.

    Args:
        not_ready: why it doesn't serve, whether its brokers answer or not; None: it does.
        brokers: those of the cluster that have a port here, whichever worker fronts them.
        note: what it serves without; None: nothing is missing.
        silent: why its broker doesn't answer, by its id; empty: it does.
    """

    not_ready: str | None
    brokers: list[int]
    note: str | None = None
    silent: dict[int, str] = {}


METRICS_DECODER: Final = msgspec.msgpack.Decoder(dict[str, bytes])
STATUS_DECODER: Final = msgspec.msgpack.Decoder(Status)
SILENT_DECODER: Final = msgspec.msgpack.Decoder(dict[int, str])

"""
Find the slice of a real broker's request log that comes with the package, and its quotas.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Final

# The broker of the bundled log, for `--broker-id`.
BUNDLED_BROKER_ID: Final = 1


def bundled_log() -> Path:
    """Return the path of the bundled request log (gzip)."""
    return Path(str(files("headgate.pipeline") / "data" / "request.log.gz"))


def bundled_quotas() -> Path:
    """Return the path of the quotas file that was in force during the bundled log."""
    return Path(str(files("headgate.pipeline") / "data" / "quotas.yaml"))

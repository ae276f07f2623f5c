"""What a reload may change, and what it names as needing a restart."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from headgate.config import load_settings
from headgate.gateway import Gateway

BASE = """\
headgate.upstream=127.0.0.1:9092
headgate.broker.id.min=1
headgate.broker.id.max=1
"""


@pytest.mark.parametrize(
    ("line", "field", "kept"),
    [
        ("headgate.log.format=json", "log_format", "text"),
        ("headgate.splits=stream", "splits", "local"),
        ("headgate.worker.id=other", "worker_id", None),
        ("headgate.lease.ttl.ms=1000", "lease_ttl_ms", 10_000),
        ("headgate.drain.timeout.ms=7", "drain_timeout_ms", 7),
    ],
)
async def test_what_cant_change_while_running_is_named_and_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, line: str, field: str, kept: object
) -> None:
    config = tmp_path / "headgate.properties"
    config.write_text(BASE)
    gateway = Gateway(load_settings(config))
    config.write_text(BASE + line + "\n")
    with caplog.at_level(logging.INFO, "headgate.gateway"):
        gateway.reload(config)
    assert getattr(gateway.settings, field) == kept
    fixed = kept != 7
    assert (f"changed; that needs a restart  setting={field}" in caplog.messages) == fixed
    assert caplog.messages[-1] == "settings reloaded"

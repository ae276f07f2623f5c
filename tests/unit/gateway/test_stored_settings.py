"""Broker settings that others than Headgate put into its store."""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from headgate.config import Settings
from headgate.errors import ApiError
from headgate.gateway import Gateway, GatewayThread
from headgate.gateway.answered_here.answers import describe
from headgate.quota.table import QuotaTable
from headgate.steps import finish
from headgate.store import open_store
from headgate.wire.messages import quotas
from kit.upstreams import Upstream


def put(file: Path, **values: str) -> None:
    with closing(sqlite3.connect(file)) as db, db:
        for name, value in values.items():
            row = ("", name.replace("_", "."), value)
            db.execute("INSERT OR REPLACE INTO broker_config VALUES (?, ?, ?)", row)


def until(met: Callable[[], bool]) -> None:
    ends = time.monotonic() + 60
    while not met():
        assert time.monotonic() < ends
        time.sleep(0.02)


def test_a_setting_that_cant_be_read_is_left_out_and_the_others_are_in_force(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Found by an attack: no gateway with such a store started, and running ones kept the old."""
    file, url = tmp_path / "quotas.db", f"sqlite:{tmp_path}/quotas.db"
    with open_store(url) as store:
        store.broker_settings.alter("", {"max.connections": "7"})

    def gateway() -> GatewayThread:
        settings = Settings.from_properties(
            {
                "headgate.upstream": upstream.address,
                "listeners": "PLAINTEXT://127.0.0.1:0",
                "headgate.broker.id.min": "1",
                "headgate.broker.id.max": "1",
                "headgate.data.dir": str(tmp_path),
                "headgate.usage": "none",
            }
        )
        return GatewayThread(lambda: Gateway(settings, store=open_store(url)))

    with Upstream([1]) as upstream:
        with gateway() as first:
            limits = first.gateway.brokers[1].quotas
            assert limits.max_connections == 7
            with caplog.at_level(logging.ERROR, "headgate.gateway"):
                put(file, max_connections="+5", max_connections_per_ip="many")
                until(lambda: limits.max_connections == 5)
            assert "setting=max.connections.per.ip value=many" in caplog.text
        # Written past Headgate, at the same revision: another process has to change something.
        with open_store(url) as store:
            store.broker_settings.alter("1", {"max.connection.creation.rate": "9"})
        with gateway() as second:
            assert second.gateway.brokers[1].quotas.max_connections == 5


def test_of_a_filter_no_more_is_read_than_can_be_right() -> None:
    """Found by an attack: 60,000 conditions took 40 ms in one step."""
    asked = tuple(quotas.Component("user", 0, str(number)) for number in range(60_000))
    read: list[int] = []

    class Counted(tuple[quotas.Component, ...]):
        def __getitem__(self, key: Any) -> Any:
            found = super().__getitem__(key)
            read.append(len(found))
            return found

    request = quotas.DescribeClientQuotasRequest(Counted(asked), False)
    with pytest.raises(ApiError, match="Entity type user cannot appear more than once"):
        finish(describe(QuotaTable(), request))
    assert read == [4]

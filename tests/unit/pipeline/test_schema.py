"""The tables' schemas, and the page that describes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.pipeline import schema

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "pipeline.md"


def test_the_reference_page_holds_every_table_as_it_is() -> None:
    assert PAGE.read_text().endswith(schema.reference())


@pytest.mark.parametrize("name", schema.TABLES)
def test_every_column_says_what_it_means(name: str) -> None:
    table = schema.TABLES[name]
    assert table.name == name
    assert len(set(table.names)) == len(table.names)
    assert all(len(column.doc) > 3 for column in table.columns)
    assert table.arrow.names == list(table.names)


def test_the_columns_that_others_rely_on_are_there() -> None:
    promised = {"record_ms", "broker_id", "listener", "connection", "principal", "client_id"}
    promised |= {"api_name", "api_version", "is_forwarded", "bytes_charged", "bytes_exact"}
    promised |= {"handler_ms", "throttle_time_ms", "producer_ids"}
    assert promised <= set(schema.REQUESTS.names)
    promised |= {"quota_id", "quota_bps", "logged_throttle_time_ms", "replayed_throttle_time_ms"}
    assert promised <= set(schema.REPLAY.names)

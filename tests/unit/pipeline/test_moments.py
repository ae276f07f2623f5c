"""TIMESTAMP columns beside milliseconds, and the day, as workers hand them over."""

from __future__ import annotations

import datetime

from headgate.pipeline import schema

DAY = datetime.datetime(2001, 9, 9, 1, 46, 40, tzinfo=datetime.UTC)


def test_every_time_of_a_written_table_has_its_moment() -> None:
    for table in schema.TABLES.values():
        names = table.timed.names
        times = [n for n in names if n.endswith("_at")]
        assert [n for n in names if n not in (*times, "day")] == list(table.names)
        assert [n == "day" for n in names] == [False] * (len(names) - 1) + [bool(times)]
        docs = {column.name: column.doc for column in table.columns}
        for name in table.names:
            is_epoch = name.endswith("_ms") and "epoch ms" in docs[name]
            assert (f"{name[:-3]}_at" in names) == is_epoch, name
    assert schema.SUMMARY.timed.names == schema.SUMMARY.names


def test_a_moment_is_to_the_microsecond_and_null_where_its_time_is() -> None:
    rows = schema.REQUESTS.batch(3, {"record_ms": [1e12, 1e12 + 0.0014, None]})
    found = schema.REQUESTS.with_moments(rows)["record_at"].to_pylist()
    assert found == [DAY, DAY + datetime.timedelta(microseconds=1), None]


def test_a_day_is_that_of_utc_and_null_where_its_time_is() -> None:
    times = [1e12, -0.5, 86_399_999.9996, 86_400_000.0, None]
    rows = schema.REQUESTS.batch(5, {"record_ms": times})
    found = schema.REQUESTS.with_moments(rows)["day"].to_pylist()
    epoch = datetime.date(1970, 1, 1)
    one = datetime.timedelta(1)
    assert found == [DAY.date(), epoch - one, epoch, epoch + one, None]

"""Workers import PySpark as it's installed, and find what its zips alone hold."""

from __future__ import annotations

from headgate.pipeline.workers.daemon import prefer_installed, reads

ZIPS = ["/env/pyspark/python/lib/pyspark.zip", "/env/pyspark/python/lib/py4j-0.10-src.zip"]


def test_zips_of_an_installed_spark_come_behind_it() -> None:
    path = ["/here", *ZIPS, "/env/pyspark/jars/a.jar", "/env"]
    prefer_installed(path)
    assert path == ["/here", "/env/pyspark/jars/a.jar", "/env", *ZIPS]


def test_zips_of_a_spark_that_is_not_installed_stay_in_front() -> None:
    path = ["/here", *ZIPS, "/opt/spark/python/lib/pyspark.zip", "/other"]
    want = list(path)
    prefer_installed(path)
    assert path == want


def test_only_workers_that_read_need_what_is_loaded_before() -> None:
    assert reads(["daemon.py"])
    assert reads(["daemon.py", "pyspark.worker"])
    assert not reads(["daemon.py", "pyspark.sql.worker.plan_data_source_read"])
    assert not reads(["daemon.py", "pyspark.sql.streaming.python_streaming_source_runner"])

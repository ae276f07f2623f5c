"""PySpark finds the data source, and isn't troubled where what it needs isn't installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

import pyspark_headgate
import pyspark_headgate_journal
from headgate.errors import ConfigError
from headgate.pipeline.library.request_log import JOURNAL, NAME, KafkaRequestLog


def test_pyspark_finds_the_source_under_its_name() -> None:
    assert pyspark_headgate.DefaultSource.name() == NAME
    assert pyspark_headgate_journal.DefaultSource.name() == JOURNAL


def test_without_the_extra_there_is_no_source_and_no_error() -> None:
    program = "import sys; sys.modules['pyarrow'] = sys.modules['numpy'] = None\n"
    program += "import pyspark_headgate as a, pyspark_headgate_journal as b\n"
    program += "print(hasattr(a, 'DefaultSource') or hasattr(b, 'DefaultSource'))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "False\n"), done.stderr


@pytest.mark.parametrize("version", ["4.0.5", "4.1.4"])
def test_a_source_is_read_whole_where_its_stream_is_refused(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pyspark, "__version__", version)
    source = KafkaRequestLog({"path": str(tmp_path)})
    assert source.reader(source.schema()) is not None
    said = rf"^readStream\.format\('kafka-request-log'\): Spark {version} has no streams"
    with pytest.raises(ConfigError, match=said):
        source.streamReader(source.schema())

"""Each Spark's tables are compared to the last digit, and its row stays beside the others."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from headgate.pipeline import spark_versions
from kit.scripts import ROOT, script


@pytest.fixture
def bounds(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The program; what it imports lies beside it."""
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    return script("bounds")


def test_every_spark_from_the_oldest_to_the_newest_is_tried(bounds: ModuleType) -> None:
    known = [spark_versions.read_version(text) for text in bounds.SPARKS]
    assert known == sorted(known)
    assert (known[0], known[-1]) == (spark_versions.OLDEST, spark_versions.NEWEST)


def test_tables_are_equal_refused_or_wrong(bounds: ModuleType, tmp_path: Path) -> None:
    pinned, other = tmp_path / "pinned", tmp_path / "other"
    tables = {
        "same": ("{'a': 0.1}\n", "{'a': 0.1}\n"),
        "last digit": ("{'a': 0.1}\n", "{'a': 0.10000000000000002}\n"),
        "refused": ("{'a': 0.1}\n", "refused: Spark 3.5.9 has no such thing\n"),
        "failed": ("{'a': 0.1}\n", "failed: TypeError\n"),
        "failed everywhere": ("failed: TypeError\n", "failed: TypeError\n"),
    }
    for at, folder in enumerate((pinned, other)):
        folder.mkdir()
        for name, texts in tables.items():
            (folder / f"{name}.txt").write_text(texts[at])
    (pinned / "missing.txt").write_text("")
    found = bounds.compare(other, pinned)
    assert found.equal == ["same"]
    assert found.refused == ["refused"]
    assert set(found.wrong) == {"last digit", "failed", "failed everywhere", "missing"}


def test_a_row_replaces_its_older_one_and_no_other(
    bounds: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "bounds.md"
    monkeypatch.setattr(bounds, "PAGE", page)
    for name, row in (
        ("lowest", "| lowest | old |"),
        ("PySpark 3.5.9", "| PySpark 3.5.9 | old |"),
        ("3.12", "| 3.12 | a |"),
        ("lowest", "| lowest | new |"),
        ("PySpark 4.3.0", "| PySpark 4.3.0 | b |"),
        ("PySpark 3.5.9", "| PySpark 3.5.9 | new |"),
    ):
        bounds.keep(name, row)
    assert not any("old" in line for line in page.read_text().splitlines())
    python, spark = page.read_text().split("## Each Spark")
    assert python.endswith("|\n| 3.12 | a |\n| lowest | new |\n\n")
    assert spark.endswith("|\n| PySpark 3.5.9 | new |\n| PySpark 4.3.0 | b |\n")

"""Parts of a stream: which hold what; tables swapped in at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.pipeline.growing.parts import FOLD, cover
from headgate.pipeline.tables.publish import can_swap, swap_in


@pytest.mark.parametrize("count", [0, 1, FOLD - 1, FOLD, FOLD + 1, FOLD**2 + FOLD + 3])
def test_parts_hold_every_batch_once(count: int) -> None:
    held = [
        batch
        for level, number in cover(count)
        for batch in range(number * FOLD**level, (number + 1) * FOLD**level)
    ]
    assert held == list(range(count))
    assert len(cover(count)) <= 2 * FOLD


def write(out: Path, version: str, *names: str) -> str:
    made = out / "_stream" / "tables" / version
    for name in names:
        (made / name).mkdir(parents=True)
        (made / name / "part.parquet").write_text(f"{name} {version}")
    return str(made)


def read(out: Path, name: str) -> str:
    return (out / name / "part.parquet").read_text()


def test_tables_are_swapped_in_and_the_one_before_is_kept_for_its_readers(tmp_path: Path) -> None:
    (tmp_path / "usage").mkdir()  # of an ordinary run
    (tmp_path / "usage" / "part.parquet").write_text("usage of old")
    open_one = (tmp_path / "usage").resolve()
    for version in ("01", "02", "03"):
        swap_in(str(tmp_path), write(tmp_path, version, "usage", "storms"), ("usage", "storms"))
        assert read(tmp_path, "usage") == f"usage {version}"
        assert read(tmp_path, "storms") == f"storms {version}"
        if version != "01":
            assert (open_one / "part.parquet").exists()
        open_one = (tmp_path / "usage").resolve()
    left = sorted(p.name for p in (tmp_path / "_stream" / "tables").iterdir())
    assert left == ["02", "03"]
    # A table that this round didn't make stays what it was.
    swap_in(str(tmp_path), write(tmp_path, "04", "usage"), ("usage", "absent"))
    assert not (tmp_path / "absent").exists()


def test_only_local_directories_are_swapped() -> None:
    assert can_swap("/data/out")
    assert not can_swap("s3://bucket/out")

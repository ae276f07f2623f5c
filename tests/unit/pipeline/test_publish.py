"""A run's tables appear all at once or not at all, whenever it is killed; others' files stay."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.errors import ConfigError
from headgate.pipeline.tables.folders import LocalFolder
from headgate.pipeline.tables.publish import Staged, finish

TABLES = ("usage", "usage_hour", "bad_lines")


class Killed(BaseException):
    """Stands for kill -9: nothing of ours runs after it."""


class Frail(LocalFolder):
    """A folder whose process is killed before its nth change."""

    def __init__(self, root: str, lives: int) -> None:
        super().__init__(root)
        self.lives = lives

    def _live(self) -> None:
        self.lives -= 1
        if self.lives < 0:
            raise Killed

    def move(self, name: str, to: str) -> None:
        self._live()
        super().move(name, to)

    def remove(self, name: str) -> None:
        self._live()
        super().remove(name)

    def write(self, name: str, data: bytes) -> None:
        self._live()
        super().write(name, data)


def make(staged: Staged, run: str, *tables: str) -> None:
    for table in tables:
        folder = Path(staged.path) / table
        folder.mkdir()
        (folder / f"part-{run}.parquet").write_text(run)
        (folder / "_SUCCESS").touch()
    (Path(staged.path) / "summary").mkdir()
    (Path(staged.path) / "summary" / "usage.parquet").write_text(run)


def versions(out: Path) -> set[str]:
    """Return which runs' tables are there."""
    found = {p.read_text() for t in TABLES for p in (out / t).glob("part-*.parquet")}
    return found | {(out / "summary" / "usage.parquet").read_text()}


def a_run(out: Path, run: str, folder: LocalFolder | None = None) -> None:
    staged = Staged(folder or LocalFolder(str(out)), "usage")
    make(staged, run, *TABLES)
    staged.publish()


def test_older_tables_stay_till_all_the_new_ones_are_whole(tmp_path: Path) -> None:
    a_run(tmp_path, "one")
    staged = Staged(LocalFolder(str(tmp_path)), "usage")
    make(staged, "two", "usage")
    assert versions(tmp_path) == {"one"}
    staged.discard()
    assert versions(tmp_path) == {"one"}
    a_run(tmp_path, "three")
    assert versions(tmp_path) == {"three"}
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([*TABLES, "summary"])


def test_whenever_a_run_is_killed_the_next_look_sees_one_runs_tables(tmp_path: Path) -> None:
    seen = []
    for lives in range(30):
        out = tmp_path / str(lives)
        out.mkdir()
        a_run(out, "one")
        (out / "usage" / "notes.txt").write_text("mine")
        folder = Frail(str(out), lives)
        try:
            a_run(out, "two", folder)
        except Killed:
            finish(LocalFolder(str(out)))
        found = versions(out)
        assert len(found) == 1, lives
        assert (out / "usage" / "notes.txt").read_text() == "mine"
        seen.append(found.pop())
    assert seen[0] == "one"
    assert seen[-1] == "two"
    assert seen == sorted(seen)


def test_a_run_under_way_is_left_alone_and_a_dead_ones_rest_is_removed(tmp_path: Path) -> None:
    living = Staged(LocalFolder(str(tmp_path)), "replay")
    make(living, "living", "usage")
    dead = tmp_path / ".headgate-usage-dead"
    (dead / "usage").mkdir(parents=True)
    finish(LocalFolder(str(tmp_path)))
    assert not dead.exists()
    living.publish()
    assert (tmp_path / "usage" / "part-living.parquet").exists()


def test_what_isnt_a_tables_stays_in_its_folder(tmp_path: Path) -> None:
    (tmp_path / "usage").mkdir()
    (tmp_path / "usage" / "notes.txt").write_text("mine")
    (tmp_path / "usage" / "more").mkdir()
    (tmp_path / "usage" / "part-0.parquet").write_text("old")
    (tmp_path / "other").mkdir()
    a_run(tmp_path, "one")
    kept = sorted(p.name for p in (tmp_path / "usage").iterdir())
    assert kept == ["_SUCCESS", "more", "notes.txt", "part-one.parquet"]
    assert (tmp_path / "other").is_dir()


def test_a_streams_table_is_replaced_and_not_written_into(tmp_path: Path) -> None:
    made = tmp_path / "_stream" / "usage"
    made.mkdir(parents=True)
    (made / "part-0.parquet").write_text("stream")
    (tmp_path / "usage").symlink_to(made)
    a_run(tmp_path, "one")
    assert not (tmp_path / "usage").is_symlink()
    assert versions(tmp_path) == {"one"}
    assert (made / "part-0.parquet").read_text() == "stream"


def test_a_file_with_a_tables_name_is_in_the_way_of_all(tmp_path: Path) -> None:
    a_run(tmp_path, "one")
    (tmp_path / "storms").write_text("mine")
    staged = Staged(LocalFolder(str(tmp_path)), "storms")
    make(staged, "two", "storms", "usage")
    with pytest.raises(ConfigError, match="storms is a file; move it"):
        staged.publish()
    staged.discard()
    assert versions(tmp_path) == {"one"}
    assert (tmp_path / "storms").read_text() == "mine"

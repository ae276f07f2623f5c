"""A run's tables appear all at once or not at all, whenever it is killed; others' files stay."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.errors import ConfigError
from headgate.pipeline.tables.folders import LocalFolder
from headgate.pipeline.tables.publish import Staged, finish, refuse_other_layout

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


class Objects(Frail):
    """A folder in which renaming a folder moves file after file, as in an object store."""

    def move(self, name: str, to: str) -> None:
        if not self.is_folder(name):
            super().move(name, to)
            return
        for inside in self.names(name):
            self.move(f"{name}/{inside}", f"{to}/{inside}")
        (Path(self.root) / to).mkdir(parents=True, exist_ok=True)
        (Path(self.root) / name).rmdir()


def make(staged: Staged, run: str, *tables: str) -> None:
    for table in tables:
        folder = Path(staged.path) / table
        folder.mkdir()
        for part in (f"part-{run}", f"part-{run}-2"):
            (folder / f"{part}.parquet").write_text(run)
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


@pytest.mark.parametrize("kind", [Frail, Objects])
def test_whenever_a_run_is_killed_the_next_look_sees_one_runs_tables(
    kind: type[Frail], tmp_path: Path
) -> None:
    seen = []
    for lives in range(40):
        out = tmp_path / str(lives)
        out.mkdir()
        a_run(out, "one")
        (out / "usage" / "notes.txt").write_text("mine")
        folder = kind(str(out), lives)
        try:
            a_run(out, "two", folder)
        except Killed:
            finish(kind(str(out), 1000))
        found = versions(out)
        assert len(found) == 1, lives
        assert [len(list((out / table).glob("part-*"))) for table in TABLES] == [2, 2, 2], lives
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
    assert kept == ["_SUCCESS", "more", "notes.txt", "part-one-2.parquet", "part-one.parquet"]
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


def days(out: Path, *, run: str, mode: str, of: tuple[str, ...], folder: LocalFolder) -> None:
    """A run that writes a day's file for each of some days."""
    staged = Staged(folder, "usage", mode)
    for day in of:
        place = Path(staged.path) / "usage" / f"day={day}"
        place.mkdir(parents=True)
        (place / f"part-{run}.parquet").write_text(run)
    (Path(staged.path) / "usage" / "_SUCCESS").touch()
    (Path(staged.path) / "bad_lines").mkdir(parents=True)
    (Path(staged.path) / "bad_lines" / f"part-{run}.parquet").write_text(run)
    staged.publish()


def held(out: Path, table: str = "usage") -> list[str]:
    """Return the files of a table, by day."""
    return sorted(str(p.relative_to(out / table)) for p in (out / table).rglob("part-*"))


@pytest.mark.parametrize("kind", [Frail, Objects])
@pytest.mark.parametrize(
    ("mode", "then"),
    [
        ("overwrite", ["day=2/part-b.parquet", "day=3/part-b.parquet"]),
        ("merge", ["day=1/part-a.parquet", "day=2/part-b.parquet", "day=3/part-b.parquet"]),
        (
            "append",
            [
                "day=1/part-a.parquet",
                "day=2/part-a.parquet",
                "day=2/part-b.parquet",
                "day=3/part-b.parquet",
            ],
        ),
    ],
)
def test_days_are_replaced_or_added_to_whenever_the_run_is_killed(
    kind: type[Frail], mode: str, then: list[str], tmp_path: Path
) -> None:
    seen = []
    for lives in range(20):
        out = tmp_path / str(lives)
        out.mkdir()
        days(out, run="a", mode=mode, of=("1", "2"), folder=LocalFolder(str(out)))
        before = held(out)
        try:
            days(out, run="b", mode=mode, of=("2", "3"), folder=kind(str(out), lives))
        except Killed:
            finish(kind(str(out), 1000))
        assert held(out) in (before, then), lives
        # Bad lines are those of the last run alone.
        assert held(out, "bad_lines") == [f"part-{'b' if held(out) == then else 'a'}.parquet"]
        assert held(out) == before or not list(out.glob(".headgate*"))
        seen.append(held(out) == then)
    assert not seen[0]
    assert seen[-1]


def test_rows_are_not_added_to_a_table_that_is_divided_otherwise(tmp_path: Path) -> None:
    folder = LocalFolder(str(tmp_path))
    a_run(tmp_path, "one")
    refuse_other_layout(folder, TABLES, by_day=False)
    with pytest.raises(ConfigError, match="usage isn't divided by day; write it once with --mode"):
        refuse_other_layout(folder, TABLES, by_day=True)
    days(tmp_path, run="a", mode="overwrite", of=("1",), folder=folder)
    with pytest.raises(ConfigError, match="usage is divided by day"):
        refuse_other_layout(folder, ("usage", "bad_lines"), by_day=False)

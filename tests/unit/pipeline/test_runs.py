"""A run's tables appear all at once or not at all, whenever it is killed."""

from __future__ import annotations

import contextlib
import json
import shutil
from pathlib import Path

import pytest

from headgate.errors import ConfigError
from headgate.pipeline.sources.files import find_files, paths
from headgate.pipeline.tables.folders import LocalFolder
from headgate.pipeline.tables.pointer import POINTER
from headgate.pipeline.tables.runs import Staged, refuse_earlier, refuse_other_layout

RUN = "run-20261127T100000-usage-1f2e3d4c"
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

    def remove(self, name: str) -> None:
        self._live()
        super().remove(name)

    def write(self, name: str, data: bytes) -> None:
        self._live()
        super().write(name, data)


def files(out: Path, table: str = "usage") -> list[str]:
    """Return the files that a reader of a table finds, by what follows the run's folder."""
    return sorted(path.partition(f"/{table}/")[2] for path in paths(out, table))


def texts(out: Path, *tables: str) -> set[str]:
    """Return which runs wrote what readers of tables find."""
    return {Path(path).read_text() for table in tables for path in paths(out, table)}


def make(staged: Staged, run: str, *tables: str, command: str = "usage") -> None:
    for table in tables:
        folder = Path(staged.path) / table
        folder.mkdir()
        for part in (f"part-{run}", f"part-{run}-2"):
            (folder / f"{part}.parquet").write_text(run)
        (folder / "_SUCCESS").touch()
    (Path(staged.path) / "summary").mkdir()
    (Path(staged.path) / "summary" / f"part-{command}.parquet").write_text(run)


def a_run(
    out: Path, run: str, folder: LocalFolder | None = None, *tables: str, command: str = "usage"
) -> None:
    staged = Staged(folder or LocalFolder(str(out)), command)
    make(staged, run, *(tables or TABLES), command=command)
    staged.publish()


def runs(out: Path) -> int:
    return len(list(out.glob("run-*")))


def test_older_tables_stay_till_all_the_new_ones_are_whole(tmp_path: Path) -> None:
    a_run(tmp_path, "one")
    staged = Staged(LocalFolder(str(tmp_path)), "usage")
    make(staged, "two", "usage")
    assert texts(tmp_path, *TABLES, "summary") == {"one"}
    staged.discard()
    assert texts(tmp_path, *TABLES, "summary") == {"one"}
    a_run(tmp_path, "three")
    assert texts(tmp_path, *TABLES, "summary") == {"three"}


def test_what_a_run_replaced_stays_for_its_readers_till_the_next(tmp_path: Path) -> None:
    for number in range(4):
        before = paths(tmp_path, "usage") if number else []
        a_run(tmp_path, str(number))
        assert all(Path(path).exists() for path in before)
        assert runs(tmp_path) == min(number + 1, 2)


def test_tables_of_other_commands_stay_and_each_has_its_summary(tmp_path: Path) -> None:
    a_run(tmp_path, "one")
    for run in ("two", "three", "four"):
        a_run(tmp_path, run, None, "storms", "bad_lines", command="storms")
    assert texts(tmp_path, "usage", "usage_hour") == {"one"}
    assert texts(tmp_path, "storms", "bad_lines") == {"four"}
    assert texts(tmp_path, "summary") == {"one", "four"}
    assert runs(tmp_path) == 3


def test_whenever_a_run_is_killed_readers_see_one_runs_tables(tmp_path: Path) -> None:
    seen = []
    for lives in range(8):
        out = tmp_path / str(lives)
        out.mkdir()
        for run in ("zero", "one"):
            a_run(out, run)
        (out / "notes.txt").write_text("mine")
        with contextlib.suppress(Killed):
            a_run(out, "two", Frail(str(out), lives))
        found = texts(out, *TABLES, "summary")
        assert len(found) == 1, lives
        assert [len(files(out, table)) for table in TABLES] == [2, 2, 2], lives
        seen.append(found.pop())
        a_run(out, "three")
        assert texts(out, *TABLES, "summary") == {"three"}
        assert runs(out) == 2, lives  # what the killed run left is gone
        assert (out / "notes.txt").read_text() == "mine"
    assert (seen[0], seen[-1]) == ("one", "two")
    assert seen == sorted(seen)


def test_a_run_under_way_is_left_alone_and_a_dead_ones_rest_is_removed(tmp_path: Path) -> None:
    living = Staged(LocalFolder(str(tmp_path)), "replay")
    make(living, "living", "usage")
    dead = tmp_path / "run-20200101T000000-what-if-0000dead"
    (dead / "usage").mkdir(parents=True)
    (tmp_path / "run-tests").mkdir()  # somebody's own folder
    a_run(tmp_path, "other")
    assert not dead.exists()
    assert (tmp_path / "run-tests").exists()
    living.publish()
    assert texts(tmp_path, "usage") == {"living"}


def days(out: Path, *, run: str, mode: str, of: tuple[str, ...], folder: LocalFolder) -> None:
    """A run that writes a day's file for each of some days."""
    staged = Staged(folder, "usage", mode)
    for day in of:
        place = Path(staged.path) / "usage" / f"day={day}"
        place.mkdir(parents=True)
        (place / f"part-{run}.parquet").write_text(run)
    (Path(staged.path) / "usage").mkdir(exist_ok=True)
    (Path(staged.path) / "usage" / "_SUCCESS").touch()
    (Path(staged.path) / "bad_lines").mkdir(parents=True)
    (Path(staged.path) / "bad_lines" / f"part-{run}.parquet").write_text(run)
    staged.publish()


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
    mode: str, then: list[str], tmp_path: Path
) -> None:
    seen = []
    for lives in range(4):
        out = tmp_path / str(lives)
        out.mkdir()
        days(out, run="a", mode=mode, of=("1", "2"), folder=LocalFolder(str(out)))
        before = files(out)
        with contextlib.suppress(Killed):
            days(out, run="b", mode=mode, of=("2", "3"), folder=Frail(str(out), lives))
        assert files(out) in (before, then), lives
        # Bad lines are those of the last run alone.
        last = "b" if files(out) == then else "a"
        assert files(out, "bad_lines") == [f"part-{last}.parquet"]
        seen.append(files(out) == then)
        # Two runs later nothing is left of what was replaced, and nothing of the rest is lost.
        held = files(out)
        for _ in range(2):
            days(out, run="c", mode=mode, of=(), folder=LocalFolder(str(out)))
        assert mode == "overwrite" or files(out) == held
        on_disk = {str(p) for p in out.glob("run-*/usage/day=*/part-*")}
        assert mode == "overwrite" or on_disk == set(paths(out, "usage"))
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
    a_run(tmp_path, "two")
    assert texts(tmp_path, "usage") == {"two"}
    refuse_other_layout(folder, TABLES, by_day=False)
    # A run by day without rows makes no day, and leaves no folder that isn't divided.
    days(tmp_path, run="b", mode="overwrite", of=(), folder=folder)
    with pytest.raises(ConfigError, match="a table usage there, or only one by day without rows"):
        paths(tmp_path, "usage")
    days(tmp_path, run="c", mode="append", of=("1",), folder=folder)
    assert files(tmp_path) == ["day=1/part-c.parquet"]


@pytest.mark.parametrize("file", ["part-0.parquet", "day=2026-01-01", "_delta_log", "metadata"])
def test_tables_of_an_earlier_version_or_another_format_are_in_the_way(
    file: str, tmp_path: Path
) -> None:
    (tmp_path / "usage").mkdir()
    (tmp_path / "storms").mkdir()
    (tmp_path / "storms" / "notes.txt").touch()  # somebody's own folder
    refuse_earlier(LocalFolder(str(tmp_path)), lake=False)
    (tmp_path / "usage" / file).touch()
    with pytest.raises(ConfigError, match="usage lie there without a run, as an earlier Headgate"):
        refuse_earlier(LocalFolder(str(tmp_path)), lake=False)
    refuse_earlier(LocalFolder(str(tmp_path)), lake=True)


def test_what_a_killed_run_of_an_earlier_version_left_is_no_table(tmp_path: Path) -> None:
    (tmp_path / ".headgate-usage-0").mkdir()
    with pytest.raises(ConfigError, match="an earlier Headgate began and didn't end"):
        refuse_earlier(LocalFolder(str(tmp_path)), lake=False)


def test_delta_isnt_written_beside_runs_of_parquet(tmp_path: Path) -> None:
    a_run(tmp_path, "one")
    with pytest.raises(ConfigError, match="holds Parquet tables; give another"):
        refuse_earlier(LocalFolder(str(tmp_path)), lake=True)


def test_readers_of_a_table_a_directory_or_one_above_see_what_counts(tmp_path: Path) -> None:
    out = tmp_path / "lake" / "out"
    out.mkdir(parents=True)
    for run in ("one", "two"):
        a_run(out, run, None, "requests")
    Staged(LocalFolder(str(out)), "usage")  # under way, nothing of it counts
    (tmp_path / "lake" / "a.log").write_text("two")
    (out / "run-tests").mkdir()  # somebody's own folder
    (out / "run-tests" / "b.log").write_text("two")
    wanted = paths(out, "requests")
    assert [path for path, _ in find_files([f"{out}/requests"])] == wanted
    assert [path for path, _ in find_files([f"file://{out}/requests"])] == wanted
    for place in (out, tmp_path / "lake"):
        found = [path for path, _ in find_files([str(place)])]
        assert {*wanted, str(out / "run-tests" / "b.log")} < set(found)
        assert {Path(path).read_text() for path in found} == {"two"}
    with pytest.raises(ConfigError, match="there is no such file"):
        find_files([f"{out}/storms"])
    with pytest.raises(ConfigError, match="no run of a command wrote a table storms"):
        paths(out, "storms")


def test_a_part_that_isnt_there_any_more_is_an_error_and_no_empty_table(tmp_path: Path) -> None:
    days(tmp_path, run="a", mode="append", of=("1", "2"), folder=LocalFolder(str(tmp_path)))
    days(tmp_path, run="b", mode="append", of=("3",), folder=LocalFolder(str(tmp_path)))
    (first, *_) = sorted(paths(tmp_path, "usage"))
    shutil.rmtree(Path(first).parent)
    for read in (
        lambda: paths(tmp_path, "usage"),
        lambda: find_files([str(tmp_path / "usage")], may_lack=True),
        lambda: find_files([str(tmp_path)]),
        lambda: find_files([str(tmp_path.parent)], may_lack=True),
    ):
        with pytest.raises(ConfigError, match=r"usage/day=\d, which isn't there"):
            read()
    assert files(tmp_path, "bad_lines") == ["part-b.parquet"]
    days(tmp_path, run="c", mode="overwrite", of=("3",), folder=LocalFolder(str(tmp_path)))
    assert files(tmp_path) == ["day=3/part-c.parquet"]


def test_what_isnt_a_tables_file_isnt_read_as_one(tmp_path: Path) -> None:
    a_run(tmp_path, "one")
    [run] = tmp_path.glob("run-*")
    (run / "usage" / "notes.txt").write_text("mine")
    assert files(tmp_path) == ["part-one-2.parquet", "part-one.parquet"]


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "nothing",
        json.dumps({"tables": {"usage": ["../usage"]}, "before": []}),
        json.dumps({"tables": {"usage": [f"{RUN}/../../usage"]}, "before": []}),
        json.dumps({"tables": {}, "before": ["/etc"]}),
        json.dumps({"tables": {}, "before": ["run-tests/usage"]}),
    ],
)
def test_a_pointer_that_cant_be_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / POINTER).write_text(text)
    with pytest.raises(ConfigError, match=r"_tables\.json can't be read"):
        paths(tmp_path, "usage")
    with pytest.raises(ConfigError, match=r"_tables\.json can't be read"):
        a_run(tmp_path, "one")
    assert (tmp_path / POINTER).read_text() == text

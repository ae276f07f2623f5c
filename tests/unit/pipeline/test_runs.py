"""A run's tables appear all at once or not at all, whenever it is killed."""

from __future__ import annotations

import contextlib
import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from urllib.parse import unquote

import pytest
from pyarrow import fs
from rich.console import Console

from headgate.errors import ConfigError
from headgate.pipeline.report.tables import read_tables
from headgate.pipeline.run import Run
from headgate.pipeline.sources import files as sources
from headgate.pipeline.sources.files import find_files, paths
from headgate.pipeline.tables.folders import LocalFolder, local_path
from headgate.pipeline.tables.pointer import POINTER, UNFINISHED
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
    (dead / UNFINISHED).touch()
    barely = tmp_path / "run-20200101T000000-what-if-1000dead"
    barely.mkdir()  # killed before it marked it
    (tmp_path / "run-tests").mkdir()  # somebody's own folder
    a_run(tmp_path, "other")
    assert not dead.exists()
    assert not barely.exists()
    assert (tmp_path / "run-tests").exists()
    living.publish()
    assert texts(tmp_path, "usage") == {"living"}


def test_a_lost_or_older_pointer_loses_no_run(tmp_path: Path) -> None:
    """As a restore leaves it that left out, or didn't renew, what begins with an underscore."""
    folder = LocalFolder(str(tmp_path))
    days(tmp_path, run="o", mode="overwrite", of=("1",), folder=folder)
    older = (tmp_path / POINTER).read_bytes()
    [first] = tmp_path.glob("run-*")
    days(tmp_path, run="a", mode="append", of=("1",), folder=folder)
    names = sorted(tmp_path.glob("run-*"))
    [newer] = set(names) - {first}
    (tmp_path / POINTER).unlink()
    for lake in (False, True):
        with pytest.raises(ConfigError, match=r"_tables\.json isn't there, and run-.* is: nothing"):
            refuse_earlier(folder, lake=lake)
    Staged(folder, "usage", "append").discard()
    assert sorted(tmp_path.glob("run-*")) == names
    (tmp_path / POINTER).write_bytes(older)
    refuse_earlier(folder, lake=False)
    for run in ("two", "three"):
        a_run(tmp_path, run)
    assert newer.exists()  # nothing shows that it isn't wanted any more


@pytest.mark.parametrize("lives", range(5, 8))
def test_a_run_killed_at_its_end_isnt_lost_with_the_pointer(lives: int, tmp_path: Path) -> None:
    for run in ("zero", "one"):
        a_run(tmp_path, run)
    with contextlib.suppress(Killed):
        a_run(tmp_path, "two", Frail(str(tmp_path), lives))
    is_named = texts(tmp_path, "usage") == {"two"}
    (tmp_path / POINTER).unlink()
    Staged(LocalFolder(str(tmp_path)), "usage").discard()
    found = {path.read_text() for path in tmp_path.glob("run-*/usage/part-*")}
    assert ("two" in found) or not is_named
    assert "one" in found


def test_only_unfinished_runs_are_there_and_no_pointer_is_no_loss(tmp_path: Path) -> None:
    folder = LocalFolder(str(tmp_path))
    first = Staged(folder, "usage")
    make(first, "first", "usage")
    refuse_earlier(folder, lake=False)  # beside the first run, while it goes on
    del first  # killed
    a_run(tmp_path, "second")
    assert runs(tmp_path) == 1


def test_a_run_whose_folder_was_removed_meanwhile_changes_nothing(tmp_path: Path) -> None:
    a_run(tmp_path, "one")
    staged = Staged(LocalFolder(str(tmp_path)), "usage")
    make(staged, "two", "usage", "storms")
    shutil.rmtree(Path(staged.path) / "usage")
    with pytest.raises(ConfigError, match=r"usage was written and isn't there any more"):
        staged.publish(["usage", "storms"])
    shutil.rmtree(staged.path)
    (Path(staged.path) / "storms").mkdir(parents=True)  # what is written after that
    (Path(staged.path) / "storms" / "part-two.parquet").write_text("two")
    with pytest.raises(ConfigError, match="_unfinished was written and isn't there any more"):
        staged.publish()
    staged.discard()
    assert texts(tmp_path, *TABLES) == {"one"}
    assert runs(tmp_path) == 1


def test_an_error_while_the_pointer_is_replaced_leaves_what_it_may_name(tmp_path: Path) -> None:
    class Late(LocalFolder):
        def write(self, name: str, data: bytes) -> None:
            super().write(name, data)
            if name == POINTER:
                raise OSError("the answer is lost")

    staged = Staged(Late(str(tmp_path)), "usage")
    make(staged, "one", "usage")
    with pytest.raises(OSError, match="lost"):
        staged.publish()
    staged.discard()
    assert texts(tmp_path, "usage") == {"one"}
    (tmp_path / POINTER).write_text("damaged")
    other = Staged.__new__(Staged)
    other.__dict__ |= staged.__dict__ | {"_may_be_named": False}
    other.discard()  # doesn't read the pointer, whose error would hide why the run ended
    assert runs(tmp_path) == 0


def test_without_a_lock_a_run_that_ends_meanwhile_is_kept_and_named(tmp_path: Path) -> None:
    """As in an object store, up to the moment in which the pointer is replaced."""

    class NoLock(LocalFolder):
        def alone(self) -> contextlib.AbstractContextManager[None]:
            return contextlib.nullcontext()

        def remove(self, name: str) -> None:
            super().remove(name)
            if name.startswith("run-") and pending:
                a_run(tmp_path, pending.pop(), folder, "storms")

    pending: list[str] = []
    folder = NoLock(str(tmp_path))
    for run in ("zero", "one"):
        a_run(tmp_path, run, folder)
    pending.append("meanwhile")
    a_run(tmp_path, "two", folder)
    assert texts(tmp_path, "usage") == {"two"}
    assert texts(tmp_path, "storms") == {"meanwhile"}


@pytest.mark.parametrize(
    ("place", "path"),
    [
        ("/a b/c%20d", "/a b/c%20d"),
        ("a/b", "a/b"),
        ("file:///a b/c%20d", "/a b/c%20d"),
        ("file:/a", "/a"),
        ("file://localhost/a", "/a"),
        ("file:a", "file:a"),
        ("file://other/a", None),
        ("s3a://b/a", None),
    ],
)
def test_a_file_uri_is_the_folder_it_names(place: str, path: str | None) -> None:
    assert local_path(place) == path


def test_a_file_uri_and_its_path_are_one_folder_with_one_lock(tmp_path: Path) -> None:
    by_uri, by_path = (
        Run("usage", cast("Any", None), out, Console(quiet=True))
        for out in (f"file://{tmp_path}/out", f"{tmp_path}/out")
    )
    living = Staged(by_uri.folder, "usage")
    make(living, "living", "usage")
    a_run(tmp_path / "out", "other")
    living.publish()
    assert texts(tmp_path / "out", "usage") == {"living"}
    assert by_uri.root == by_path.root
    # Spark's default file system may be another one.
    assert by_uri.for_spark(living.path) == f"file://{living.path}"
    assert by_path.for_spark(living.path) == living.path


@pytest.mark.parametrize(
    ("out", "warehouse", "words"),
    [
        ("lake.kafka", "file:/lake", "spark.sql.warehouse.dir /lake: not every worker sees"),
        ("lake.kafka", "hdfs://name/lake", None),
        ("file:///out", "", "--out file:///out: not every worker sees"),
        ("/out", "", "--out /out: not every worker sees"),
        ("s3a://bucket/out", "", None),
    ],
)
def test_whatever_lies_on_this_machine_is_compared_with_what_workers_wrote(
    out: str, warehouse: str, words: str | None
) -> None:
    spark = SimpleNamespace(conf={"spark.sql.warehouse.dir": warehouse})
    run = Run("usage", cast("Any", spark), out, Console(quiet=True), format="delta", is_here=False)
    assert run._is_spread == (words is not None)
    assert words is None or run._unshared.startswith(words)


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
    with pytest.raises(
        ConfigError, match="usage isn't divided by day"
    ):  # by a run that ended since
        days(tmp_path, run="d", mode="append", of=("1",), folder=folder)
    assert texts(tmp_path, "usage") == {"two"}
    a_run(tmp_path, "three", None, "effective")  # which has no time to be divided by
    refuse_other_layout(folder, ["effective"], by_day=True)
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
    out = tmp_path / "out"
    out.mkdir()
    days(out, run="a", mode="append", of=("1", "2"), folder=LocalFolder(str(out)))
    days(out, run="b", mode="append", of=("3",), folder=LocalFolder(str(out)))
    (first, *_) = sorted(paths(out, "usage"))
    shutil.rmtree(Path(first).parent)
    for read in (
        lambda: paths(out, "usage"),
        lambda: find_files([str(out / "usage")], may_lack=True),
        lambda: find_files([str(out)]),
        lambda: find_files([str(tmp_path)], may_lack=True),
    ):
        with pytest.raises(ConfigError, match=r"usage/day=\d, which isn't there"):
            read()
    assert files(out, "bad_lines") == ["part-b.parquet"]
    days(out, run="c", mode="overwrite", of=("3",), folder=LocalFolder(str(out)))
    assert files(out) == ["day=3/part-c.parquet"]


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


def test_a_lost_pointer_is_said_by_whoever_reads(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    first = Staged(LocalFolder(str(out)), "requests")
    make(first, "first", "requests")
    (tmp_path / "a.log").write_text("log")
    # What isn't finished, and would be named first, counts for nothing.
    assert [path for path, _ in find_files([str(tmp_path)])] == [str(tmp_path / "a.log")]
    first.publish()
    assert len(find_files([str(tmp_path)])) > 1
    (out / POINTER).unlink()
    under_way = Staged(LocalFolder(str(out)), "a")  # listed first
    make(under_way, "under way", "requests")
    for read in (
        lambda: find_files([str(tmp_path)]),
        lambda: find_files([f"{out}/run-*/requests"]),
        lambda: find_files([str(out)], may_lack=True),
        lambda: find_files([f"{out}/*"]),
        lambda: find_files([f"{out}/requests"]),
        lambda: paths(out, "requests"),
        lambda: read_tables(out),
    ):
        with pytest.raises(ConfigError, match=r"out: _tables\.json isn't there, and run-"):
            read()
    # A run that is named by hand is read.
    assert len(find_files([f"{first.path}/requests"])) == 2


def test_a_pattern_matches_what_counts(tmp_path: Path) -> None:
    for run in ("one", "two"):
        a_run(tmp_path, run, None, "requests")
    wanted = paths(tmp_path, "requests")
    for pattern in ("*/requests", "run-*/requests", "run-*/requests/part-*", "*/*/*.parquet"):
        found = [path for path, _ in find_files([f"{tmp_path}/{pattern}"])]
        assert {Path(path).read_text() for path in found} == {"two"}, pattern
        assert set(wanted) <= set(found), pattern
    assert find_files([f"{tmp_path}/*"]) == find_files([f"{tmp_path}/run-*"])
    assert find_files([f"{tmp_path}/*"]) == find_files([str(tmp_path)])


@pytest.mark.parametrize("name", ["t[1]", "x y", "p%20q", "*", "a{b}"])
def test_a_directory_is_the_one_that_is_named_whatever_it_is_called(
    name: str, tmp_path: Path
) -> None:
    for other in ("t1", "x%20y", "p q", "ab"):
        (tmp_path / other / "usage").mkdir(parents=True)
        (tmp_path / other / "usage" / "part-0.parquet").write_text("another's")
    out = tmp_path / name
    out.mkdir()
    a_run(out, "mine")
    wanted = paths(out, "usage")
    assert texts(out, "usage") == {"mine"}
    assert paths(f"file://{out}", "usage") == wanted
    for given in (f"{out}/usage", f"file://{out}/usage", f"file:{out}/usage"):
        assert [path for path, _ in find_files([given])] == wanted
    assert set(wanted) < {path for path, _ in find_files([f"file://{out}"])}
    if name == "t[1]":
        assert len(find_files([f"{out}/run-*"])) == len(find_files([str(out)]))


def test_a_folder_of_a_tables_name_doesnt_hide_the_table(tmp_path: Path) -> None:
    (tmp_path / "usage").mkdir()
    a_run(tmp_path, "one")
    assert texts(tmp_path, "usage") == {"one"}
    (tmp_path / "usage" / "notes.txt").write_text("mine")
    assert [path for path, _ in find_files([f"{tmp_path}/usage"])] == paths(tmp_path, "usage")
    (tmp_path / "usage" / "part-0.parquet").write_text("older")
    for read in (
        lambda: paths(tmp_path, "usage"),
        lambda: find_files([f"{tmp_path}/usage"]),
    ):
        with pytest.raises(ConfigError, match="usage lies there without a run, beside one that"):
            read()


def test_names_keep_the_account_of_a_container(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``abfss://``: Arrow's paths begin with the container, and the account isn't in them."""
    asked = []

    def from_uri(uri: str) -> tuple[Any, str]:
        asked.append(uri)
        inner = f"c/{unquote(uri.partition('.net/')[2])}"
        return fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem()), inner

    monkeypatch.setattr(sources, "fs", SimpleNamespace(**vars(fs)))
    monkeypatch.setattr(sources.fs, "FileSystem", SimpleNamespace(from_uri=from_uri))
    out = tmp_path / "c" / "o ut%"
    out.mkdir(parents=True)
    a_run(out, "one", None, "requests")
    place = "abfss://c@a.dfs.core.windows.net/o ut%"
    [run] = out.glob("run-*")
    first = f"{place}/{run.name}/requests/part-one-2.parquet"
    assert paths(place, "requests")[0] == first
    for given in (place, f"{place}/requests", f"{place}/{run.name}/"):
        assert first in [path for path, _ in find_files([given])]
    assert set(asked) >= {"abfss://c@a.dfs.core.windows.net/o%20ut%25"}


def test_a_run_that_ends_while_a_directory_is_listed_is_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_run(tmp_path, "one", None, "requests")
    real = sources.read_pointer

    def later(system: Any, folder: str) -> Any:
        monkeypatch.undo()
        for run in ("two", "three"):  # what was listed is gone
            a_run(tmp_path, run, None, "requests")
        return real(system, folder)

    monkeypatch.setattr(sources, "read_pointer", later)
    place = sources.GivenPath.of(str(tmp_path))
    found = sources._counted(place, place.inner, place.infos())
    assert [Path(i.path).read_text() for i in found if i.path.endswith("-2.parquet")] == ["three"]

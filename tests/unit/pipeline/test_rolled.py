"""Which files of a growing directory a round reads."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from headgate.pipeline.rolled import Input, RolledFiles


def take(rolled: RolledFiles, *paths: Path) -> tuple[list[tuple[str, str]], list[Input]]:
    """Return (name, why it isn't read) of a round's pieces, and what it remembers."""
    found = rolled.take([(str(p), p.stat().st_size if p.exists() else 9) for p in paths])
    return [(Path(s.path).name, s.unread) for s in found.splits], found.inputs


@pytest.mark.parametrize("killed", [False, True])
def test_a_log_that_was_compressed_since_it_was_read_is_not_read_again(
    tmp_path: Path, killed: bool
) -> None:
    plain, other = tmp_path / "r.2026-01-01", tmp_path / "r.2026-01-02"
    for path in (plain, other):
        path.write_text(f"{path.name}\n")
    rolled = RolledFiles()
    pieces, inputs = take(rolled, plain, other)
    assert pieces == [(plain.name, ""), (other.name, "")]
    if killed:
        rolled = RolledFiles()
        rolled.remember(inputs)
    packed, new = tmp_path / f"{plain.name}.gz", tmp_path / "r.2026-01-03.gz"
    for path in (packed, new):
        path.write_bytes(gzip.compress(b"text\n"))
    plain.unlink()
    pieces, inputs = take(rolled, packed, new)
    why = f"it is {plain}, compressed, which was read"
    assert pieces == [(packed.name, why), (new.name, "")]
    assert [row.worker_id for row in inputs] == [new.name]


@pytest.mark.parametrize("killed", [False, True])
def test_a_log_that_is_written_to_after_it_was_read_is_told_of_once(
    tmp_path: Path, killed: bool
) -> None:
    live, rolled_one = tmp_path / "kafka-request.log", tmp_path / "kafka-request.log.1"
    live.write_text("a\n")
    rolled_one.write_text("b\n")
    rolled = RolledFiles()
    remembered = take(rolled, live, rolled_one)[1]
    with live.open("a") as file:
        file.write("more\n")
    for number, told in enumerate((True, False)):
        if killed:
            rolled = RolledFiles()
            rolled.remember(remembered)
        new = tmp_path / f"new.{number}"
        new.write_text(f"{number}\n")
        pieces, inputs = take(rolled, new)
        remembered += inputs
        why = "it was, with 2 bytes, and has 7 now; point --requests at files that are written no "
        changed = [(live.name, why + "more, whose names stay")] if told else []
        assert pieces == [*changed, (new.name, "")]


def test_a_log_that_went_before_it_was_read_is_told_of(tmp_path: Path) -> None:
    assert take(RolledFiles(), tmp_path / "went.log") == (
        [("went.log", "it went before it was read")],
        [],
    )

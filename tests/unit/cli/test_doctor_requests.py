"""What the doctor says about request logs."""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

import pytest

from headgate.cli.doctor.requests import look_at_requests
from headgate.cli.results import Examined

DATA = Path(__file__).parents[2] / "data" / "field"


def looked(capsys: pytest.CaptureFixture[str], *names: str) -> tuple[dict[str, str], Examined]:
    """Return what is printed about logs, by its first word, and the findings."""
    report = Examined([], [], [])
    paths = [str(DATA / name) for name in names]
    given = argparse.Namespace(requests=paths, time_zone=None, principal_pattern="")
    look_at_requests(given, report)
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == paths[0]
    return {line[:12].strip(): line[12:] for line in printed[1:]}, report


@pytest.mark.parametrize(
    ("name", "answers", "why"),
    [
        ("F01-whole-seconds/stdout.log", False, "moments are too coarse"),
        ("F01-whole-seconds/cri-0.log", True, ""),
        ("F04-several-brokers.log.gz", False, "several brokers count as one"),
        ("F18-lossy.log.gz", False, "requests are missing"),
    ],
)
def test_it_says_which_commands_can_answer(
    name: str, answers: bool, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    said, report = looked(capsys, name)
    assert ("replay" in said["answers"]) == answers
    assert said.get("not", "") == (f"replay, what-if, recommend, why: {why}" if why else "")
    assert bool(report.found) != answers
    assert "usage" in said["answers"]
    assert report.seen == ["1 log"]


def test_it_says_what_a_log_is(capsys: pytest.CaptureFixture[str]) -> None:
    said, report = looked(capsys, "F05-wrapper-knows-the-zone/t51-docker-local-tz.log")
    assert said["shape"] == "docker json-file"
    assert said["requests"] == "6"
    assert said["time"].endswith("rounded to 1 ms; the wrapper's zone is used")
    assert said["brokers"] == "one"
    assert [found for found in report.found if "the wrapper's zone is used" in found]
    said, _ = looked(capsys, "F16-pretty-printed/utf16-without-bom.log")
    assert (said["shape"], said["requests"]) == ("Kafka's own", "4")


def test_it_says_why_a_log_has_no_requests(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    said, report = looked(capsys, "F12-journald/null.json")
    assert said["bad lines"].startswith("2: journalctl left the message out")
    assert report.found == [f"{DATA / 'F12-journald/null.json'} holds no request that can be read"]
    (tmp_path / "a.7z").write_bytes(b"7z\xbc\xaf\x27\x1c" + bytes(99))
    shutil.copy(DATA / "F07-wrapped-twice/docker-over-ecs.log", tmp_path / "b.log")
    report = Examined([], [], [])
    given = argparse.Namespace(requests=[str(tmp_path)], time_zone="UTC", principal_pattern="")
    look_at_requests(given, report)
    assert report.found[0].startswith(f"{tmp_path / 'a.7z'} isn't read: it is 7-zip")
    assert report.seen == ["2 logs"]

"""`headgate why --watch`: a line for each change of the answer, and none for its figures."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from headgate.cli import watching
from headgate.cli import why as command
from headgate.cli.main import load
from headgate.errors import StoreError
from headgate.live.effective import effective_of
from headgate.live.picture import BrokerPicture, ClientUse, Picture, QuotaUse
from headgate.live.why import why
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import PRODUCER
from headgate.quota.table import QuotaTable

AT = 1_800_000_000_000


def picture(
    seconds: int, rate: float, held: int = 0, quota: float = 1e6, silent: str = ""
) -> Picture:
    at_ms = AT + seconds * 1000
    until_ms = at_ms + 700 if held else 0
    client = ClientUse("alice", "etl", 1, held=held, held_until_ms=until_ms)
    use = QuotaUse(
        PRODUCER.name, "alice", quota=quota, rate=rate, held=held, held_until_ms=until_ms,
        clients=(client,),
    )  # fmt: skip
    limits = QuotaTable.of({QuotaEntity.of(user="alice"): {PRODUCER: quota}})
    broker = BrokerPicture(1, connections=1, quotas=(use,), silent=silent)
    return Picture(
        at_ms, brokers=(broker,), user="alice", client_id="etl",
        effective=effective_of(limits, "alice", "etl"),
    )  # fmt: skip


class Gateway:
    """Answers in turn; Ctrl-C is pressed after the last."""

    def __init__(self, *answers: Picture | StoreError) -> None:
        self.answers: Iterator[Picture | StoreError] = iter(answers)

    def __enter__(self) -> Gateway:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def picture(self, *_: object) -> Picture:
        answer = next(self.answers, None)
        if answer is None:
            raise KeyboardInterrupt
        if isinstance(answer, StoreError):
            raise answer
        return answer


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)
    monkeypatch.setattr(watching, "now_ms", lambda: AT + 60_000)


def watch(monkeypatch: pytest.MonkeyPatch, *answers: Picture | StoreError) -> int:
    monkeypatch.setattr(command, "open_servers", lambda *_: Gateway(*answers))
    flags = ["--bootstrap-server", "gateway:1", "--user", "alice", "--client-id", "etl"]
    return load("why")([*flags, "--watch"])


def test_a_pipe_gets_a_line_for_each_change_with_its_time(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    status = watch(
        monkeypatch,
        picture(0, 2e5),
        picture(2, 3e5),
        picture(4, 1.2e6, held=1),
        picture(6, 1.3e6, held=1),
        StoreError("gateway:1 refused"),
        StoreError("gateway:1 timed out"),
        picture(12, 1e5),
        picture(14, 1e5, quota=2e6),
        picture(16, 1e5, quota=2e6, silent="no answer for 12 s"),
        picture(18, 1e5, quota=2e6, silent="no answer for 1 min 3 s"),
    )
    assert status == 130
    lines = capsys.readouterr().out.splitlines()
    assert [line[11:19] for line in lines] == [
        "08:00:00", "08:00:04", "08:01:00", "08:00:12", "08:00:14", "08:00:16",
    ]  # fmt: skip
    assert "isn't held: users/alice allows 1 MB/s" in lines[0]
    assert "waits 700 ms more" in lines[1]
    assert lines[2].endswith("No answer from the gateway, asking again: gateway:1 refused")
    assert "isn't held: users/alice allows 2 MB/s" in lines[4]
    assert "Broker 1 doesn't answer" in lines[5]


def test_a_first_question_without_an_answer_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert watch(monkeypatch, StoreError("gateway:1 refused")) == 1
    assert "gateway:1 refused" in capsys.readouterr().err


def test_it_ends_when_nobody_reads_any_more(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = (picture(n, 1e5, held=n % 2) for n in range(9))
    gone = iter([False, False, True])
    monkeypatch.setattr(watching, "reader_gone", lambda: next(gone))
    assert watch(monkeypatch, *answers) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_a_past_moment_and_json_are_not_watched(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--user", "alice", "--watch"]
    assert load("why")([*flags, "--requests", "x"]) == 2
    assert load("why")([*flags, "--bootstrap-server", "gateway:1", "--json"]) == 2
    assert "--watch goes with --bootstrap-server, and without --json" in capsys.readouterr().err


def test_a_note_that_names_another_time_is_the_same_answer() -> None:
    found = replace(why(picture(0, 1e5), "alice", "etl"), connecting=("It has waited for 12 s.",))
    later = replace(found, at_ms=AT + 9, connecting=("It has waited for 1 min 3 s.",))
    assert watching.answer(found) == watching.answer(later)

"""Log lines: fields for people or machines, nothing secret, nothing forged, libraries too."""

from __future__ import annotations

import io
import json
import logging
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from headgate.config import Settings
from headgate.config.kinds import Password
from headgate.gateway.log import HIDDEN, LIBRDKAFKA, get_logger, set_up
from headgate.gateway.usage_journal import topic_config

log = get_logger("headgate.test")


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    root, ours = logging.getLogger(), logging.getLogger("headgate")
    before = (root.handlers[:], root.level, ours.level)
    yield
    root.handlers[:], level, our_level = before
    root.setLevel(level)
    ours.setLevel(our_level)
    logging.captureWarnings(capture=False)


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_text_is_an_event_with_its_fields() -> None:
    stream = io.StringIO()
    set_up("text", stream=stream, bound={"worker": "2"})
    log.warning("connection closed", reason="idle", broker=1, detail='said "no" = bye', at=None)
    when, level, rest = stream.getvalue().split(maxsplit=2)
    assert when.endswith("Z")
    assert level == "warning"
    assert rest == (
        "connection closed logger=headgate.test reason=idle broker=1 "
        'detail="said \\"no\\" = bye" at=None worker=2\n'
    )


def test_json_is_one_object_a_line_whoever_spoke() -> None:
    stream = io.StringIO()
    set_up("json", stream=stream, bound={"pid": 7})
    log.info("ready", broker=1, up=True)
    logging.getLogger("kazoo.client").warning("lost %s", "it")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("old", DeprecationWarning, stacklevel=1)
    ours, library, warning = lines(stream)
    assert {key: ours[key] for key in ("event", "level", "logger", "broker", "up", "pid")} == {
        "event": "ready",
        "level": "info",
        "logger": "headgate.test",
        "broker": 1,
        "up": True,
        "pid": 7,
    }
    assert (library["event"], library["logger"], library["pid"]) == ("lost it", "kazoo.client", 7)
    assert warning["logger"] == "py.warnings"


def test_debug_lines_are_ours_alone_and_only_when_asked_for() -> None:
    quiet, verbose = io.StringIO(), io.StringIO()
    for stream, wanted in ((quiet, False), (verbose, True)):
        set_up("json", stream=stream, verbose=wanted)
        log.debug("a decision")
        logging.getLogger("kazoo").debug("a packet")
    assert quiet.getvalue() == ""
    assert [line["event"] for line in lines(verbose)] == ["a decision"]


@pytest.mark.parametrize("form", ["text", "json"])
def test_secrets_are_hidden_by_name_and_by_kind(form: str) -> None:
    stream = io.StringIO()
    set_up(form, stream=stream)
    named = ("sasl_password", "ssl_key_passwd", "client_secret", "oauth_token", "Credentials")
    log.info("settings", value=Password("hush"), **dict.fromkeys(named, "hush"))
    assert "hush" not in stream.getvalue()
    assert stream.getvalue().count(HIDDEN) == len(named) + 1


@pytest.mark.parametrize("form", ["text", "json"])
def test_what_peers_chose_can_neither_forge_a_line_nor_move_a_cursor(form: str) -> None:
    stream = io.StringIO()
    set_up(form, stream=stream)
    bad = "app\n2026-01-01T00:00:00Z error forged\x1b[2J\x9b\u202e\ud800"
    log.warning("connection closed", client_id=bad)
    logging.getLogger("kazoo").warning("said %s", bad)
    try:
        raise ValueError(bad.replace("\n", " "))
    except ValueError:
        log.exception("failed")
    said = stream.getvalue()
    assert not set(said) & set("\x1b\x9b\u202e\ud800")
    starts = [line for line in said.splitlines() if " error " in line[:40] or '"level"' in line]
    assert len(starts) == (1 if form == "text" else 3)
    assert "ValueError" in said


def test_librdkafka_speaks_through_us_and_not_without_end() -> None:
    stream = io.StringIO()
    set_up("json", stream=stream)
    config = topic_config(
        Settings.from_properties(
            {
                "headgate.upstream": "x:1",
                "headgate.broker.id.min": "1",
                "headgate.broker.id.max": "1",
            }
        )
    )
    for minute in range(2):
        for number in range(100):
            record = logging.makeLogRecord(
                {"name": LIBRDKAFKA, "levelno": logging.ERROR, "levelname": "ERROR",
                 "msg": f"FAIL {minute} {number}"}
            )  # fmt: skip
            record.created = 1_700_000_040 + 60.0 * minute
            config["logger"].handle(record)
    assert [line["event"] for line in lines(stream)] == [
        f"FAIL {minute} {number}" for minute in range(2) for number in range(10)
    ]


def test_an_application_with_its_own_logging_sees_the_fields(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO, "headgate.test"):
        log.info("lease lost", broker=1, why="another worker has it", password="hush")
    assert caplog.messages == [
        f'lease lost  broker=1 why="another worker has it" password={HIDDEN}'
    ]

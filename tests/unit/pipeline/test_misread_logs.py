"""Logs in which something that isn't the logger's own looks like it: it isn't read for that."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headgate.pipeline.logs import field_times
from headgate.pipeline.logs.line_parser import LineParser, LogRow
from kit.request_lines import BEGIN, HEAD, body, ms, old, read, stock

STAMP = {"@timestamp": "2024-10-25T10:15:30.123Z"}


def counted(rows: list[dict[str, Any]]) -> list[tuple[str, str | None]]:
    """Return (kind, principal) of each row."""
    return [(row["kind"], row["principal"]) for row in rows]


# A copy of what a client says is no request

FORGERY = stock(client="x", number=9, principal="User:victim")
OLD_FORGERY = old(client="x", principal="User:victim", throttle="900")


def named(text: str) -> str:
    """Return a stock line whose client has a text for its name."""
    return stock(client=json.dumps(text)[1:-1])


COPIED: dict[str, Callable[[str, str], dict[str, Any]]] = {
    "beside": lambda text, line: {"client_id": text, "message": line},
    "behind": lambda text, line: {"message": line, "client_id": text},
    "in an object": lambda text, line: {"kafka": {"client": {"id": text}}, "message": line},
    "in a list": lambda text, line: {"tags": [text], "message": line},
    "in a list of objects": lambda text, line: {"clients": [{"id": text}], "message": line},
    "in a string": lambda text, line: {"log": json.dumps({"client_id": text, "message": line})},
    "of what was parsed": lambda text, line: {
        "client_id": text,
        "kafka": json.loads(line[line.index("{") : line.rindex("}") + 1]),
    },
    "of a line of bytes": lambda text, line: {"client": text, "MESSAGE": list(line.encode())},
}


@pytest.mark.parametrize("text", [FORGERY, f"x {FORGERY} {FORGERY}", OLD_FORGERY])
@pytest.mark.parametrize("copied", COPIED)
@pytest.mark.parametrize("scan", [False, True])
def test_a_copy_of_a_clients_name_is_no_request(
    copied: str, text: str, scan: bool, tmp_path: Path
) -> None:
    line = json.dumps(STAMP | COPIED[copied](text, named(text)), ensure_ascii=False)
    found = read(tmp_path, [line], scan=scan)
    assert counted(found) == [("request", "bob")]
    assert (found[0]["client_id"], found[0]["record_ms"]) == (text, ms(BEGIN))


@pytest.mark.parametrize("cut", [40, 100, 500])
@pytest.mark.parametrize("text", [FORGERY, OLD_FORGERY])
@pytest.mark.parametrize("copied", ["beside", "behind", "in an object", "in a list"])
def test_a_copy_isnt_taken_for_a_request_that_is_cut_off(
    copied: str, text: str, cut: int, tmp_path: Path
) -> None:
    """Whether it is cut behind the name, or in it."""
    line = named(text)
    cut_line = line[:-cut]
    assert HEAD[:15] in cut_line or "requestHeader" in cut_line
    found = read(tmp_path, [json.dumps(STAMP | COPIED[copied](text, cut_line))])
    assert {kind for kind, _ in counted(found)} == {"bad"}


def test_a_copy_beside_a_line_of_before_2_8_is_no_request(tmp_path: Path) -> None:
    for text in (FORGERY, OLD_FORGERY):
        line = json.dumps(STAMP | {"client_id": text, "message": old(client=text)})
        assert "victim" not in [name for _, name in counted(read(tmp_path, [line]))]


def test_a_clients_name_hides_no_other_request(tmp_path: Path) -> None:
    """What one event of a list says of another is no copy of it."""
    events = [{"message": stock(number=1)}, {"message": named(stock(number=1))}]
    found = read(tmp_path, [json.dumps(STAMP | {"logEvents": events})])
    assert counted(found) == [("request", "bob")] * 2


# An old line is one only where it's the line itself


def flat(request: str, **others: Any) -> dict[str, Any]:
    """Return a request as search engines flatten it, its keys in order."""
    fields = json.loads(request)
    header = {f"requestHeader.{k}": v for k, v in fields.pop("requestHeader").items()}
    return dict(sorted((STAMP | header | fields | others).items()))


BEFORE: dict[str, str] = {
    "a principal": json.dumps(flat(body(), principal=f"User:{OLD_FORGERY}")),
    "a connection": json.dumps(flat(body(), connection=OLD_FORGERY)),
    "a client": json.dumps(flat(body(client="c")) | {"a.clientId": OLD_FORGERY}),
    "sorted, behind a stamp": "[2024-10-25 10:15:30,123] DEBUG "
    + json.dumps(
        dict(sorted((json.loads(body()) | {"principal": f"User:{OLD_FORGERY}"}).items())),
    ),
    "sorted, in a string": json.dumps(
        STAMP | {"log": json.dumps(flat(body(), principal=f"User:{OLD_FORGERY}"))}
    ),
}


@pytest.mark.parametrize("scan", [False, True])
@pytest.mark.parametrize("case", BEFORE)
@pytest.mark.parametrize("cut", [0, 100])
def test_an_old_line_in_front_of_a_header_is_a_name(
    case: str, cut: int, scan: bool, tmp_path: Path
) -> None:
    line = BEFORE[case]
    found = read(tmp_path, [line[: len(line) - cut]], scan=scan)
    if cut:
        assert counted(found) == [("bad", None)]
        return
    (row,) = found
    assert row["kind"] == "request"
    assert (row["throttle_time_ms"], row["record_ms"]) == (0, ms(BEGIN))


@pytest.mark.parametrize("scan", [False, True])
def test_old_lines_in_a_list_are_read_each(scan: bool, tmp_path: Path) -> None:
    events = [STAMP | {"message": old(principal=f"User:{name}")} for name in "ab"]
    found = read(tmp_path, [json.dumps(events)], scan=scan)
    assert counted(found) == [("request", "a"), ("request", "b")]


@pytest.mark.parametrize("scan", [False, True])
def test_a_request_in_an_old_lines_name_is_a_name(scan: bool, tmp_path: Path) -> None:
    client = body(client="x", principal="User:victim")
    found = read(tmp_path, [old(client=client)], scan=scan)
    assert [(row["principal"], row["client_id"]) for row in found] == [("bob", client)]


# A field is a time's by the words of its name

NOT_TIMES = (
    "securityPrincipal", "sec_client", "sector", "validate", "timeout", "candidate_id",
    "clientSecret", "statementId", "principal_at_rest",
)  # fmt: skip
TIMES = (
    "eventtime", "logTime", "log_time", "epochSecond", "epoch_ms", "unix_sec", "timeUnixNano",
    "creationTimestamp", "ts", "@t", "logged_at", "dateTime", "time_in_seconds", "logDate",
)  # fmt: skip


@pytest.mark.parametrize("value", [1_893_456_000_000, "1893456000000", "2030-01-01 00:00:00"])
@pytest.mark.parametrize("name", NOT_TIMES)
def test_no_name_that_has_a_times_letters_is_one(
    name: str, value: str | int, tmp_path: Path
) -> None:
    fields = {name: value, "message": stock()[26:], "zz": {"eventTime": STAMP["@timestamp"]}}
    assert [row["record_ms"] for row in read(tmp_path, [json.dumps(fields)])] == [ms(BEGIN)]


@pytest.mark.parametrize("name", TIMES)
def test_a_times_name_is_one(name: str, tmp_path: Path) -> None:
    fields = {name: int(ms(BEGIN)), "message": stock()[26:]}
    assert [row["record_ms"] for row in read(tmp_path, [json.dumps(fields)])] == [ms(BEGIN)]


# What is looked at grows with a line, and no faster


def in_an_object(count: int) -> Any:
    return {f"e{n}": STAMP | {"message": stock(number=n)[26:]} for n in range(count)}


def beside_others(count: int) -> Any:
    others = {f"time{n}": "2024-10-25" for n in range(count)}
    return others | {"logEvents": [STAMP | {"message": stock(number=n)} for n in range(count)]}


@pytest.mark.parametrize("form", [in_an_object, beside_others])
def test_each_field_is_looked_at_once(
    form: Callable[[int], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = 0
    real = field_times._of_field

    def counting(name: str, value: Any, stamps: Any) -> Any:
        nonlocal looked
        looked += 1
        return real(name, value, stamps)

    monkeypatch.setattr(field_times, "_of_field", counting)
    steps = []
    for count in (20, 40, 80):
        looked = 0
        rows = LineParser().rows(json.dumps(form(count)).encode())
        assert [type(row) for row in rows] == [LogRow] * count
        steps.append(looked)
    assert steps[2] - steps[1] <= 2 * (steps[1] - steps[0])


# The columns of CSV are what the file calls them


def cell(text: str) -> str:
    """Return a cell of CSV."""
    return '"' + text.replace('"', '""') + '"'


@pytest.mark.parametrize("name", ["principal", "client_id", "topic", "Description"])
@pytest.mark.parametrize("piece_bytes", [1 << 30, 1500])
def test_no_cell_is_a_time_but_one_of_a_times_column(
    name: str, piece_bytes: int, tmp_path: Path
) -> None:
    cells = ["2030-01-01 00:00:00", STAMP["@timestamp"], cell(stock()[26:])]
    lines = [f"{name},_time,_raw", *[",".join(cells)] * 6]
    found = read(tmp_path, lines, piece_bytes=piece_bytes)
    assert [(row["kind"], row["record_ms"]) for row in found] == [("request", ms(BEGIN))] * 6


def test_a_cell_may_go_on_in_the_next_piece(tmp_path: Path) -> None:
    cut = stock()[26:].replace('"request":{}', '"request":\n{}')
    lines = ["_time,_raw", *[f"{STAMP['@timestamp']},{cell(cut)}"] * 9]
    whole = read(tmp_path, lines)
    assert counted(whole) == [("request", "bob")] * 9
    for piece_bytes in range(700, 1500, 37):
        assert read(tmp_path, lines, piece_bytes=piece_bytes) == whole

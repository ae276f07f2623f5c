"""Logs in which something that isn't the logger's own looks like it: it isn't read for that."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headgate.pipeline.logs import field_times, joining
from headgate.pipeline.logs.line_parser import LineParser, LogRow
from headgate.pipeline.logs.parts import Part
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
    "in a row": lambda text, line: {"row": ["a", text, line]},
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


# Whose lines are put together

CUT = 400  # within a request's JSON
SHIPPED = {"host": {"name": "k0"}}
OTHERS = (
    "[2024-10-25 10:15:31,000] INFO [Log partition=x-0] Rolled (kafka.log.Log)",
    "2024-10-25T10:15:31Z WARN x",
    "10:15:31,000 x",
    "25 Oct 2024 10:15:31,000 x",
    "Oct 25 10:15:31 x",
    "1729851331000 [main] x",
    "INFO x",
    "[ERROR] x",
)


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("end", ["", "rest", "rest alone"])
def test_no_other_loggers_line_goes_on_with_a_request(other: str, end: str, tmp_path: Path) -> None:
    """Nor is what it says a part of that request's."""
    line = stock()
    cut = line.index('"c"') + 2
    rest = line[cut:] if end else '"}'
    other += rest if end == "rest" else ""
    texts = [line[:cut], other, *([rest] if end == "rest alone" else [])]
    found = read(tmp_path, [json.dumps(SHIPPED | {"message": text}) for text in texts])
    names = {row["client_id"] for row in found}
    assert names <= ({None, "c"} if end == "rest alone" else {None})


@pytest.mark.parametrize("other", OTHERS)
def test_no_other_loggers_line_goes_on_with_printed_json(other: str, tmp_path: Path) -> None:
    printed = json.dumps(json.loads(body()), indent=1).splitlines()
    lines = [f"[2024-10-25 10:15:30,123] DEBUG Completed request:{printed[0]}", other, *printed[1:]]
    found = read(tmp_path, lines)
    reasons = [row["reason"] for row in found if row["kind"] == "bad" and row["offset"]]
    assert "not a request line" in reasons


LAST = {
    "an object in a text": {"note": "{}"},
    "a request's end": {"sent": json.dumps({"x": {"y": 1}})},
    "an object": {"labels": {"a": {"b": "}"}}},
}


@pytest.mark.parametrize("last", LAST)
@pytest.mark.parametrize("cut", ["anywhere", "behind a brace"])
def test_a_cut_message_is_one_whatever_stands_behind_it(
    last: str, cut: str, tmp_path: Path
) -> None:
    """Its request is read, too, where a piece ends between its parts."""
    lines = []
    for number in range(12):
        text = stock(number=100 + number)
        at = CUT if cut == "anywhere" else text.index("}") + 1
        parts = text[:at], text[at:]
        lines += [json.dumps(SHIPPED | {"message": part} | LAST[last]) for part in parts]
    whole = read(tmp_path, lines)
    assert counted(whole) == [("request", "bob")] * 12
    for piece_bytes in (1000, 1777, 2600):
        assert read(tmp_path, lines, piece_bytes=piece_bytes) == whole


# What is refused is counted


def broken(text: str) -> str:
    """Return a request's text whose JSON is wrong in the middle."""
    return text.replace('"request":{}', '"request":{,}')


def test_what_is_broken_in_a_joined_line_is_counted(tmp_path: Path) -> None:
    texts = [stock(number=1), broken(stock(number=2)), stock(number=3), broken(stock(number=4))]
    event = json.dumps(texts)
    lines = []
    for more, part in ((True, event[:CUT]), (True, event[CUT:-CUT]), (False, event[-CUT:])):
        lines.append(f"2024-10-25T10:15:30.2Z stdout {'FP'[more]} {part}")
    found = read(tmp_path, lines)
    assert sorted(row["kind"] for row in found) == ["bad", "bad", "request", "request"]
    assert all(row["reason"] and row["file"] for row in found if row["kind"] == "bad")


def test_what_is_broken_in_a_document_is_counted(tmp_path: Path) -> None:
    bad = json.loads(body()) | {"principal": "x"}
    whole = {"first": STAMP | json.loads(body()), "second": STAMP | bad}
    text = json.dumps({"events": [whole["first"]], "last": whole}, indent=1)
    found = read(tmp_path, text.splitlines())
    assert sorted(row["kind"] for row in found) == ["bad", "request", "request"]


# What is kept is looked at once


class Counted(str):
    """A text that counts the characters that are copied of it."""

    __slots__ = ()
    copied = 0

    def __getitem__(self, place: Any) -> Counted:
        made = Counted(super().__getitem__(place))
        Counted.copied += len(made)
        return made


def elements_in_a_line(count: int) -> list[str]:
    element = '{"a":"requestHeader"},'
    return ['{"events":[' + element * count, element * count]


def elements_over_lines(count: int) -> list[str]:
    return ['{"events":[', *['{"a":', '"requestHeader"},'] * count]


def elements_in_elements(count: int) -> list[str]:
    return ['[{"a":' * count, *['"requestHeader"}],'] * count]


def elements_in_elements_in_a_line(count: int) -> list[str]:
    return ["[" + '[{"a":' * count + '"requestHeader"}],' * count]


@pytest.mark.parametrize(
    "form",
    [
        elements_in_a_line,
        elements_over_lines,
        elements_in_elements,
        elements_in_elements_in_a_line,
    ],
)
def test_what_is_copied_grows_with_a_text_and_no_faster(form: Callable[[int], list[str]]) -> None:
    def copied(count: int) -> int:
        Counted.copied = 0
        opened = joining._Open(Part((), (), "", None, str))
        given = []
        for line in form(count):
            given += opened.take(0, line.encode(), Part((), (), Counted(line), None, str))
        assert len(given) >= count
        assert "requestHeader" not in opened.text
        return Counted.copied

    few, many = copied(500), copied(2000)
    assert many <= 5 * few

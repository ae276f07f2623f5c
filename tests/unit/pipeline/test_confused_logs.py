"""Logs that confuse: what a client says, or another host, isn't taken for something else."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from headgate.errors import ConfigError
from headgate.pipeline.logs import find, joining
from headgate.pipeline.logs.bad_lines import BadLine
from headgate.pipeline.logs.line_parser import LineParser
from headgate.pipeline.sources import chunks, under_way
from headgate.pipeline.sources.files import find_files
from headgate.pipeline.sources.identity import whole_lines
from headgate.pipeline.sources.pieces import pieces_of
from headgate.pipeline.sources.quality import look
from headgate.pipeline.workers.log_reader import ReadOptions, RequestsOfLogs
from kit.request_lines import BEGIN, HEAD, NAMED, TAIL, body, ms, old, read, stock

HOUR = timedelta(hours=1)


# A lag is no zone


def seen(at: datetime, late: timedelta) -> str:
    """Return a line as a runtime wrote it, late."""
    return f"{at + late:%Y-%m-%dT%H:%M:%S.%f}Z stdout F {stock(at)}"


@pytest.mark.parametrize("scan", [False, True])
@pytest.mark.parametrize("piece_bytes", [1 << 30, 1500])
@pytest.mark.parametrize("begins_late", [False, True])
def test_a_line_that_is_an_hour_late_shifts_no_line(
    scan: bool, piece_bytes: int, begins_late: bool, tmp_path: Path
) -> None:
    """It shifts neither itself, nor those behind it, wherever a piece begins."""
    times = [BEGIN + timedelta(seconds=n) for n in range(200)]
    late = {0} if begins_late else {60, 61, 150}
    lines = [seen(at, HOUR if n in late else timedelta()) for n, at in enumerate(times)]
    rows = read(tmp_path, lines, scan=scan, piece_bytes=piece_bytes)
    assert [row["record_ms"] for row in rows] == [ms(at) for at in times]


@pytest.mark.parametrize("scan", [False, True])
@pytest.mark.parametrize("piece_bytes", [1 << 30, 1500])
@pytest.mark.parametrize("turn", [1, -1])
def test_clocks_may_change_within_a_file(
    scan: bool, piece_bytes: int, turn: int, tmp_path: Path
) -> None:
    times = [BEGIN + timedelta(seconds=30 * n) for n in range(200)]
    shifts = [2 * HOUR if n < 100 else (2 + turn) * HOUR for n in range(200)]
    lines = [seen(at - shift, shift) for at, shift in zip(times, shifts, strict=True)]
    rows = read(tmp_path, lines, scan=scan, piece_bytes=piece_bytes)
    assert [row["record_ms"] for row in rows] == [ms(at) for at in times]


@pytest.mark.parametrize("scan", [False, True])
@pytest.mark.parametrize("changes", [True, False])
def test_a_compressed_log_over_a_clock_change_says_so(
    scan: bool, changes: bool, tmp_path: Path
) -> None:
    times = [BEGIN + timedelta(seconds=30 * n) for n in range(200)]
    shifts = [HOUR if n < 100 or not changes else 2 * HOUR for n in range(200)]
    lines = [seen(at - shift, shift) for at, shift in zip(times, shifts, strict=True)]
    log = tmp_path / "kafka.log.gz"
    log.write_bytes(gzip.compress("".join(f"{line}\n" for line in lines).encode()))
    (piece,) = pieces_of(find_files([str(log)]))
    batches = RequestsOfLogs(ReadOptions((piece,), scan=scan)).read(piece)
    rows = [row for batch in batches for row in batch.to_pylist()]
    reasons = [row["reason"] for row in rows if row["kind"] == "bad"]
    assert ["clocks changed" in reason for reason in reasons] == [True] * changes
    assert sum(row["kind"] == "request" for row in rows) == 200


# Parts are of one source

CUT = 400  # within a request's JSON


def told(fields: dict[str, Any], text: str) -> str:
    return json.dumps(fields | {"log": text})


def in_kubernetes(host: int, text: str, number: int, *, more: bool) -> str:
    tag = "P" if more else "F"
    fields = {"time": f"2024-10-25T10:15:30.{number:03d}Z", "stream": "stdout", "logtag": tag}
    return told(fields | {"kubernetes": {"pod_name": f"kafka-{host}"}}, text)


def in_docker(host: int, text: str, number: int, *, more: bool) -> str:
    fields = {
        "stream": "stdout",
        "attrs": {"name": f"k{host}"},
        "time": f"2024-10-25T10:15:3{number}Z",
    }
    return json.dumps({"log": text if more else f"{text}\n"} | fields)


def in_fluentd(host: int, text: str, number: int, *, more: bool) -> str:
    part = {"partial_id": f"id{host}", "partial_ordinal": number, "container_id": "x"}
    part |= {"partial_message": "true", "partial_last": "false" if more else "true"}
    return told(part, text)


def by_stream_id(host: int, text: str, number: int, *, more: bool) -> str:
    fields = {"__CURSOR": f"s={number}", "__REALTIME_TIMESTAMP": f"172985133012300{number}"}
    fields |= {"_HOSTNAME": "k", "_STREAM_ID": f"a{host}"} | (
        {"_LINE_BREAK": "line-max"} if more else {}
    )
    return json.dumps(fields | {"MESSAGE": text})


def by_pid(host: int, text: str, number: int, *, more: bool) -> str:
    fields = {"__CURSOR": f"s={number}", "_PID": f"{host}"} | (
        {"_LINE_BREAK": "line-max"} if more else {}
    )
    return json.dumps(fields | {"MESSAGE": text})


def untold(host: int, text: str, number: int, *, more: bool) -> str:
    fields = {"@timestamp": f"2024-10-25T10:15:30.{number:03d}Z", "host": {"name": f"k{host}"}}
    return json.dumps(fields | {"message": text, "log": {"offset": 1000 * number}})


SPLIT = {
    "CRI": lambda host, text, number, more: (
        f"[pod/kafka-{host}/kafka] 2024-10-25T10:15:30.{number}Z stdout {'FP'[more]} {text}"
    ),
    "streams of CRI": lambda host, text, number, more: (
        f"2024-10-25T10:15:30.{number}Z std{['out', 'err'][host]} {'FP'[more]} {text}"
    ),
    "SyslogAppender": lambda host, text, number, more: (
        f"<142>Oct 25 10:15:3{number} broker-{host} kafka: "
        f"{'' if number < 3 else '...'}{text}{'...' if more else ''}"
    ),
    "Kubernetes, by Fluent Bit": in_kubernetes,
    "docker": in_docker,
    "docker, by Fluentd": in_fluentd,
    "journald, streams": by_stream_id,
    "journald, processes": by_pid,
    "a shipper that doesn't tell": untold,
}


TELLS = [name for name in SPLIT if name not in ("SyslogAppender", "a shipper that doesn't tell")]


@pytest.mark.parametrize("form", SPLIT)
def test_parts_are_joined_with_those_of_their_own_source(form: str, tmp_path: Path) -> None:
    texts = [stock(client=f"c{host}", number=60 + host) for host in (0, 1)]
    parts = [(host, n, text) for n in (0, 1) for host, text in enumerate(texts)]
    lines = [
        SPLIT[form](host, text[:CUT] if n == 0 else text[CUT:], 1 + 2 * n + host, more=n == 0)
        for host, n, text in parts
    ]
    rows = read(tmp_path, lines)
    assert [row["client_id"] for row in rows] == ["c0", "c1"]
    assert {row["record_ms"] for row in rows} == {ms(BEGIN)}


@pytest.mark.parametrize("form", SPLIT)
def test_parts_of_two_sources_make_no_request(form: str, tmp_path: Path) -> None:
    """What of each is lost is a bad line."""
    first, other = stock(client="c0"), stock(client="c1")
    lines = [SPLIT[form](0, first[:CUT], 1, more=True), SPLIT[form](1, other[CUT:], 3, more=False)]
    rows = read(tmp_path, lines)
    assert [row["kind"] for row in rows] == ["bad", "bad"]
    assert [row["offset"] for row in rows] == [len(lines[0]) + 1, 0]


def split_lines(form: str, requests: int) -> list[str]:
    """Return lines of two hosts, mixed, each of whose requests is in two parts."""
    lines = []
    for number in range(requests):
        texts = [stock(client=f"c{host}", number=100 + number) for host in (0, 1)]
        first, last = [text[:CUT] for text in texts], [text[CUT:] for text in texts]
        # A's second part comes behind all of B's request.
        order = ((0, first[0]), (1, first[1]), (1, last[1]), (0, last[0]))
        for n, (host, text) in enumerate(order):
            lines.append(SPLIT[form](host, text, 1 + 2 * (n > 1) + host, more=n < 2))
    return lines


@pytest.mark.parametrize("form", SPLIT)
@pytest.mark.parametrize("scan", [False, True])
def test_a_piece_has_all_of_the_requests_that_begin_in_it(
    form: str, scan: bool, tmp_path: Path
) -> None:
    lines = split_lines(form, 12)
    whole = read(tmp_path, lines)
    assert [row["client_id"] for row in whole] == ["c1", "c0"] * 12
    for piece_bytes in (1000, 1777, 2600):
        assert read(tmp_path, lines, scan=scan, piece_bytes=piece_bytes) == whole


def split_in_many(form: str, requests: int) -> list[str]:
    """Return lines of large requests, each in parts."""
    lines = []
    topics = ",".join(f'{{"name":"t{n}"}}' for n in range(20_000))
    for number in range(requests):
        text = stock(number=100 + number).replace('"request":{}', f'"request":{{"t":[{topics}]}}')
        starts = range(0, len(text), 16_000)
        for n, start in enumerate(starts):
            at = 1 if n == 0 else 4  # SyslogAppender's mark of a part
            lines.append(SPLIT[form](0, text[start : start + 16_000], at, more=start != starts[-1]))
    return lines


@pytest.mark.parametrize("form", SPLIT)
def test_a_large_request_is_read_wherever_a_piece_begins(form: str, tmp_path: Path) -> None:
    lines = split_in_many(form, 3)
    assert len(lines[0]) * len(lines) > 3 * 250_000
    whole = read(tmp_path, lines)
    assert [row["kind"] for row in whole] == ["request"] * 3
    for piece_bytes in (100_000, 333_333):
        assert read(tmp_path, lines, piece_bytes=piece_bytes) == whole


@pytest.mark.parametrize("form", SPLIT)
def test_what_is_too_large_to_be_put_together_is_counted(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (joining, chunks, under_way):
        monkeypatch.setattr(module, "MOST_BYTES", 100_000)
    monkeypatch.setattr(under_way, "MOST_BETWEEN", 25_000)
    lines = split_in_many(form, 2)
    offsets = [sum(len(line) + 1 for line in lines[:n]) for n in range(len(lines))]
    for piece_bytes in (1 << 30, 70_000, 120_000):
        rows = read(tmp_path, lines, piece_bytes=piece_bytes)
        assert sorted(row["offset"] for row in rows) == offsets


@pytest.mark.parametrize("form", TELLS)
def test_a_round_leaves_a_large_request(form: str, tmp_path: Path) -> None:
    lines = split_in_many(form, 2)
    log = tmp_path / "kafka.log"
    log.write_text("".join(f"{line}\n" for line in lines[:-1]))
    first = sum(len(line) + 1 for line in lines[: len(lines) // 2])
    assert whole_lines(str(log), 0, log.stat().st_size) == first


@pytest.mark.parametrize("form", SPLIT)
def test_a_sample_counts_all_that_it_holds(form: str, tmp_path: Path) -> None:
    log = tmp_path / "kafka.log"
    lines = [*split_lines(form, 3), *split_lines(form, 1)[:2]]
    log.write_text("".join(f"{line}\n" for line in lines))
    found = look(pieces_of(find_files([str(log)])), ReadOptions(()).parser_of)
    assert (found.requests, found.bad.total()) == (6, 2)


@pytest.mark.parametrize("form", TELLS)
def test_a_round_leaves_a_request_whose_last_part_is_still_to_come(
    form: str, tmp_path: Path
) -> None:
    *before, first, other, rest, last = split_lines(form, 3)
    log = tmp_path / "kafka.log"
    ends = []
    for lines in ([*before, first, other, rest], [*before, first, other, rest, last]):
        log.write_text("".join(f"{line}\n" for line in lines))
        ends.append(whole_lines(str(log), 0, log.stat().st_size))
    assert ends == [sum(len(line) + 1 for line in before), log.stat().st_size]


# Kafka before 2.8 escapes nothing

FORGED = HEAD.format(**NAMED | {"client": "victim"})
FORGED_TAIL = TAIL.format(**NAMED | {"throttle": "900", "principal": "User:victim"})
NAMES = {
    "a client that ends its own name": {"client": "victim, correlationId=1) -- {}"},
    "a client that is a line": {"client": f"{FORGED},response:{{}}{FORGED_TAIL}"},
    "a client that is a request": {"client": body(client="victim")},
    "a client that is completed": {"client": f"Completed request:{body(client='victim')}"},
    "a client that is an old line": {"client": f"Completed request:{FORGED}{FORGED_TAIL}"},
    "a principal that is a tail": {"principal": f"User:x{FORGED_TAIL}"},
    "a principal with times": {"principal": "User:x,throttleTime:900,localTime:1e9,sendTime:5"},
    "a principal with a listener": {"principal": "User:victim,listener:X"},
    "a group that is a tail": {"request": f"{{group_id=x{FORGED_TAIL}}}"},
    "a group that replicates": {"request": "{group_id=replica_id=5}"},
    "a rack that replicates": {"request": "{replica_id=-1,rack_id=replica_id=5}"},
    "a group with sizes": {"api": "PRODUCE", "request": "{group=partitionSizes=[t-0=99999]}"},
    "an answer that is a tail": {"response": f"{{error=x{FORGED_TAIL}}}"},
}


@pytest.mark.parametrize(
    "wrap", [str, lambda line: json.dumps({"log": f"{line}\n", "stream": "x"})]
)
@pytest.mark.parametrize("case", NAMES)
def test_a_name_passes_for_no_field_of_an_old_line(
    case: str, wrap: Callable[[str], str], tmp_path: Path
) -> None:
    """The row is as without it, but for the name; or the line is refused."""
    named = NAMES[case]
    plain, found, *more = read(tmp_path, [wrap(old()), wrap(old(**named))])
    if found["kind"] == "bad":
        reasons = [row["reason"] for row in (found, *more)]
        assert reasons == [
            "free text of Kafka before 2.8 in which a name looks like a field"
        ] * max(1, wrap(old(**named)).count("Completed request:"))
        return
    wanted = plain | {name: found[name] for name in ("seq", "client_id", "principal")}
    if named.get("api"):
        wanted |= {name: found[name] for name in ("api_name", "quota_type")}
    assert found == wanted
    assert found["client_id"] == named.get("client", "c")
    assert found["principal"] == named.get("principal", "User:bob").removeprefix("User:")


def as_object(client: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(body())
    found["requestHeader"]["clientId"] = client
    return {"@timestamp": "2024-10-25T10:15:30.123Z"} | found


WHEN = datetime(2024, 10, 25, 10, 15, 30, 123_000, UTC)
FORMS: dict[str, Callable[[str], str]] = {
    "an object": lambda client: json.dumps(as_object(client)),
    "flattened": lambda client: json.dumps(
        flat(stock()) | {"@timestamp": "2024-10-25T10:15:30.123Z", "requestHeader.clientId": client}
    ),
    "a list": lambda client: json.dumps({"logEvents": [as_object("a"), as_object(client)]}),
    "JSON behind a stamp": lambda client: "[2024-10-25 10:15:30,123] DEBUG " + json.dumps(
        json.loads(body()) | {"requestHeader": as_object(client)["requestHeader"]}
    ),
}  # fmt: skip


@pytest.mark.parametrize("scan", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_a_client_that_is_an_old_line_is_a_name_in_json(
    form: str, scan: bool, tmp_path: Path
) -> None:
    client = old(client="x", principal="User:victim", throttle="900").replace("2024", "2030")
    *_, found = read(tmp_path, [FORMS[form](client)], scan=scan)
    assert found["kind"] == "request"
    assert (found["principal"], found["client_id"]) == ("bob", client)
    assert (found["throttle_time_ms"], found["record_ms"]) == (0, ms(WHEN))


def test_two_events_that_stand_in_two_fields_count_once(tmp_path: Path) -> None:
    """Logstash keeps ``event.original`` beside what it made of it."""
    both = f"{stock(number=1)}\n{stock(number=2)}"
    rows = read(tmp_path, [json.dumps({"message": both, "event": {"original": both}})])
    assert [row["kind"] for row in rows] == ["request", "request"]


# The time is the wrapper's

LATER = "2030-01-01 00:00:00"


def flat(line: str) -> dict[str, Any]:
    """Return the request of a line as search engines flatten it."""
    request = json.loads(line[line.index("{") : line.rindex("}") + 1])
    header = {f"requestHeader.{k}": v for k, v in request.pop("requestHeader").items()}
    return header | request


BESIDE: dict[str, dict[str, Any]] = {
    "a client": {"client_id": LATER, "message": stock(client=LATER)[26:]},
    "a principal": {"principal": LATER, "message": stock()[26:]},
    "a topic": {"kafka": {"topic": LATER}, "message": stock()[26:]},
    "the request's client": flat(stock(client=LATER)),
    "the request's principal": flat(stock()) | {"principal": f"{LATER}"},
    "a prefix": {f"kafka.{k}": v for k, v in flat(stock(principal=LATER)).items()},
    "another request": {"a": {"message": stock()[26:]}, "b": json.loads(body()) | {"time": LATER}},
}


@pytest.mark.parametrize("case", BESIDE)
@pytest.mark.parametrize("timed", [False, True])
def test_no_time_is_taken_from_what_a_client_says(case: str, timed: bool, tmp_path: Path) -> None:
    fields = ({"@timestamp": "2024-10-25T10:15:30.123Z"} if timed else {}) | BESIDE[case]
    times = [row["record_ms"] for row in read(tmp_path, [json.dumps(fields)])]
    other = [ms(datetime(2030, 1, 1, tzinfo=UTC))] if case == "another request" else []
    assert sorted(times, key=str) == sorted([ms(BEGIN) if timed else None, *other], key=str)


def test_no_time_is_taken_from_a_request_that_is_cut_off(tmp_path: Path) -> None:
    cut = stock(client=LATER)[:230]
    assert LATER in cut
    found = read(tmp_path, [f"{cut} {stock()[26:]}"])
    assert [row["record_ms"] for row in found if row["kind"] == "request"] in ([], [ms(BEGIN)])


# Copies


def test_a_rolled_log_is_compressed_by_what_it_is_and_not_by_its_name(tmp_path: Path) -> None:
    text = f"{stock()}\n".encode()
    for name, data in (("x.log", text), ("x.log.old", text), ("y.log", text[:-9] + b"x\n")):
        (tmp_path / name).write_bytes(data)
    (tmp_path / "y.log.1").write_bytes(gzip.compress(text[:-9] + b"x\n"))
    files = find_files([str(tmp_path)])
    with pytest.raises(ConfigError, match=r"x\.log(\.old)? begins with what") as said:
        pieces_of(files, copies="refuse")
    assert len(said.value.problems) == 2
    counted = pieces_of(files, copies="count")
    assert [Path(piece.path).name for piece in counted if piece.unread] == ["y.log.1"]


@pytest.mark.parametrize(
    "line",
    [
        old(),
        json.dumps({"@timestamp": "2024-10-25T10:15:30.123Z"} | flat(stock())),
        json.dumps(
            {"@timestamp": "2024-10-25T10:15:30.123Z"}
            | {f"kafka.{k}": v for k, v in flat(stock()).items()}
        ),
        json.dumps({"log": old() + "\n"}),
    ],
)
def test_copies_are_found_whatever_a_request_looks_like(line: str, tmp_path: Path) -> None:
    for name in ("a.log", "b.log"):
        (tmp_path / name).write_text(f"a broker starts as {name}\n{line}\n{line}\n")
    files = find_files([str(tmp_path)])
    with pytest.raises(ConfigError, match="begins with what"):
        pieces_of(files, copies="refuse")
    assert [bool(piece.unread) for piece in pieces_of(files, copies="once")] == [False, True]


# Each event is a row or a refusal


def broken(text: str) -> str:
    """Return a request's text whose JSON is wrong in the middle."""
    return text.replace('"request":{}', '"request":{,}')


GOOD = {"@timestamp": "2024-10-25T10:15:30.123Z", "message": stock()[26:]}
AS_OBJECT = {"@timestamp": "2024-10-25T10:15:30.123Z"} | json.loads(body())
PARSED = json.dumps(AS_OBJECT, separators=(",", ":"))
SEVERAL = {
    "an event of another logger": (json.dumps([GOOD, {"message": "started"}, GOOD]), "rbr"),
    "events of other loggers": (
        json.dumps({"logEvents": [{"message": "x"}, GOOD, {"message": "y"}]}),
        "brb",
    ),
    "a broken message": (json.dumps([GOOD, GOOD | {"message": broken(stock())}, GOOD]), "rbr"),
    "a broken object": (
        f"[{', '.join([PARSED, broken(PARSED)] * 2 + [PARSED])}]",
        "rbrbr",
    ),
    "an object cut off": (f"[{PARSED}, {PARSED}, {PARSED[:300]}", "rrb"),
    "a list cut off": (f'{{"events":[{json.dumps(GOOD)},{json.dumps(GOOD)[:-60]}', "rb"),
    "texts": (" ".join([stock(), broken(stock()), stock(), broken(stock())]), "rbrb"),
    "texts, all broken": (" ".join([broken(stock()), broken(stock())]), "bb"),
    "no principal": (json.dumps([AS_OBJECT, AS_OBJECT | {"principal": "x"}, AS_OBJECT]), "rbr"),
    "no time": (json.dumps([AS_OBJECT, json.loads(body()), AS_OBJECT]), "rbr"),
}


@pytest.mark.parametrize("case", SEVERAL)
def test_each_event_of_a_line_is_a_row_or_refused(case: str, tmp_path: Path) -> None:
    line, wanted = SEVERAL[case]
    rows = read(tmp_path, ["nothing", line])
    at = len("nothing\n")
    found = sorted((row["seq"] or row["offset"] or 0, row["kind"][0]) for row in rows)
    assert found == [(0, "b"), *((at + n, kind) for n, kind in enumerate(wanted))]


INSIDE = json.dumps(body(client="victim"))[1:-1]


@pytest.mark.parametrize("client", [INSIDE, f"Completed request:{INSIDE}", f"x [2] {INSIDE * 2}"])
@pytest.mark.parametrize("cut", [None, 40, 200])
def test_a_request_in_a_clients_name_is_no_request(
    client: str, cut: int | None, tmp_path: Path
) -> None:
    """Nor where the request around it is cut off, and followed by another."""
    line = stock(client=client)
    lines = [line] if cut is None else [line[:-cut], f"{line[:-cut]} {stock()}"]
    names = {row["client_id"] for row in read(tmp_path, lines)}
    assert names <= {None, "c", json.loads(f'"{client}"')}


def test_what_is_looked_at_grows_with_a_line_and_no_faster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked = 0
    real = find._JSON.raw_decode

    class Counting:
        def raw_decode(self, text: str, at: int = 0) -> tuple[Any, int]:
            nonlocal looked
            try:
                value, end = real(text, at)
            except json.JSONDecodeError as error:
                # It counts newlines from the text's beginning.
                looked += len(text) if error.msg.startswith("Unterm") else 2 * error.pos - at
                raise
            looked += end - at
            return value, end

    monkeypatch.setattr(find, "_JSON", Counting())
    texts = [
        broken(PARSED) + ", ",
        broken(stock()) + " ",
        broken(stock()).replace('"', '\\"') + " ",
        PARSED[:-30] + ", ",
        PARSED[:-200] + '", ',
        '{"requestHeader":"',
        '"{\\"requestHeader\\":',
        '{"a":[{"b":"requestHeader"',
    ]
    for text in texts:
        each = []
        for count in (40, 400):
            looked = 0
            line = (text * count).encode()
            assert all(isinstance(row, BadLine) for row in LineParser().rows(line))
            each.append(looked / len(line))
        assert each[1] <= max(40, 1.5 * each[0]), text

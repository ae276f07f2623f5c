"""What the scan takes, the parser of all lines reads the same; the rest it refuses."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.pipeline.logs.line_parser import BadLine, LineParser, LogRow
from headgate.pipeline.logs.scan.names import Names
from headgate.pipeline.logs.scan.scanner import LineScanner
from headgate.pipeline.logs.time_stamps import StampReader, sniff_nanos, zone_of
from headgate.pipeline.sources.chunks import PADDING

DATA = Path(__file__).parents[2] / "data/pipeline"
ZONE = zone_of("Europe/Berlin")
SCANNER = LineScanner(ZONE, connections=True)
_FIELDS = LogRow._fields


def scan(
    data: bytes,
    *,
    nanos: bool = False,
    scanner: LineScanner = SCANNER,
    stamps: StampReader | None = None,
) -> tuple[dict[int, LogRow], list[bytes], int]:
    """Return (rows by offset, lines given back, lines in all) of a buffer."""
    text = np.frombuffer(data + b"{" * PADDING, np.uint8)
    rows: dict[int, LogRow] = {}
    back: list[bytes] = []
    total = 0
    stamps = stamps or StampReader(ZONE, nanos=nanos)
    for taken, given_back, lines in scanner.scan(text, len(data), stamps):
        if not lines:
            scanner.forget()
            continue
        total += lines
        back += [data[a:b] for a, b in given_back]
        columns = scanner.columns(taken, 0)
        values = [columns[name].to_pylist() for name in ("seq", *_FIELDS)]
        rows |= {seq: LogRow(*row) for seq, *row in zip(*values, strict=True)}
    return rows, back, total


def taken(line: bytes, *, nanos: bool = False) -> bool:
    """
    Say whether a line is taken; if so, check that the parser reads the same.

    Both see it twice: what is remembered of the first time mustn't change the second.
    """
    rows, back, total = scan((line + b"\n") * 2, nanos=nanos)
    assert len(rows) + len(back) == total
    parser = LineParser(ZONE, nanos=nanos)
    for row in rows.values():
        assert row == parser.parse(line)
    assert len(rows) in (0, 2)
    return bool(rows)


def sample(name: str) -> bytes:
    if name == "others":
        lines = gzip.decompress((DATA / "others.jsonl.gz").read_bytes()).splitlines()
        return "".join(json.loads(line)["line"] + "\n" for line in lines).encode()
    return gzip.decompress((DATA / f"{name}.log.gz").read_bytes())


@pytest.mark.parametrize(("name", "share"), [("public", 0.995), ("precise", 0.8), ("others", 0.4)])
def test_every_line_of_a_real_log_goes_both_ways_alike(name: str, share: float) -> None:
    data = sample(name)
    nanos = sniff_nanos(data[:65536])
    rows, back, total = scan(data, nanos=nanos)
    assert len(rows) + len(back) == total == data.count(b"\n")
    assert len(rows) >= share * total
    parser = LineParser(ZONE, nanos=nanos)
    offset = 0
    for line in data.split(b"\n"):
        if offset in rows:
            assert rows[offset] == parser.parse(line)
        offset += len(line) + 1


LINES = [
    next(line for line in sample("public").split(b"\n") if b'"%s"' % api in line)
    for api in (
        b"PRODUCE",
        b"FETCH",
        b"METADATA",
        b"HEARTBEAT",
        b"ADD_PARTITIONS_TO_TXN",
        b"CREATE_TOPICS",
    )
]
THROTTLED = b'"responses":[]},"connection"'
LINES.append(next(line for line in sample("public").split(b"\n") if THROTTLED in line))


@pytest.mark.parametrize("line", LINES)
def test_lines_of_the_common_shapes_are_taken(line: bytes) -> None:
    assert taken(line)


_BYTES = st.one_of(
    st.sampled_from([bytes([b]) for b in b'{}[]",:\\0-.eE+19 n\n\r\x00\x7f\xc3']),
    st.binary(max_size=3),
)


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """Draw a line with a few bytes put in, left out, replaced, doubled or swapped."""
    line = draw(st.sampled_from(LINES))
    for _ in range(draw(st.integers(1, 3))):
        # Near the ends and anywhere: the prefix and the closing braces are short.
        at = draw(st.one_of(st.integers(0, len(line)), st.integers(0, 40)))
        n = draw(st.integers(0, 12))
        kind = draw(st.sampled_from(["insert", "delete", "replace", "double", "swap"]))
        piece = line[at : at + n]
        if kind == "insert":
            piece = draw(_BYTES) + piece
        elif kind == "delete":
            piece = b""
        elif kind == "replace":
            piece = draw(_BYTES)
        elif kind == "double":
            piece += piece
        else:
            other = draw(st.integers(0, len(line)))
            piece = line[other : other + n]
        line = line[:at] + piece + line[at + n :]
    return line.replace(b"\n", b"")


@settings(max_examples=4 * settings().max_examples)
@given(mutated())
def test_a_mutated_line_is_refused_or_read_the_same(line: bytes) -> None:
    taken(line)


def seldom(odd: st.SearchStrategy[Any], usual: Any) -> st.SearchStrategy[Any]:
    """Draw something odd once in forty times."""
    return st.integers(0, 39).flatmap(lambda n: st.just(usual) if n else odd)


NAMES = st.text(
    st.characters(min_codepoint=32, max_codepoint=126, exclude_characters='"\\'), max_size=200
)
SIZES = st.one_of(
    st.none(),
    st.integers(0, 300),
    st.sampled_from([126, 127, 16382, 16383, 2097151, 268435455]),
    st.integers(0, 2**31 - 1),
)
PLAIN_NUMBERS = st.one_of(
    st.integers(0, 10**7).map(lambda n: str(n / 1000.0)),
    st.sampled_from(["0", "0.0", "7", "0.001", "123456789012.345"]),
    st.from_regex(r"[1-9][0-9]{1,8}\.[0-9]{1,9}", fullmatch=True),
)
ODD_NUMBERS = st.sampled_from(["1.0E7", "-1.0", "00.1", ".5", "1.", "1e3", "0x1", "NaN", "null"])
NUMBERS = st.integers(0, 39).flatmap(lambda n: PLAIN_NUMBERS if n else ODD_NUMBERS)
WHATEVER = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(10**18), 10**18),
        NAMES,
        st.floats(allow_nan=False, allow_infinity=False),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(NAMES, inner, max_size=3)),
    max_leaves=6,
)


def some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Draw an object with any of some fields, and perhaps others."""
    return st.builds(
        lambda mine, others, drop: {k: v for k, v in (others | mine).items() if k not in drop},
        st.fixed_dictionaries(fields),
        st.dictionaries(NAMES, WHATEVER, max_size=2),
        seldom(st.sampled_from(sorted(fields)).map(lambda field: {field}), set()),
    )


PARTITION = some(index=st.integers(0, 9), recordsSizeInBytes=SIZES)
PRODUCE = some(
    transactionalId=st.none() | NAMES,
    acks=st.integers(-1, 1),
    topicData=st.lists(
        some(name=st.none() | NAMES, partitionData=st.lists(PARTITION, max_size=3)), max_size=130
    ),
)
ANSWER = some(
    throttleTimeMs=st.integers(0, 3),
    responses=st.lists(
        some(
            topic=st.none() | NAMES,
            partitions=st.lists(
                some(
                    errorCode=st.sampled_from([0, 0, 0, 1, 35, 76]),
                    recordsSizeInBytes=SIZES,
                    abortedTransactions=st.none() | st.lists(WHATEVER, max_size=2),
                    divergingEpoch=WHATEVER,
                    currentLeader=WHATEVER,
                    snapshotId=WHATEVER,
                ),
                max_size=3,
            ),
        ),
        max_size=3,
    ),
)
CHANGED = some(
    topics=st.none()
    | st.lists(
        some(
            name=NAMES,
            numPartitions=st.integers(-1, 9),
            assignments=st.none() | st.lists(WHATEVER, max_size=2),
            count=st.integers(-1, 9),
        ),
        max_size=2,
    ),
    topicNames=st.none() | st.lists(NAMES, max_size=2),
    validateOnly=st.booleans(),
)
TOLD = some(throttleTimeMs=st.integers(0, 5000), topics=WHATEVER)
ASKED = some(
    replicaId=st.integers(-1, 3), replicaState=st.none() | some(replicaId=st.integers(-1, 2))
)


@st.composite
def made(draw: st.DrawFn) -> tuple[bytes, bool]:
    """Draw a line and nanos."""
    api, name = draw(
        st.sampled_from(
            [
                (0, "PRODUCE"),
                (1, "FETCH"),
                (3, "METADATA"),
                (24, "ADD_PARTITIONS_TO_TXN"),
                (27, "WRITE_TXN_MARKERS"),
                (19, "CREATE_TOPICS"),
                (37, "CREATE_PARTITIONS"),
            ]
        )
    )
    line: dict[str, Any] = {
        "isForwarded": draw(st.booleans()),
        "requestHeader": {
            "requestApiKey": api,
            "requestApiVersion": draw(st.integers(0, 20)),
            "correlationId": draw(st.integers(0, 2**31 - 1)),
            "clientId": draw(NAMES),
            "requestApiKeyName": name,
        },
        "request": draw({0: PRODUCE, 1: ASKED, 19: CHANGED, 37: CHANGED}.get(api, WHATEVER)),
        "response": draw({1: ANSWER, 19: TOLD, 37: TOLD}.get(api, WHATEVER))
        if draw(st.integers(0, 5))
        else "",
        "connection": "10.0.0.1:9092-10.0.0.9:50312-1-5",
        "totalTimeMs": 1.0,
        "localTimeMs": "@1",
        "throttleTimeMs": draw(st.integers(-1, 5000)),
        "responseQueueTimeMs": "@2",
        "sendTimeMs": "@3",
        "principal": draw(seldom(NAMES, draw(st.sampled_from(["User:alice", "Group:a:b"])))),
        "listener": draw(NAMES),
    }
    line.pop(draw(seldom(st.sampled_from(sorted(line)), None)), None)
    body = json.dumps(line, separators=(",", ":"))
    for place in ("@1", "@2", "@3"):
        body = body.replace(f'"{place}"', draw(NUMBERS), 1)
    fraction = draw(st.from_regex(r"[0-9]{1,10}", fullmatch=True))
    odd_stamps = st.sampled_from(
        ["2024/02/30 10:15:30", "2026-11-21T00:00:60", "25 Oct 24 10:15:30"]
    )
    stamp = draw(seldom(odd_stamps, "2024-10-25 10:15:30"))
    middle = draw(
        seldom(st.sampled_from([" 10:15:31 DEBUG ", ""]), " [t-1] DEBUG Completed request:")
    )
    if draw(st.booleans()):  # Kafka 2.8
        body = body.replace('"partitions"', '"partitionResponses"')
        body = body.replace('"recordsSizeInBytes"', '"recordSetSizeInBytes"')
    text = f"[{stamp},{fraction}]{middle}{body} (kafka.request.logger)"
    return text.encode(), draw(st.booleans())


@given(made())
def test_a_made_line_is_refused_or_read_the_same(drawn: tuple[bytes, bool]) -> None:
    line, nanos = drawn
    taken(line, nanos=nanos)


CREATED = next(line for line in LINES if b'"CREATE_TOPICS"' in line)
PRODUCED = next(line for line in LINES if b'"PRODUCE"' in line)
# What the parser looks at topic by topic.
LEFT_TO_THE_PARSER = {
    "a default's partitions": CREATED.replace(
        b'"numPartitions":1,"repl', b'"numPartitions":-1,"repl', 1
    ),
    "only validated": CREATED.replace(b'"validateOnly":false', b'"validateOnly":true'),
    "a topic refused": CREATED.replace(b'"errorCode":0', b'"errorCode":36'),
    "fewer answers": CREATED.replace(
        b'"topics":[{', b'"topics":[{"name":"x","numPartitions":2},{', 1
    ),
    "no answer": CREATED[: CREATED.index(b'"response":')]
    + b'"response":""'
    + CREATED[CREATED.index(b',"connection"') :],
    "a produce refused": PRODUCED.replace(b'"errorCode":0', b'"errorCode":53'),
    "an idempotent one": PRODUCED.replace(b'"errorCode":0', b'"errorCode":31'),
}


@pytest.mark.parametrize("why", LEFT_TO_THE_PARSER)
def test_what_isnt_plain_is_left_to_the_parser(why: str) -> None:
    line = LEFT_TO_THE_PARSER[why]
    assert line not in (CREATED, PRODUCED)
    assert not taken(line)
    LineParser(ZONE).parse(line)


@pytest.mark.parametrize("api", [b"DELETE_TOPICS", b"CREATE_PARTITIONS", b"CREATE_TOPICS"])
def test_plain_changes_of_topics_are_taken_and_say_what_is_an_estimate(api: bytes) -> None:
    lines = [line for line in sample("public").split(b"\n") if b'"%s"' % api in line][:50]
    rows, back, _ = scan(b"\n".join(lines) + b"\n")
    assert len(rows) > len(back)
    assert {row.bytes_exact for row in rows.values()} == {api == b"CREATE_TOPICS"}


HEAD, TAIL = LINES[0].split(b'"connection"', 1)
REFUSED = {
    "escapes": LINES[0].replace(b"PRODUCE", b"PROD\\u0055CE"),
    "beyond ASCII": LINES[0].replace(b'"listener":"', '"listener":"ü'.encode()),
    "spaces": LINES[0].replace(b'":', b'": '),
    "a key twice": LINES[0].replace(b'"sendTimeMs"', b'"sendTimeMs":1.0,"sendTimeMs"'),
    "cut off": LINES[0][:-40],
    "no end": LINES[0].replace(b"}} (kafka", b"} (kafka"),
    "too many ends": LINES[0] + b"}",
    "two stamps": LINES[0].replace(b"] DEBUG", b"] 2020-01-01 00:00:00,000 DEBUG"),
    "no such day": b"[2024-02-30" + LINES[0][11:],
    "a number in words": LINES[0].replace(
        b'"throttleTimeMs":0,"responseQ', b'"throttleTimeMs":"0","responseQ'
    ),
    "nothing": b"\x00",
    "deep": HEAD + b'"deep":' + b"[" * 99 + b"]" * 99 + b',"connection"' + TAIL,
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_is_odd_is_refused(why: str) -> None:
    assert not taken(REFUSED[why])


@pytest.mark.parametrize(
    "line", [LINES[0].replace(b"] DEBUG", b"+0200] DEBUG", 1), b"{" + LINES[0]]
)
def test_a_zone_and_a_brace_in_front_are_no_obstacle(line: bytes) -> None:
    assert taken(line)


def test_empty_lines_are_no_lines() -> None:
    rows, back, total = scan(b"\n\n" + LINES[0] + b"\n\n")
    assert (list(rows), back, total) == ([2], [], 1)


@pytest.mark.parametrize(("most", "text_bytes"), [(8, 1000), (1000, 100)])
def test_where_names_run_out_they_are_forgotten_and_nothing_is_lost(
    most: int, text_bytes: int
) -> None:
    scanner = LineScanner(ZONE, connections=True)
    scanner.use(Names(most, text_bytes))
    data = b"".join(LINES[0].replace(b"alice", b"alice-%d" % n) + b"\n" for n in range(20))
    rows, back, total = scan(data, scanner=scanner)
    assert total == 20
    whole, none, _ = scan(data)
    assert none == []
    assert len(back) == (20 if text_bytes == 100 else 0)
    assert rows == ({} if text_bytes == 100 else whole)


def test_a_bad_line_is_given_back_as_it_is() -> None:
    _, back, _ = scan(LINES[0] + b"\nodd\n" + LINES[1] + b"\n")
    assert back == [b"odd"]
    with pytest.raises(BadLine):
        LineParser(ZONE).parse(back[0])


@pytest.mark.parametrize("day", ["2026-03-29", "2026-10-25", "2026-11-21"])  # clocks change
def test_a_second_of_a_minute_seen_before_is_what_it_is_alone(day: str) -> None:
    scanner = LineScanner(ZONE)
    for time in ("01:59", "02:00", "02:30", "03:00", "03:59"):
        for second in ("00", "07", "60", "59", "61", "08"):
            stamp = f"{day} {time}:{second}".encode()
            alone = StampReader(ZONE).second(stamp)
            assert scanner._second(stamp) == scanner._second(stamp) == alone
        assert scanner._second(f"{day} {time}.00".encode()) is None

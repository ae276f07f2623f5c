"""Logs as people have them: what is read of each, and what is said about it."""

from __future__ import annotations

import csv
import gzip
import json
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from headgate.errors import ConfigError
from headgate.pipeline.logs import find
from headgate.pipeline.logs.bad_lines import BadLine
from headgate.pipeline.logs.line_parser import LineParser, LogRow
from headgate.pipeline.logs.principals import FORMS, OWN, Principals
from headgate.pipeline.sources.files import find_files
from headgate.pipeline.sources.pieces import pieces_of
from headgate.pipeline.sources.quality import Quality, look
from headgate.pipeline.sources.rotation import RolledFiles
from headgate.pipeline.workers.log_reader import ReadOptions, RequestsOfLogs

DATA = Path(__file__).parents[2] / "data" / "field"
STOCK = gzip.decompress((DATA / "stock.log.gz").read_bytes()).splitlines()
TRUTH = list(csv.DictReader((DATA / "stock-truth.csv").read_text().splitlines()))
PUBLIC = Path(__file__).parents[2] / "data" / "pipeline" / "public.log.gz"


def read(*paths: Path, scan: bool | None = False, **options: Any) -> list[dict[str, Any]]:
    """Return the requests and bad lines of some logs."""
    pieces = tuple(pieces_of(find_files([str(path) for path in paths])))
    told = ReadOptions(pieces, scan=scan, **options)
    batches = [b for piece in pieces for b in RequestsOfLogs(told).read(piece)]
    return [row for batch in batches for row in batch.to_pylist() if row["kind"] != "stat"]


def quality(*paths: Path) -> Quality:
    """Look at some logs."""
    pieces = pieces_of(find_files([str(path) for path in paths]))
    return look(pieces, ReadOptions(()).parser_of)


def notes(*paths: Path) -> dict[str, str]:
    """Return what is said about some logs, by name."""
    return {note.name: note.text for note in quality(*paths).notes()}


def written(path: Path, lines: Iterable[bytes]) -> Path:
    """Write a log."""
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return path


def agrees(rows: list[dict[str, Any]], within_ms: float = 0.01, truth: Any = None) -> None:
    """Compare requests with what each is."""
    truth = TRUTH[: len(rows)] if truth is None else truth
    assert [row["kind"] for row in rows] == ["request"] * len(truth)
    for row, told in zip(rows, truth, strict=True):
        assert abs(row["record_ms"] - float(told["record_ms"])) <= within_ms
        assert (row["client_id"], row["api_name"]) == (told["client_id"], told["api_name"])
        assert row["bytes_charged"] == int(told["bytes_charged"])


def stamped(line: bytes, stamp: Callable[[datetime], str]) -> bytes:
    """Return a stock line with another front."""
    at = datetime.strptime(line[1:24].decode(), "%Y-%m-%d %H:%M:%S,%f").replace(tzinfo=UTC)
    return stamp(at).encode() + line[line.index(b"Completed") :]


def ms(at: datetime) -> str:
    return f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03d}"


REST = "a line of a request that is cut off further on"
CUT_3 = "cut off: 3 brackets of its JSON are open at the end, 3 lines on"
CUT_40 = "cut off: 1 brackets of its JSON are open at the end, 40 lines on"
# Where the request is: input, requests of the stock log in it, reasons why other lines are none.
PLACES: dict[str, tuple[int, set[str]]] = {
    "F06-flattened/sorted.json": (6, set()),
    "F06-flattened/vector-timestamp-first.json": (6, set()),
    "F06-flattened/stripped.json": (0, {"no time stamp in front of the request"}),
    "F07-wrapped-twice/docker-over-ecs.log": (6, set()),
    "F08-lists/cloudwatch-firehose-one-event.json": (6, set()),
    "F08-lists/cloudwatch-firehose.json": (16, set()),
    "F08-lists/json-array.json": (6, set()),
    # Saved in the middle of an event.
    "F08-lists/aws-get-log-events.json": (6, {CUT_3, REST}),
    "F09-csv/logs-insights.csv": (5, set()),
    "F09-csv/splunk.csv": (5, set()),
    "F10-json-strings/messages.json": (6, set()),
    "F12-journald/null.json": (
        0,
        {"journalctl left the message out, as it is long: export with journalctl --all"},
    ),
    "F14-other-time-forms/audit.log": (
        0,
        {"the time stamp has no year, and neither has the file's name"},
    ),
    "F14-other-time-forms/gcp-seconds-nanos.json": (6, set()),
    # Its second request ends before its JSON does.
    "F16-pretty-printed/note.log": (1, {CUT_40, REST}),
    "F16-pretty-printed/utf16-without-bom.log": (4, set()),
    "F17-zip/kafka-request-2026-11-21_11-45-49.[1].log.zip": (77, set()),
}


@pytest.mark.parametrize("name", PLACES)
@pytest.mark.parametrize("scan", [False, True])
def test_requests_are_read_wherever_they_stand(name: str, scan: bool) -> None:
    wanted, reasons = PLACES[name]
    rows = read(DATA / name, scan=scan)
    agrees([row for row in rows if row["kind"] == "request"], truth=TRUTH[:wanted])
    assert {row["reason"] for row in rows if row["kind"] == "bad"} == reasons


def parts(line: bytes) -> tuple[datetime, str]:
    """Return a stock line's time and its request's JSON."""
    at = datetime.strptime(line[1:24].decode(), "%Y-%m-%d %H:%M:%S,%f").replace(tzinfo=UTC)
    return at, line[line.index(b"{") : line.rindex(b"}") + 1].decode()


def dotted(value: dict[str, Any], before: str = "") -> dict[str, Any]:
    """Return an object as search engines flatten it; lists stay."""
    made: dict[str, Any] = {}
    for key, each in value.items():
        inner = isinstance(each, dict)
        made |= dotted(each, f"{before}{key}.") if inner else {before + key: each}
    return made


# What tools make of a request (its time and JSON in), with its time in it.
INNER: dict[str, Callable[[datetime, str], Any]] = {
    "stock": lambda at, body: f"[{ms(at).replace('T', ' ')}] DEBUG Completed request:{body} (k)",
    "ECS": lambda at, body: {"@timestamp": f"{ms(at)}Z", "message": f"Completed request:{body}"},
    "an object": lambda at, body: {"msg": json.loads(body), "logged_at": f"{ms(at)}Z"},
    "among its keys": lambda at, body: dict(
        sorted((json.loads(body) | {"event.created": f"{ms(at)}Z"}).items())
    ),
    "flattened": lambda at, body: (
        dotted({"kafka": json.loads(body)}) | {"time": at.timestamp() * 1000}
    ),
    "strings of parts": lambda at, body: (
        {k: json.dumps(v) if isinstance(v, dict) else v for k, v in json.loads(body).items()}
        | {"ts": f"{at.timestamp():.3f}"}
    ),
    "short and full": lambda at, body: {
        "short_message": f"Completed request:{body}"[:250],
        "full_message": f"Completed request:{body}",
        "timestamp": at.timestamp(),
    },
    "original beside it": lambda at, body: {
        "@timestamp": f"{ms(at)}Z",
        "message": body,
        "event": {"original": body, "ingested": f"{ms(at + timedelta(hours=1))}Z"},
    },
    "seconds and nanos": lambda at, body: {
        "received_at": f"{ms(at + timedelta(seconds=9))}Z",
        "instant": {"epochSecond": int(at.timestamp()), "nanoOfSecond": at.microsecond * 1000},
        "message": f"Completed request:{body}",
    },
    "OpenTelemetry": lambda at, body: {
        "observedTimeUnixNano": f"{int(at.timestamp()) + 5}000000000",
        "timeUnixNano": f"{int(at.timestamp() * 1000 + 0.5)}000000",
        "body": {"stringValue": f"Completed request:{body}"},
    },
    "Loki": lambda at, body: [f"{int(at.timestamp() * 1000 + 0.5)}000000", body],
    "MongoDB": lambda at, body: {"t": {"$date": f"{ms(at)}Z"}, "attr": json.loads(body)},
}
# What others make of that: text of it, and a line.
OUTER: dict[str, Callable[[str], str]] = {
    "nothing": lambda text: text,
    "JSON string": json.dumps,
    "docker": lambda text: json.dumps({"log": text + "\n", "stream": "stdout", "time": LATE}),
    "journald's bytes": lambda text: json.dumps({"MESSAGE": list(text.encode())}),
    "CSV": lambda text: f'k1,"{text.replace(chr(34), chr(34) * 2)}",7',
    "CRI": lambda text: f"{LATE} stdout F {text}",
    "a pod's name": lambda text: f"[pod/kafka-0/kafka] {text}",
    "logcli": lambda text: f'{LATE} {{app="kafka"}} {text}',
    "logfmt": lambda text: f"time={LATE} msg={json.dumps(text)} stream=out",
    "a list": lambda text: json.dumps([{"n": 1}, {"raw": text}]),
    "twice": lambda text: json.dumps({"log": json.dumps({"log": json.dumps({"m": text})})}),
}
LATE = "2026-11-21T18:00:00.5Z"


@pytest.mark.parametrize("outer", OUTER)
@pytest.mark.parametrize("inner", INNER)
def test_what_wraps_a_request_doesnt_matter(inner: str, outer: str) -> None:
    parser = LineParser()
    for line, told in zip(STOCK[:12], TRUTH, strict=False):
        made = INNER[inner](*parts(line))
        text = OUTER[outer](made if isinstance(made, str) else json.dumps(made))
        row = parser.parse(text.encode())
        assert row is not None
        assert row.record_ms == pytest.approx(float(told["record_ms"]), abs=0.01)
        assert (row.client_id, row.bytes_charged) == (told["client_id"], int(told["bytes_charged"]))


def test_a_line_may_hold_many_requests() -> None:
    events = [INNER[name](*parts(line)) for name in INNER for line in STOCK[:5]]
    for text in (json.dumps(events), json.dumps({"hits": {"hits": events}})):
        rows = LineParser().rows(text.encode())
        assert [row.client_id for row in rows if isinstance(row, LogRow)] == [
            told["client_id"] for told in TRUTH[:5]
        ] * len(INNER)
    several = "\n".join(line.decode() for line in STOCK)
    rows = LineParser().rows(json.dumps({"message": several}).encode())
    assert [row.client_id for row in rows if isinstance(row, LogRow)] == [
        told["client_id"] for told in TRUTH
    ]


@pytest.mark.parametrize(
    "text", ["[" * 900, '{"a":' * 3000, '{"requestHeader":' * 3000, '"{\\"' * 9000]
)
def test_what_never_ends_is_read_once(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes decoded grow with the line's length, and no faster."""
    decoded = 0
    real = find._JSON.raw_decode

    class Counting:
        def raw_decode(self, text: str, at: int = 0) -> tuple[Any, int]:
            nonlocal decoded
            decoded += len(text) - at
            return real(text, at)

    monkeypatch.setattr(find, "_JSON", Counting())
    line = (text + "requestHeader" * 50).encode()
    (bad,) = LineParser().rows(line)
    assert isinstance(bad, BadLine)
    assert decoded <= 20 * len(line)


# F01


def test_of_stamps_of_one_second_the_finest_counts() -> None:
    place = DATA / "F01-whole-seconds"
    agrees(read(place / "cri-0.log"), 1.0)
    assert "log_resolution_ms" not in notes(place / "cri-0.log")
    agrees(read(place / "stdout.log"), 1000.0)
    said = notes(place / "stdout.log")["log_resolution_ms"]
    assert "too coarse to replay decisions: its time stamps are rounded to 1,000 ms" in said
    assert quality(place / "stdout.log").grain_ms == 1000.0


@pytest.mark.parametrize(
    "front",
    [
        lambda at: f"{ms(at)}123456Z stderr F {at:%Y-%m-%d %H:%M:%S} DEBUG ",
        lambda at: f"{ms(at)}Z kafka-0 {at:%d %b %Y %H:%M:%S} [io-3] DEBUG ",
        lambda at: f"{at.timestamp():.3f} [{at:%Y-%m-%d %H:%M:%S}] DEBUG ",
        lambda at: f"{at.timestamp() * 1000:.0f} {at:%Y-%m-%dT%H:%M:%S}Z INFO ",
        # The runtime saw the line a little after the logger's second had ended.
        lambda at: f"{ms(at + timedelta(milliseconds=40))}Z stdout F {at:%Y-%m-%d %H:%M:%S} DEBUG ",
    ],
)
def test_a_finer_stamp_of_the_same_second_counts(
    front: Callable[[datetime], str], tmp_path: Path
) -> None:
    log = written(tmp_path / "a.log", [stamped(line, front) for line in STOCK])
    agrees(read(log), 45.0)
    assert "log_resolution_ms" not in notes(log)


def test_a_json_wrappers_finer_stamp_counts(tmp_path: Path) -> None:
    lines = []
    for line in STOCK:
        at = datetime.strptime(line[1:24].decode(), "%Y-%m-%d %H:%M:%S,%f").replace(tzinfo=UTC)
        message = stamped(line, lambda at: f"{at:%Y-%m-%d %H:%M:%S} DEBUG ").decode()
        lines.append(json.dumps({"log": message + "\n", "time": f"{ms(at)}999Z"}).encode())
    log = written(tmp_path / "a.log", lines)
    agrees(read(log), 1.1)
    assert not {"log_resolution_ms"} & set(notes(log))


def test_a_stamp_of_another_second_is_no_finer_one(tmp_path: Path) -> None:
    log = written(
        tmp_path / "a.log",
        [
            stamped(
                line, lambda at: f"{ms(at + timedelta(seconds=7))}Z x {at:%Y-%m-%d %H:%M:%S} DEBUG "
            )
            for line in STOCK
        ],
    )
    agrees(read(log), 1000.0)
    assert "log_resolution_ms" in notes(log)


# F02


def test_every_known_form_gives_its_name() -> None:
    for form in FORMS:
        assert Principals().name_of(form.sample) == form.name
        assert Principals().name_of(f"User:{form.sample}") == form.name
    assert Principals().name_of(OWN.sample) == OWN.name
    assert Principals().name_of("SPIFFE:spiffe://td/ns/x") == "spiffe://td/ns/x"
    assert Principals().name_of("Group:") is None
    for plain in (
        " alice ",
        "a\nb",
        "a@b",
        "x=y",
        "alice",
        "CN=a,OU=b",
        "spiffe://td/ns/x",
        "u-1@REALM",
        "a:b",
        "",
    ):
        assert Principals().name_of(f"User:{plain}") == plain
    assert Principals().name_of("alice") is None
    assert Principals("^CN=([^,]+)").name_of("User:CN=a,OU=b") == "a"
    assert Principals("^CN=([^,]+)").name_of("User:bob") == "bob"
    assert Principals("user=(.*?);").name_of("v1;user=eve;s=7") == "eve"
    for wrong in ("(", "no group"):
        with pytest.raises(ConfigError, match="--principal-pattern"):
            Principals(wrong)


def test_rules_make_users_as_those_of_certificates_do() -> None:
    """The very mapper that the gateway has: ``tests/unit/gateway/test_ssl_names.py`` tries it."""
    users = Principals(r"RULE:^CN=([^,]+).*$/$1/L,RULE:^([^\/@]+)[\/@].*$/$1/,DEFAULT")
    assert users.name_of("User:CN=Etl,OU=x") == "etl"
    assert users.name_of("etl/host1.example.org@EXAMPLE.ORG") == "etl"
    assert users.name_of("User:bob") == "bob"
    assert Principals("RULE:^CN=(.*)$/$1/").name_of("User:bob") == "bob"  # no rule is for it
    assert Principals("RULE:^b(.*)$/$2/").name_of("User:bob") == "$2"  # as Kafka does it
    assert Principals("DEFAULT").name_of("alice") == "alice"
    with pytest.raises(ConfigError, match=r"--principal-pattern: 'RULE:x' isn't DEFAULT or RULE"):
        Principals("RULE:x")


def test_the_page_has_every_form_of_principals() -> None:
    page = (Path(__file__).parents[3] / "docs/howto/request-logs.md").read_text(encoding="utf-8")
    section = page.partition("\n## Principals\n")[2].partition("\n## ")[0]
    rows = [f"| `{form.sample}` | {form.what} | `{form.name}` |" for form in (OWN, *FORMS)]
    assert "\n".join(rows) in section


@pytest.mark.parametrize(
    ("principal", "name"),
    [
        ("CustomPrincipal(type=User, name=alice, tenant-name=acme)", "alice"),
        ("CustomPrincipal(name=alice, group=Group(name=ops))", "alice"),
        ("CustomPrincipal(group=Group(name=ops), name=alice)", "alice"),
        ("CustomPrincipal[type=User, name=CN=etl,OU=A]", "CN=etl,OU=A"),
        ("CustomPrincipal[type=User, name=CN=etl, OU=A, O=b]", "CN=etl, OU=A, O=b"),
        ("CustomPrincipal(name=a(1))", "a(1)"),
        ("CustomPrincipal(name='O'Brien', x=1)", "O'Brien"),
        ("MultiTenantPrincipal(tenant=T(a=b), user=a, on-behalf-user=svc)", "a"),
        ("User:[teamA]:[alice]", "[teamA]:[alice]"),
        ("User:CN=etl ", "CN=etl "),
    ],
)
def test_no_two_users_become_one(principal: str, name: str) -> None:
    assert Principals().name_of(principal) == name


@pytest.mark.parametrize("scan", [False, True])
def test_principals_that_differ_by_connection_are_one_user(scan: bool) -> None:
    (log,) = (DATA / "F02-msk-iam-principal").glob("*.gz")
    users = {row["principal"] for row in read(log, scan=scan)}
    arn = "arn:aws:sts::111122223333:assumed-role/etl-writer/i-0abc"
    assert arn in users
    assert not any("INTERNAL_IP" in user for user in users)
    assert len(users) == len({re.sub(r":\[.*", "", user) for user in users})


@pytest.mark.parametrize("scan", [False, True])
def test_a_pattern_tells_the_user(scan: bool, tmp_path: Path) -> None:
    lines = [
        re.sub(
            rb'("connection":"[^"]*:)(\d+)(-\d+-\d+".*)"principal":"User:[^"]*"',
            lambda m, n=n: (
                m[1] + b"%d" % (50_000 + n) + m[3] + b'"principal":"User:team-a/session-%d"' % n
            ),
            line,
        )
        for n, line in enumerate(STOCK)
    ]
    log = written(tmp_path / "a.log", lines)
    assert len({row["principal"] for row in read(log, scan=scan)}) == len(STOCK)
    said = notes(log)["principals_per_connection"]
    assert "as many principals (72) as connections (72)" in said
    assert "--principal-pattern" in said
    rows = read(log, scan=scan, principal_pattern="^([^/]+)/session")
    assert {row["principal"] for row in rows} == {"team-a"}
    assert "principals_per_connection" not in notes(PUBLIC)


# F03


def test_a_copy_whose_first_request_comes_late_is_one(tmp_path: Path) -> None:
    packed = (DATA / "F03-first-request-after-64k.log.gz").read_bytes()
    text = gzip.decompress(packed)
    assert text.index(b"requestHeader") > 65_536
    (tmp_path / "0.log").write_bytes(text)
    (tmp_path / "0.log.gz").write_bytes(packed)
    rows = read(tmp_path)
    agrees([row for row in rows if row["kind"] == "request"], 1000.0)
    assert [r["reason"] for r in rows if r["kind"] == "bad" and "compressed" in r["reason"]] == [
        f"the file isn't read: it is {tmp_path / '0.log'}, compressed, which is read"
    ]
    # Under another name it is a copy too.
    (tmp_path / "0.log.gz").rename(tmp_path / "1.log")
    with pytest.raises(ConfigError, match="begins with what"):
        pieces_of(find_files([str(tmp_path)]), copies="refuse")


def test_a_log_with_a_late_first_request_is_known_again_when_compressed(tmp_path: Path) -> None:
    text = gzip.decompress((DATA / "F03-first-request-after-64k.log.gz").read_bytes())
    late = text.index(b"Completed request")
    log = tmp_path / "0.log"
    files = RolledFiles()

    def taken(at_s: float) -> int:
        found = files.take([str(path) for path in sorted(tmp_path.iterdir())], at_s)
        files.remember(found.inputs)
        return sum((len(text) if p.end < 0 else p.end) - p.start for p in found.pieces)

    log.write_bytes(text[: text.rfind(b"\n", 0, late) + 1])
    now = log.stat().st_mtime
    # It settles without a request, and then gets some: its first lines aren't read twice.
    first = taken(now + 100)
    log.write_bytes(text)
    assert first + taken(now + 300) == len(text)
    (tmp_path / "0.log.gz").write_bytes(gzip.compress(text))
    log.unlink()
    assert taken(now + 900) == 0


# F04


def test_several_brokers_in_one_file_are_said() -> None:
    said = notes(DATA / "F04-several-brokers.log.gz")["brokers_in_one_file"]
    assert "holds requests to 3 addresses (10.0.0.5, 10.0.1.5, 10.0.2.5)" in said
    assert "brokers_in_one_file" not in notes(PUBLIC)


# F05


@pytest.mark.parametrize("name", ["t51-docker-local-tz.log", "t52-cri-local-tz.log"])
@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_the_wrappers_zone_counts(name: str, zone: str) -> None:
    log = DATA / "F05-wrapper-knows-the-zone" / name
    agrees(read(log, time_zone=zone))
    assert "1 h earlier: the wrapper's zone is used" in notes(log)["wrapper_zone_shift_ms"]


@pytest.mark.parametrize("minutes", [-570, -210, 60, 345, 765])
def test_any_zone_of_a_wrapper_counts(minutes: int, tmp_path: Path) -> None:
    apart = timedelta(minutes=minutes)
    log = written(
        tmp_path / "a.log",
        [
            stamped(
                line, lambda at: f"{ms(at)}4Z stdout F [{ms(at + apart).replace('T', ' ')}] DEBUG "
            )
            for line in STOCK
        ],
    )
    agrees(read(log))


def test_a_wrapper_that_lags_isnt_a_zone(tmp_path: Path) -> None:
    """A backlog of about an hour that gets shorter passes over quarters of an hour."""
    lag = [timedelta(seconds=3600 - 47 * n) for n in range(len(STOCK))]
    log = written(
        tmp_path / "a.log",
        [
            stamped(line, lambda at, n=n: f"{ms(at + lag[n])}Z stdout F [{ms(at)}] DEBUG ")
            for n, line in enumerate(STOCK)
        ],
    )
    agrees(read(log))
    assert "wrapper_zone_shift_ms" not in notes(log)


# F13


@pytest.mark.parametrize("name", ["c41-traceid-after.log", "c41b-podname-after.log"])
def test_a_later_date_isnt_the_loggers(name: str) -> None:
    rows = read(DATA / "F13-later-date-wins" / name)
    begins = datetime(2026, 11, 21, 11, 45, 50, tzinfo=UTC).timestamp() * 1000
    assert [begins < row["record_ms"] < begins + 2000 for row in rows] == [True, True]


@pytest.mark.parametrize(
    "front",
    [
        "[{at}] DEBUG [since 2020-01-01 00:00:00] ",
        "[{at}] DEBUG 2020-01-01 00:00:00,000 ",
        "[{at}] [session 2024-01-15 09:30:00] DEBUG ",
        "{at} kafka-20240115093000-x DEBUG ",
        "{at} DEBUG [req=1600000000000] ",
        "{at} backup_2024-01-15T09:30:00 INFO ",
        "{at} DEBUG id=20201015T123456789 - ",
        "2026-11-21T11:45:52.001Z stdout F [{at}] [trace=20201015123456789] DEBUG ",
        "DEBUG [{at}] ",
        "level=debug ts={at} trace=20201015123456789 ",
    ],
)
def test_the_loggers_stamp_is_the_one_that_stands_alone(front: str, tmp_path: Path) -> None:
    lines = [stamped(line, lambda at: front.format(at=ms(at))) for line in STOCK]
    agrees(read(written(tmp_path / "a.log", lines)))


# F18


def test_lost_lines_are_told_by_gaps() -> None:
    found = quality(DATA / "F18-lossy.log.gz")
    assert 0.4 < found.lost_share < 0.6
    (said,) = [n.text for n in found.notes() if n.name == "unlogged_share"]
    assert said.startswith(f"about {found.lost_share:.0%} of these connections' requests aren't in")


@pytest.mark.parametrize("kept", [0.9, 0.7, 0.2])
def test_the_share_that_is_lost_is_about_right(kept: float, tmp_path: Path) -> None:
    rng = random.Random(7)
    every = gzip.decompress(PUBLIC.read_bytes()).splitlines()[:3000]
    assert not quality(written(tmp_path / "all.log", every)).lost_share
    sampled = [line for line in every if rng.random() < kept]
    found = quality(written(tmp_path / "some.log", sampled)).lost_share
    assert found == pytest.approx(1 - kept, abs=0.07)


def test_a_hole_in_the_middle_is_told(tmp_path: Path) -> None:
    every = gzip.decompress(PUBLIC.read_bytes()).splitlines()[:3000]
    found = quality(written(tmp_path / "a.log", every[:1000] + every[2000:]))
    assert 0.15 < found.lost_share < 0.5


def test_a_clients_requests_to_other_brokers_are_said_to_be_that(tmp_path: Path) -> None:
    """A Java client counts over all its connections; others of the same log have no gaps."""
    every = gzip.decompress(PUBLIC.read_bytes()).splitlines()[:2000]
    number = re.compile(rb'"correlationId":(\d+)(.*"alice-app)')
    lines = [
        number.sub(lambda m: b'"correlationId":%d%b' % (3 * int(m[1]), m[2]), x) for x in every
    ]
    said = notes(written(tmp_path / "a.log", lines)).get("unlogged_share", "")
    assert "clients sent them to brokers whose logs weren't given" in said


def test_a_log_without_sizes_is_said_to_be_one(tmp_path: Path) -> None:
    tail = (
        "from connection 10.0.0.1:9092-10.0.0.2:5000-1;totalTime:1.0,requestQueueTime:0.1,"
        "localTime:0.5,remoteTime:0.0,throttleTime:0,responseQueueTime:0.1,sendTime:0.1,"
        "securityProtocol:PLAINTEXT,principal:User:bob,listener:L"
    )
    line = (
        "[2020-10-25 10:15:30,123] DEBUG Completed request:RequestHeader(apiKey=PRODUCE, "
        f"apiVersion=7, clientId=c, correlationId=1) -- {{acks=1,timeout=9,numPartitions=1}} {tail}"
    )
    log = written(tmp_path / "a.log", [line.encode()] * 5)
    said = notes(log)["unsized_share"]
    assert "sizes of 100% of produce requests and fetches aren't in this log" in said


def test_nothing_is_said_where_all_is_well() -> None:
    assert notes(PUBLIC) == {}


@pytest.mark.parametrize("scan", [False, True])
def test_a_line_may_hold_more_requests_than_are_tried_in_vain(scan: bool, tmp_path: Path) -> None:
    events = [{"message": line.decode()} for line in STOCK * 9]
    file = written(tmp_path / "array.json", [json.dumps({"events": events}).encode()])
    rows = read(file, scan=scan)
    assert len(rows) == len(events)
    assert {row["kind"] for row in rows} == {"request"}


def test_each_opening_of_a_line_is_refused() -> None:
    text = b'[x] Completed request:{"requestHeader":"' + b"x" * 99 + b'", '
    found = list(find.find(text * 1000, LineParser().stamps))
    said = Counter(str(each) for each in found)
    assert said == {"cut off: 1 braces of its JSON are open at the end": 1000}

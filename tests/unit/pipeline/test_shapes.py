"""The table of shapes: each sample is read, known by its own row, and in the documentation."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from headgate.pipeline.logs.joining import Joiner
from headgate.pipeline.logs.line_parser import LineParser, LogRow
from headgate.pipeline.logs.shapes import SHAPES, UNKNOWN, Shape, shape_of

DATA = Path(__file__).parents[2] / "data/field"
PAGE = Path(__file__).parents[3] / "docs/howto/request-logs.md"
BODY = gzip.decompress((DATA / "stock.log.gz").read_bytes()).splitlines()[0]
BODY = BODY[BODY.index(b"{") : BODY.rindex(b"}") + 1]
AT = 1729851330123.0


def line_of(shape: Shape) -> bytes:
    """Return a shape's sample with a request in it."""
    body = BODY.decode()
    text = json.dumps(f"Completed request:{body}")[1:-1]
    made = shape.sample.replace("%R", body).replace("%E", text).replace("%K", body[1:])
    return made.replace("%C", body.replace('"', '""')).encode()


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_a_sample_is_read_and_known_by_its_own_row(shape: Shape) -> None:
    line = line_of(shape)
    row = LineParser(file="x-2024-10-25.log").parse(line)
    assert row is not None
    within = 1000.0 if "10:15:30 DEBUG" in shape.sample else 10.0
    assert AT - within <= row.record_ms <= AT
    assert shape_of(line + b"\n") is shape
    assert shape_of(b"[2024-10-25 10:15:30,123] INFO started (kafka)\n" + line) is shape


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("F01-whole-seconds/stdout.log", "text of another layout (Strimzi, …)"),
        ("F01-whole-seconds/cri-0.log", "CRI (containerd, CRI-O)"),
        ("F04-several-brokers.log.gz", "kubectl logs --prefix"),
        ("F05-wrapper-knows-the-zone/t51-docker-local-tz.log", "docker json-file"),
        ("F06-flattened/sorted.json", "the request as an object"),
        ("F06-flattened/vector-timestamp-first.json", "the request as an object"),
        ("F07-wrapped-twice/docker-over-ecs.log", "docker json-file"),
        ("F08-lists/aws-get-log-events.json", "CloudWatch (subscription, get-log-events)"),
        ("F08-lists/cloudwatch-firehose.json", "CloudWatch (subscription, get-log-events)"),
        ("F09-csv/logs-insights.csv", "CSV"),
        ("F14-other-time-forms/gcp-seconds-nanos.json", "Google Cloud"),
        ("stock.log.gz", "Kafka's own"),
    ],
)
def test_inputs_from_the_field_are_known(name: str, shape: str) -> None:
    data = (DATA / name).read_bytes()
    data = gzip.decompress(data) if name.endswith(".gz") else data
    assert shape_of(data[:65536]).name == shape


def test_what_is_no_log_has_no_shape() -> None:
    assert shape_of(b"hello\n") is UNKNOWN
    assert shape_of(b"") is UNKNOWN


def test_the_documentation_has_every_shape() -> None:
    rows = [f"| {shape.name} | {shape.time} |" for shape in SHAPES]
    page = PAGE.read_text().splitlines()
    begin = page.index("| shape | time |")
    assert page[begin + 2 : begin + 2 + len(rows)] == rows
    assert not page[begin + 2 + len(rows)].startswith("|")


def test_every_sample_of_json_may_be_printed_over_several_lines() -> None:
    """Every sample that is JSON is read as a document over several lines, too."""
    for shape in SHAPES:
        if not shape.sample.startswith("{"):
            continue
        pretty = json.dumps(json.loads(line_of(shape)), indent=1).encode().split(b"\n")
        joiner = Joiner(LineParser(), is_document=True)
        read = [each for n, line in enumerate(pretty) for each in joiner.take(n + 1, line)]
        rows = [row for _, row, _ in (*read, *joiner.end())]
        assert [type(row) for row in rows] == [LogRow], shape.name

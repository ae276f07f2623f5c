"""
Say which topics the bytes of a produce request or of a fetch answer belong to.

A topic has the bytes of its records, as the line holds them. What else was charged (headers, names,
partitions' fields) belongs to no topic, and is an entry of its own, so that the entries of a line
add up to what it was charged. Newer versions name topics by ids. The answers to Metadata and
CreateTopics tell names with ids: their lines have entries of 0 bytes that hold both.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from headgate.pipeline.logs.line_json import FetchTopic, ProduceTopic, ShareTopic
from headgate.pipeline.logs.line_parser import FETCH, PRODUCE, LineParser, LogRow

NO_TOPIC: Final = ""
"""Name of the entry for bytes that belong to no topic."""
_MOST_TOLD: Final = 200_000
_NO_ID: Final = "A" * 22  # 16 bytes of zeros, as Kafka prints an id
_JSON: Final = json.JSONDecoder()


class TopicBytes(NamedTuple):
    """A topic's name and id, each None where the line doesn't tell it, and its records' bytes."""

    topic: str | None
    topic_id: str | None
    bytes: int


class TopicRow(LogRow):
    """
    What one line gives, with its topics.

    Attributes:
        bytes_by_topic: its entries; None where the line doesn't tell them.
    """

    bytes_by_topic: list[TopicBytes] | None = None


class TopicParser(LineParser):
    """Parse lines as ``LineParser`` does, and their topics: rows are TopicRow."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._told: set[TopicBytes] = set()

    def _row(self, body: bytes, log_ms: float) -> TopicRow:
        row = TopicRow(*super()._row(body, log_ms))
        if row.api_name in _TELLS:
            row.bytes_by_topic = self._new_names(body) or None
        elif row.quota_type in (PRODUCE, FETCH):
            row.bytes_by_topic = _entries(body, row)
        return row

    def _new_names(self, body: bytes) -> list[TopicBytes]:
        """Return the names that an answer tells with their ids; each pair once per file."""
        line = _decoded(_NAMES, body)
        answer = None if line is None else line.response
        told = [
            TopicBytes(topic.name, topic.topicId, 0)
            for topic in (() if answer is None or isinstance(answer, str) else answer.topics)
            if topic.name and topic.topicId not in (None, _NO_ID)
        ]
        new = [pair for pair in told if pair not in self._told]
        if len(self._told) > _MOST_TOLD:
            self._told.clear()
        self._told.update(new)
        return new


class _Produced(ProduceTopic, kw_only=True):
    topicId: str | None = None


class _ProduceBody(msgspec.Struct):
    topicData: list[_Produced]


class _ProduceLine(msgspec.Struct):
    request: _ProduceBody


class _Fetched(FetchTopic, kw_only=True):
    topicId: str | None = None


class _FetchBody(msgspec.Struct):
    responses: list[_Fetched]


class _FetchLine(msgspec.Struct):
    response: _FetchBody | str


class _Shared(ShareTopic, kw_only=True):
    topicId: str | None = None


class _ShareBody(msgspec.Struct):
    responses: list[_Shared]


class _ShareLine(msgspec.Struct):
    response: _ShareBody | str


class _Named(msgspec.Struct):
    name: str | None = None
    topicId: str | None = None


class _NamesBody(msgspec.Struct):
    topics: list[_Named] = []


class _NamesLine(msgspec.Struct):
    response: _NamesBody | str


_PRODUCE: Final = msgspec.json.Decoder(_ProduceLine)
_FETCH: Final = msgspec.json.Decoder(_FetchLine)
_SHARE: Final = msgspec.json.Decoder(_ShareLine)
_NAMES: Final = msgspec.json.Decoder(_NamesLine)
_TELLS: Final = ("METADATA", "CREATE_TOPICS")
# Name and id of a topic, and the sizes of its partitions' records, None where one isn't told.
_Sizes = tuple[str | None, str | None, Sequence[int | None]]


def _entries(body: bytes, row: LogRow) -> list[TopicBytes] | None:
    """Divide what a line was charged by topic; None where it doesn't tell."""
    if not row.bytes_charged:  # nothing was sent, or what was charged was taken back
        return [TopicBytes(NO_TOPIC, None, 0)]
    sums: dict[tuple[str | None, str | None], int] = {}
    for name, topic_id, sizes in _sizes(body, row):
        known = [size for size in sizes if size is not None]
        if len(known) < len(sizes) or not (name or topic_id):
            return None
        sums[name, topic_id] = sums.get((name, topic_id), 0) + sum(known)
    rest = row.bytes_charged - sum(sums.values())
    found = [TopicBytes(*topic, bytes_) for topic, bytes_ in sums.items()]
    return [*found, TopicBytes(NO_TOPIC, None, rest)]


def _sizes(body: bytes, row: LogRow) -> Iterator[_Sizes]:
    """Yield the topics of a line that was charged for bytes; one without a name: it tells none."""
    if row.quota_type == PRODUCE:
        line = _decoded(_PRODUCE, body)
        for topic in () if line is None else line.request.topicData:
            sizes = [
                (p.recordsSizeInBytes or 0) if p.is_sized else None for p in topic.partitionData
            ]
            yield topic.name or None, topic.topicId, sizes
    elif row.api_name == "SHARE_FETCH":
        line = _decoded(_SHARE, body)
        for topic in () if line is None else line.response.responses:
            yield None, topic.topicId, [p.recordsSizeInBytes for p in topic.partitions]
    else:
        line = _decoded(_FETCH, body)
        for topic in () if line is None else line.response.responses:
            sizes = [(p.size or 0) if p.is_sized else None for p in topic.partitions or ()]
            yield topic.topic or None, topic.topicId, sizes
    if line is None:
        yield None, None, ()


def _decoded(decoder: Any, body: bytes) -> Any:
    """Return what a decoder reads of a line that was parsed; None where a topic isn't readable."""
    try:
        try:
            return decoder.decode(body[: body.rfind(b"}") + 1])
        except msgspec.ValidationError:
            raise
        except msgspec.DecodeError:  # a layout printed more behind the JSON
            text = body.decode()
            return decoder.decode(text[: _JSON.raw_decode(text)[1]])
    except ValueError:  # of msgspec, of JSON, or a byte that isn't UTF-8
        return None

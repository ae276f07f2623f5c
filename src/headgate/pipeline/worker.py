"""
What Spark's Python workers run: read a piece of a log, parse it, and hand over little.

Two ways out of the same parse. ``EmitRequests`` gives a row per request. ``EmitActivity`` adds up
by second before anything enters the JVM, which is most of what makes ``usage`` cheap. Both hand
bad lines and counts over as rows of their own ``kind``. Everything here is importable and
picklable; a msgspec decoder isn't, so it's made in the worker.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from headgate.pipeline import schema
from headgate.pipeline.filesplits import Split, read_lines
from headgate.pipeline.logline import BadLine, LineParser, LogRow
from headgate.pipeline.quotas import Quotas
from headgate.pipeline.stamps import zone_of

LINE_CHARS: Final = 2000
# Rows of one hand-over to the JVM, Spark's own arrow.maxRecordsPerBatch.
BATCH_ROWS: Final = 10_000
# Sums kept before a hand-over: 200,000 keys are about 100 MB of Python objects.
MAX_KEYS: Final = 200_000

# Columns that every kind of row may carry beside its own.
_EXTRA = (
    schema.Column("kind", "string", "request, activity, connection, bad or stat"),
    schema.Column("offset", "long", "bad: byte offset"),
    schema.Column("reason", "string", "bad: why"),
    schema.Column("line", "string", "bad: its beginning"),
    schema.Column("lines", "long", "stat: lines read"),
    schema.Column("input_bytes", "long", "stat: bytes read, uncompressed"),
)

# What a journal says of its own quota, for an identical replay; null from logs.
_JOURNAL = (
    schema.Column("own_user", "string", "user tag of the quota-id it was charged to, raw"),
    schema.Column("own_client_id", "string", "client-id tag, raw"),
    schema.Column("own_quota", "double", "limit in force, infinite = none"),
    schema.Column("op", "int", "what was done to the sensor: headgate.kernel's OP_ numbers"),
    schema.Column("num_samples", "int", "quota.window.num"),
    schema.Column("window_ms", "int", "quota.window.size.seconds x 1000"),
)

EMITTED_REQUESTS: Final = schema.Table(
    "emitted_requests",
    "One row per request, bad line, or piece read (`kind` tells).",
    (*schema.REQUESTS.columns, *_JOURNAL, *_EXTRA),
)

ACTIVITY: Final = schema.Table(
    "activity",
    "One row per (broker_id, listener, principal, client_id, quota_type, is_charged, second_ms, "
    "and a journal's own quota_id); what all answers by second are made of.",
    tuple(
        schema.Column(*c)
        for c in (
            ("broker_id", "int", "broker"),
            ("listener", "string", "listener name"),
            ("principal", "string", "name part of the principal, raw"),
            ("client_id", "string", "client-id, raw"),
            ("quota_type", "string", "quota type the requests are charged to"),
            ("is_charged", "bool", "counts against a client quota"),
            ("second_ms", "long", "start of the second, epoch ms"),
            ("requests", "long", "requests"),
            ("bytes", "long", "bytes charged"),
            ("bytes_estimated", "long", "of these, not exact"),
            ("amount", "double", "charged in the quota's own unit (not for request_percentage)"),
            ("handler_ns", "long", "handler thread time, ns"),
            ("request_ns", "long", "thread time charged to the request quota, ns"),
            ("throttle_time_ms", "long", "throttle time told, ms"),
            ("throttled_requests", "long", "requests told a throttle time > 0"),
            ("max_throttle_time_ms", "long", "largest throttle time told, ms"),
            ("producer_ids", "long", "new producer ids"),
            ("quota_id", "string", "a journal's own; null from logs"),
            ("quota_user", "string", "a journal's own"),
            ("quota_client_id", "string", "a journal's own"),
            ("quota", "double", "a journal's own limit; null from logs, and where unlimited"),
        )
    ),
)

EMITTED_ACTIVITY: Final = schema.Table(
    "emitted_activity",
    "One row per activity, first sight of a connection, bad line, or piece read.",
    (
        *ACTIVITY.columns,
        schema.Column("connection", "string", "connection: its id"),
        schema.Column("client_ip", "string", "connection: peer address"),
        schema.Column("first_ms", "double", "connection: first request seen, epoch ms"),
        schema.Column("file", "string", "bad, stat: file"),
        *_EXTRA,
    ),
)


@dataclass(frozen=True)
class ReadPlan:
    """What all workers need to know: the pieces, the zone, and what to hand over."""

    splits: tuple[Split, ...]
    time_zone: str = "UTC"
    connections: bool = False


@functools.lru_cache(maxsize=65536)
def client_ip(connection: str) -> str:
    """
    Return the peer's address of a connection id, "" if it has none.

    ``localIP:port-remoteIP:port-processor-index`` (3.8 and older without the processor); an IPv6
    address holds colons but no dash.
    """
    parts = connection.split("-")
    if len(parts) < 3:
        return ""
    return parts[1].rpartition(":")[0].strip("[]").partition("%")[0]


class Columns:
    """Rows under way to Arrow: a list per column of one table; absent columns become null."""

    def __init__(self, table: schema.Table) -> None:
        self._table = table
        self._rows: list[dict[str, Any]] = []

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, **values: Any) -> None:
        """Add a row."""
        self._rows.append(values)

    def take(self) -> Any:
        """Return what was added as one Arrow batch, and start anew."""
        import pyarrow as pa

        arrays = [
            pa.array([row.get(field.name) for row in self._rows], field.type)
            for field in self._table.arrow
        ]
        self._rows = []
        return pa.RecordBatch.from_arrays(arrays, schema=self._table.arrow)


class _Reader:
    """Walk through the lines of one log split; keep bad ones aside."""

    def __init__(self, plan: ReadPlan, split: Split, side: Columns) -> None:
        self.parser = LineParser(zone_of(plan.time_zone), nanos=split.nanos, file=split.path)
        self.split = split
        self.side = side
        self.lines = 0
        self.bytes = 0

    def __iter__(self) -> Iterator[tuple[int, LogRow]]:
        parse = self.parser.parse
        try:
            for base, lines in read_lines(self.split):
                offset = base
                for line in lines:
                    try:
                        row = parse(line)
                    except BadLine as exc:
                        self._bad(offset, str(exc), line)
                        row = None
                    if row is not None:
                        yield offset, row
                    offset += len(line) + 1
                self.lines += len(lines) - lines.count(b"")
                self.bytes += offset - base
        except OSError as exc:
            # A compressed stream that ends early; what came before it counts.
            self._bad(self.bytes, f"the file can't be read further: {exc}", b"")
        self._count()

    def add_to(self, sums: Sums, broker: int | None) -> None:
        """Add all lines up; as iterating does, without a row for most."""
        if sums.wants_connections:
            for _, each in self:
                sums.add(broker, each)
            return
        fast, parse, totals = self.parser.add_produce, self.parser.parse, sums.totals
        try:
            for base, lines in read_lines(self.split):
                offset = base
                for line in lines:
                    if not fast(line, broker, totals):
                        try:
                            row = parse(line)
                        except BadLine as exc:
                            self._bad(offset, str(exc), line)
                        else:
                            if row is not None:
                                sums.add(broker, row)
                    offset += len(line) + 1
                self.lines += len(lines) - lines.count(b"")
                self.bytes += offset - base
        except OSError as exc:
            self._bad(self.bytes, f"the file can't be read further: {exc}", b"")
        self._count()

    def _count(self) -> None:
        stat = {"file": self.split.path, "lines": self.lines, "input_bytes": self.bytes}
        self.side.add(kind="stat", **stat)

    def _bad(self, offset: int, reason: str, line: bytes) -> None:
        text = line[: LINE_CHARS * 4].decode("utf-8", "replace")[:LINE_CHARS]
        self.side.add(kind="bad", file=self.split.path, offset=offset, reason=reason, line=text)


def _own_splits(plan: ReadPlan, batches: Iterator[Any]) -> Iterator[Split]:
    """Yield the splits whose numbers Spark handed over (column ``id``)."""
    for batch in batches:
        for number in batch.column(0).to_pylist():
            yield plan.splits[number]


@dataclass(frozen=True)
class EmitRequests:
    """Hand over a row per request (``EMITTED_REQUESTS``). A ``mapInArrow`` function."""

    plan: ReadPlan

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Read the splits numbered in ``batches``."""
        for split in _own_splits(self.plan, batches):
            if split.kind == "journal":
                from headgate.pipeline.journal import request_batches

                yield from request_batches(split)
            elif split.kind == "requests":
                yield from read_table(split)
            else:
                yield from self._log(split)

    def _log(self, split: Split) -> Iterator[Any]:
        side = Columns(EMITTED_REQUESTS)
        reader = _Reader(self.plan, split, side)
        offsets: list[int] = []
        rows: list[LogRow] = []
        for offset, row in reader:
            offsets.append(offset)
            rows.append(row)
            if len(rows) >= BATCH_ROWS:
                yield request_batch(split, offsets, rows)
                offsets, rows = [], []
        if rows:
            yield request_batch(split, offsets, rows)
        yield side.take()


def read_row_group(split: Split, columns: Sequence[str]) -> Any:
    """Return one row group of a table ``requests``, its strings as dictionaries."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from headgate.pipeline.filesplits import filesystem

    system, inner = filesystem(split.path)
    have = pq.read_schema(inner, filesystem=system).names
    texts = [c.name for c in schema.REQUESTS.columns if c.type == "string" and c.name in have]
    names = [n for n in columns if n in have]
    with pq.ParquetFile(inner, filesystem=system, read_dictionary=texts) as file:
        table = file.read_row_group(split.start, columns=names, use_threads=False)
    for at, field in enumerate(table.schema):
        wanted = schema.REQUESTS.arrow.field(field.name).type
        if wanted != field.type and not pa.types.is_dictionary(field.type):
            table = table.set_column(at, field.name, table.column(at).cast(wanted))
    return table


def stat_of(split: Split, table: Any) -> Any:
    """Return the count of a table that was read, as EMITTED_REQUESTS columns of ``pack``."""
    from headgate.pipeline.pack import PACKED

    return _stat(PACKED, split, table)


def _stat(of: schema.Table, split: Split, table: Any) -> Any:
    import pyarrow as pa

    stat = {
        "kind": "stat",
        "file": split.path,
        "lines": table.num_rows,
        "input_bytes": table.nbytes,
    }
    return pa.RecordBatch.from_pylist([stat], schema=of.arrow)


def read_table(split: Split) -> Iterator[Any]:
    """Yield one row group of a table ``requests``; its count comes last."""
    import pyarrow as pa

    table = read_row_group(split, schema.REQUESTS.names)
    whole = completed(table)
    arrays = [whole[f.name].cast(f.type) for f in EMITTED_REQUESTS.arrow]
    yield from pa.Table.from_arrays(arrays, schema=EMITTED_REQUESTS.arrow).to_batches()
    yield _stat(EMITTED_REQUESTS, split, table)


def completed(table: Any) -> Any:
    """Return a frame with EMITTED_REQUESTS' columns; a plain ``requests`` frame lacks some."""
    import pyarrow as pa

    if table.schema.names == EMITTED_REQUESTS.arrow.names:
        return table
    have = set(table.schema.names)
    arrays = []
    for field in EMITTED_REQUESTS.arrow:
        if field.name in have:
            arrays.append(table[field.name])
        elif field.name == "kind":
            one = pa.array(["request"])
            codes = pa.array(np.zeros(table.num_rows, np.int32))
            arrays.append(pa.DictionaryArray.from_arrays(codes, one))
        else:
            arrays.append(pa.nulls(table.num_rows))
    return pa.Table.from_arrays(arrays, names=EMITTED_REQUESTS.arrow.names)


def pa_table(batch: Any) -> Any:
    """Return a batch as a table."""
    import pyarrow as pa

    return pa.Table.from_batches([batch])


def pa_numbers(numbers: list[int]) -> Any:
    """Return numbers of splits as Spark hands them over."""
    import pyarrow as pa

    return pa.RecordBatch.from_pydict({"id": numbers})


def request_batch(split: Split, offsets: list[int], rows: list[LogRow]) -> Any:
    """Return rows of one file as an Arrow batch of ``EMITTED_REQUESTS``."""
    import pyarrow as pa

    n = len(rows)
    columns: dict[str, Any] = dict(zip(LogRow._fields, zip(*rows, strict=True), strict=True))
    columns["seq"] = offsets
    columns["client_ip"] = [client_ip(c) for c in columns["connection"]]
    constants = {
        "broker_id": None if split.broker_id < 0 else split.broker_id,
        "source": "log",
        "is_request": True,
        "file": split.path,
        "kind": "request",
    }
    arrays = []
    for field in EMITTED_REQUESTS.arrow:
        if field.name in columns:
            arrays.append(pa.array(columns[field.name], field.type))
        elif constants.get(field.name) is not None:
            arrays.append(pa.repeat(pa.scalar(constants[field.name], field.type), n))
        else:
            arrays.append(pa.nulls(n, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=EMITTED_REQUESTS.arrow)


class Sums:
    """Sums by second under way, and first sights of connections if wanted."""

    def __init__(self, *, connections: bool = False) -> None:
        self.totals: dict[tuple[Any, ...], list[Any]] = {}
        self._seen: dict[tuple[Any, ...], float] = {}
        self.wants_connections = connections

    def __len__(self) -> int:
        return len(self.totals) + len(self._seen)

    def add(self, broker: int | None, row: LogRow) -> None:
        """Add a request line."""
        (record_ms, listener, connection, principal, client) = row[:5]
        (bytes_, exact, handler, throttle, quota_type, amount, charged) = row[8:]
        key = (broker, listener, principal, client, quota_type, charged, record_ms // 1000.0)
        total = self.totals.get(key)
        ns = int(handler * 1e6 + 0.5)
        if total is None:
            over = 1 if throttle > 0 else 0
            estimated = 0 if exact else bytes_
            self.totals[key] = [1, bytes_, estimated, amount, ns, throttle, over, throttle]
        else:
            total[0] += 1
            total[1] += bytes_
            total[3] += amount
            total[4] += ns
            if not exact:
                total[2] += bytes_
            if throttle > 0:
                total[5] += throttle
                total[6] += 1
                if throttle > total[7]:
                    total[7] = throttle
        if self.wants_connections and not row[7]:
            seen = (broker, listener, connection)
            first = self._seen.get(seen)
            if first is None or record_ms < first:
                self._seen[seen] = record_ms

    def take(self) -> Iterator[Any]:
        """Yield Arrow batches of what was added up, and start anew."""
        if self.totals:
            keys = list(zip(*self.totals, strict=True))
            values = list(zip(*self.totals.values(), strict=True))
            columns: dict[str, Any] = dict(zip(_SUM_KEYS, keys[:6], strict=True))
            columns["second_ms"] = [int(s) * 1000 for s in keys[6]]
            columns.update(zip(_SUM_VALUES, values, strict=True))
            columns["request_ns"] = columns["handler_ns"]
            yield _emitted("activity", len(self.totals), columns)
            self.totals.clear()
        if self._seen:
            keys = list(zip(*self._seen, strict=True))
            columns = dict(zip(("broker_id", "listener", "connection"), keys, strict=True))
            columns["client_ip"] = [client_ip(c) for c in columns["connection"]]
            columns["first_ms"] = list(self._seen.values())
            yield _emitted("connection", len(self._seen), columns)
            self._seen.clear()


_SUM_KEYS: Final = (
    "broker_id",
    "listener",
    "principal",
    "client_id",
    "quota_type",
    "is_charged",
)
_SUM_VALUES: Final = (
    "requests",
    "bytes",
    "bytes_estimated",
    "amount",
    "handler_ns",
    "throttle_time_ms",
    "throttled_requests",
    "max_throttle_time_ms",
)


def _emitted(kind: str, n: int, columns: dict[str, Any]) -> Any:
    """Return columns of one kind as a batch of EMITTED_ACTIVITY."""
    import pyarrow as pa

    table = EMITTED_ACTIVITY.arrow
    columns["kind"] = [kind] * n
    arrays = [
        pa.array(columns[f.name], f.type) if f.name in columns else pa.nulls(n, f.type)
        for f in table
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=table)


@dataclass(frozen=True)
class EmitActivity:
    """Hand over sums by second (``EMITTED_ACTIVITY``). A ``mapInArrow`` function."""

    plan: ReadPlan

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Read the splits numbered in ``batches``; sums go on over the splits of a task."""
        side = Columns(EMITTED_ACTIVITY)
        sums = Sums(connections=self.plan.connections)
        for split in _own_splits(self.plan, batches):
            if split.kind == "journal":
                from headgate.pipeline.journal import activity_batches

                yield from activity_batches(split, connections=self.plan.connections)
                continue
            if split.kind == "requests":
                for batch in read_table(split):
                    yield from _activity_of_rows(batch, sums, side)
                continue
            broker = None if split.broker_id < 0 else split.broker_id
            _Reader(self.plan, split, side).add_to(sums, broker)
            if len(sums) > MAX_KEYS:
                yield from sums.take()
        yield from sums.take()
        if len(side):
            yield side.take()


def _activity_of_rows(batch: Any, sums: Sums, side: Columns) -> Iterator[Any]:
    """Add up rows of a table; those of a journal keep their own way of counting."""
    rows = batch.to_pylist()
    for row in rows:
        if row["kind"] == "stat":
            side.add(**{n: row[n] for n in ("kind", "file", "lines", "input_bytes")})
        elif row["source"] == "journal":
            msg = "sum a journal up from its own files, not from a table made of them"
            raise ValueError(msg)
        else:
            values = {n: row[n] for n in LogRow._fields}
            sums.add(row["broker_id"], LogRow(**values))
    return iter(())


@dataclass(frozen=True)
class Resolve:
    """
    Fill quota_id, quota_user, quota_client_id, quota and quota_source where they're null.

    A ``mapInArrow`` function over any frame with principal, client_id, quota_type and a time
    (``at``); each distinct (principal, client-id) of a batch is resolved once.
    """

    quotas: Quotas
    at: str
    out: schema.Table

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Resolve the rows of ``batches``."""
        import pyarrow as pa

        resolve = self.quotas.resolver()
        for batch in batches:
            have = {name: batch.column(i) for i, name in enumerate(batch.schema.names)}
            found = [
                resolve(p or "", c or "", t, at)
                for p, c, t, at in zip(
                    have["principal"].to_pylist(),
                    have["client_id"].to_pylist(),
                    have["quota_type"].to_pylist(),
                    have[self.at].to_pylist(),
                    strict=True,
                )
            ]
            own = have["quota_id"].to_pylist() if "quota_id" in have else [None] * len(found)
            columns = {}
            for i, name in enumerate(
                ("quota_id", "quota_user", "quota_client_id", "quota", "quota_source")
            ):
                kept = have[name].to_pylist() if name in have else [None] * len(found)
                columns[name] = [
                    f[i] if o is None else k for f, o, k in zip(found, own, kept, strict=True)
                ]
            arrays = [
                pa.array(columns[f.name], f.type) if f.name in columns else have[f.name]
                for f in self.out.arrow
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=self.out.arrow)

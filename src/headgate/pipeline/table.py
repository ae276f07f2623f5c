"""
Say what a table is: a name, a grain, and columns with their types, units and meaning.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headgate.pipeline.spark_versions import ARROW_FRAMES, installed, lacks

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

# Our type name -> (Spark class, Arrow factory): the few types our tables need.
_TYPES: Final[dict[str, tuple[str, str]]] = {
    "string": ("StringType", "string"),
    "bool": ("BooleanType", "bool_"),
    "int": ("IntegerType", "int32"),
    "long": ("LongType", "int64"),
    "double": ("DoubleType", "float64"),
    "binary": ("BinaryType", "binary"),
    "timestamp": ("TimestampType", ""),
    "date": ("DateType", "date32"),
    "decimal": ("DecimalType", ""),
}
DECIMAL: Final = (38, 9)
"""Precision and scale of decimals: 1 byte is 10^-9 GB, 1 ns is 10^-9 s."""
# Epoch milliseconds -> the same moment as a TIMESTAMP, which written tables have beside it.
MOMENTS: Final = {
    f"{name}_ms": f"{name}_at"
    for name in ("record", "second", "period", "first", "last", "start", "end", "taken")
}
DAY: Final = "day"
"""The column that written tables have the UTC day of their first time in."""
_DAY_MS: Final = 86_400_000


class Column(NamedTuple):
    """
    One column: its name, one of our type names, and what it means with its unit.

    A column of type ``struct``, or ``list`` of structs, has ``fields``: columns themselves.
    """

    name: str
    type: str
    doc: str
    fields: tuple[Column, ...] = ()


@dataclass(frozen=True)
class Table:
    """
    One table.

    ``struct`` is the Spark schema, ``arrow`` the Arrow one (for workers and for readers without
    Spark), ``markdown()`` the reference page's section.

    Args:
        name: of the table, and of its directory.
        grain: what a row is, in a sentence.
        columns: in order.
    """

    name: str
    grain: str
    columns: tuple[Column, ...]

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Column names in order."""
        return tuple(column.name for column in self.columns)

    @property
    def struct(self) -> StructType:
        """
        Spark schema; every column nullable, its doc as the field's comment.

        It is the caller's own: ``StructType.add`` changes what it is called on.
        """
        return _struct(self.columns)

    @cached_property
    def arrow(self) -> pa.Schema:
        """Arrow schema of the same columns."""
        import pyarrow as pa

        return pa.schema(_arrow_fields(self.columns))

    @cached_property
    def timed(self) -> Table:
        """
        The same table as it is written and handed to users: a TIMESTAMP beside each `*_ms`, and
        last the day of the first; a table that is divided by day is read with it there, too.
        """
        columns = []
        for column in self.columns:
            columns.append(column)
            if column.name in MOMENTS:
                doc = f"`{column.name}` as a TIMESTAMP: a moment in UTC, to the microsecond"
                columns.append(Column(MOMENTS[column.name], "timestamp", doc))
        time = time_of(self.names)
        if time is not None:
            columns.append(Column(DAY, "date", f"UTC day of `{time}`"))
        return Table(self.name, self.grain, tuple(columns))

    def from_rows(self, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
        """Return rows as an Arrow table; what a row lacks is null."""
        import pyarrow as pa

        return pa.Table.from_pylist(list(rows), schema=self.arrow)

    def batch(self, rows: int, columns: Mapping[str, Any]) -> Any:
        """Return columns (lists or Arrow arrays) as an Arrow batch; absent ones are null."""
        import pyarrow as pa

        arrays = [
            as_array(columns[f.name], f.type) if f.name in columns else pa.nulls(rows, f.type)
            for f in self.arrow
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.arrow)

    def table(self, rows: int, columns: Mapping[str, Any]) -> pa.Table:
        """Return columns as ``batch`` does, as an Arrow table."""
        import pyarrow as pa

        return pa.Table.from_batches([self.batch(rows, columns)])

    def markdown(self) -> str:
        """Return the section of docs/reference/pipeline.md that describes this table."""
        rows = []
        for c in self.columns:
            rows.append(f"| `{c.name}` | {c.type} | {c.doc} |")
            rows += [f"| `{c.name}.{f.name}` | {f.type} | {f.doc} |" for f in c.fields]
        head = [f"### `{self.name}`", "", self.grain, "", "| column | type | meaning |"]
        return "\n".join([*head, "|---|---|---|", *rows, ""])

    def select(self, frame: Any) -> Any:
        """Return ``frame`` with exactly this table's columns, in order, in type, with comments."""
        have = set(frame.columns)
        missing = [name for name in self.names if name not in have]
        if missing:  # ``to`` fills them with nulls
            raise ValueError(f"{self.name}: the frame has no column {', '.join(missing)}")
        return frame.to(self.struct)

    def select_timed(self, frame: Any, others: Iterable[str] = ()) -> Any:
        """
        Return ``frame`` with the columns of ``timed``, made of this table's.

        Args:
            frame: has this table's columns.
            others: further columns of the frame, which follow these.
        """
        from pyspark.sql import functions as F

        of_moment = {moment: name for name, moment in MOMENTS.items()}
        cells = []
        for field in self.timed.struct:
            ms = of_moment.get(field.name)
            if field.name == DAY:
                cell = day_of(str(time_of(self.names)))
            elif ms is None:
                cell = F.col(field.name).cast(field.dataType)
            else:
                cell = F.timestamp_micros(F.floor(F.col(ms).cast("double") * 1000 + 0.5))
            cells.append(cell.alias(field.name, metadata=field.metadata))
        return frame.select(*cells, *[F.col(quoted(name)) for name in others])

    def with_moments(self, rows: Any) -> Any:
        """Return an Arrow table or batch of this table with the columns of ``timed``."""
        import pyarrow as pa
        import pyarrow.compute as pc

        arrays: list[Any] = []
        for name in self.names:
            arrays.append(rows[name])
            if name in MOMENTS:
                micros = pc.multiply(pc.cast(rows[name], pa.float64()), 1000.0)
                micros = pc.cast(pc.floor(pc.add(micros, 0.5)), pa.int64())
                arrays.append(pc.cast(micros, pa.timestamp("us", tz="UTC")))
        time = time_of(self.names)
        if time is not None:
            days = pc.floor(pc.divide(pc.cast(rows[time], pa.float64()), float(_DAY_MS)))
            arrays.append(pc.cast(pc.cast(days, pa.int32()), pa.date32()))
        return type(rows).from_arrays(arrays, schema=self.timed.arrow)


def time_of(columns: Iterable[str]) -> str | None:
    """Return the first time among a table's columns; None: it has none."""
    return next((name for name in columns if name in MOMENTS), None)


def day_of(time: str) -> Any:
    """Return the UTC day of a column of epoch milliseconds, whatever the session's zone is."""
    from pyspark.sql import functions as F

    return F.date_from_unix_date(F.floor(F.col(time) / _DAY_MS).cast("int"))


def _struct(columns: Iterable[Column]) -> StructType:
    """Return the Spark type of a row of columns."""
    from pyspark.sql import types

    fields = []
    for c in columns:
        if c.fields:
            kind: Any = _struct(c.fields)
            kind = types.ArrayType(kind) if c.type == "list" else kind
        else:
            kind = getattr(types, _TYPES[c.type][0])(*(DECIMAL if c.type == "decimal" else ()))
        fields.append(types.StructField(c.name, kind, True, {"comment": c.doc}))
    return types.StructType(fields)


def _arrow_fields(columns: Iterable[Column]) -> list[Any]:
    """Return the Arrow fields of columns."""
    import pyarrow as pa

    own = {"timestamp": pa.timestamp("us", tz="UTC"), "decimal": pa.decimal128(*DECIMAL)}
    fields = []
    for c in columns:
        if c.fields:
            kind = pa.struct(_arrow_fields(c.fields))
            kind = pa.list_(kind) if c.type == "list" else kind
        else:
            kind = own.get(c.type) or getattr(pa, _TYPES[c.type][1])()
        fields.append(pa.field(c.name, kind))
    return fields


def quoted(name: str) -> str:
    """Return a column's name as Spark's expressions take any: in backquotes."""
    return "`" + name.replace("`", "``") + "`"


def sums(*names: str, **given: Any) -> list[Any]:
    """Return Spark's sums: of columns, under their own names, and of what is given, by name."""
    from pyspark.sql import functions as F

    every = {name: name for name in names} | given
    return [F.sum(what).alias(name) for name, what in every.items()]


def largest(*names: str) -> list[Any]:
    """Return Spark's largest value of each column, under the column's own name."""
    from pyspark.sql import functions as F

    return [F.max(name).alias(name) for name in names]


def frame_of(spark: SparkSession, rows: pa.Table, struct: StructType | None = None) -> DataFrame:
    """
    Return an Arrow table as a frame; Spark 3.5 takes none, so there it goes row by row.

    Args:
        spark: the session.
        rows: the table.
        struct: the frame's columns; None: the table's.
    """
    if lacks(installed() or "", ARROW_FRAMES) is None:
        return spark.createDataFrame(rows, struct)
    from pyspark.sql.pandas.types import from_arrow_schema

    cells = [tuple(row.values()) for row in rows.to_pylist()]
    return spark.createDataFrame(cells, struct or from_arrow_schema(rows.schema))


def percentile(values: Any, fraction: float) -> Any:
    """
    Return an exact percentile, as Spark's ``percentile`` gives it to the last digit.

    Engines put the two values that it lies between together in other ways; this is Spark's, of
    ``org.apache.spark.sql.catalyst.expressions.aggregate.PercentileBase``.

    Args:
        values: a column of sorted arrays without nulls, such as ``in_order`` gives.
        fraction: 0..1.
    """
    from pyspark.sql import functions as F

    at = (F.size(values) - 1) * F.lit(float(fraction))
    below, above = F.floor(at).cast("int"), F.ceil(at).cast("int")
    low, high = F.get(values, below), F.get(values, above)
    return F.when(low == high, low).otherwise((above - at) * low + (at - below) * high)


def in_order(name: str) -> Any:
    """Return a group's values of a column in a sorted array, for ``percentile``."""
    from pyspark.sql import functions as F

    return F.sort_array(F.collect_list(name))


def make_table(name: str, grain: str, *columns: Column | tuple[str, str, str] | str) -> Table:
    """
    Return a table.

    Args:
        name: of the table.
        grain: what a row is.
        columns: each a Column, or its fields; or a text of several, a line for each:
            ``name type: meaning``. A meaning goes on in lines that are indented further.
    """
    every: list[Column] = []
    for each in columns:
        every += _columns(each) if isinstance(each, str) else [Column(*each)]
    return Table(name, grain, tuple(every))


def _columns(text: str) -> Iterator[Column]:
    for line in re.split(r"\n(?=\S)", textwrap.dedent(text).strip()):
        head, _, doc = " ".join(line.split()).partition(": ")
        name, kind = head.split(" ")
        yield Column(name, kind, doc)


def summed(
    rows: Any, keys: Collection[str], sums: Collection[str], largest: Collection[str] = ()
) -> Any:
    """Add columns of an Arrow table up (and take the largest of others) per key, in this thread."""
    wanted = [(name, "sum") for name in sums] + [(name, "max") for name in largest]
    found = rows.group_by(list(keys), use_threads=False).aggregate(wanted)
    return found.rename_columns([*keys, *sums, *largest])


def gathered(batches: Iterable[Any], least_rows: int) -> Iterator[Any]:
    """Join Arrow batches to tables of ``least_rows`` or more, but for the last."""
    import pyarrow as pa

    kept: list[Any] = []
    rows = 0
    for batch in batches:
        kept.append(batch)
        rows += batch.num_rows
        if rows >= least_rows:
            yield pa.Table.from_batches(kept)
            kept, rows = [], 0
    if rows:
        yield pa.Table.from_batches(kept)


def stream_of(table: Any) -> bytes:
    """Return an Arrow table as an Arrow stream, made small."""
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    small = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.ipc.new_stream(sink, table.schema, options=small) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def as_array(values: Any, kind: Any) -> Any:
    """Return a list, or an Arrow array of whatever type, as an Arrow array of a type."""
    import pyarrow as pa

    if isinstance(values, pa.ChunkedArray):
        values = values.chunk(0) if values.num_chunks == 1 else values.combine_chunks()
    if isinstance(values, pa.Array):
        return values if values.type == kind else values.cast(kind)
    return pa.array(values, kind)

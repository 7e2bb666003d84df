"""The compiled codec of single rows, set up for the columns of a schema.

What it cannot do exactly as ``keycodec`` and ``values`` do, it leaves to them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from kudu_core._ext.batch.given_batch import batch_of
from kudu_core._ext.few.arrow_rows import cells_of_batch, format_of
from kudu_core._ext.row.key_encoder import KeyEncoder
from kudu_core._ext.row.row_writer import RowWriter
from kudu_core._ext.row.shape import TAGS, RowShape
from kudu_core.common.run.cached import cached_property
from kudu_core.common.types import values
from kudu_core.common.types.temporal import limits
from kudu_core.common.types.types import (
    TYPE_BINARY,
    TYPE_BOOL,
    TYPE_DECIMAL,
    TYPE_FLOAT,
    TYPE_UNSIGNED,
    ColumnType,
)

if TYPE_CHECKING:
    from kudu_core._ext.batch.given_batch import GivenBatch
    from kudu_core._ext.row.shape import Cell

_SHAPES_KEPT = 64


class CodecColumn(Protocol):
    """What the codec asks of a column: a ``StoredColumn`` has it."""

    @property
    def id(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def type(self) -> ColumnType: ...
    @property
    def nullable(self) -> bool: ...
    @property
    def read_default(self) -> Any: ...
    @property
    def write_default(self) -> Any: ...


class RowCodec:
    """Keys, rows and records of one schema version, one at a time.  Thread safe."""

    def __init__(
        self,
        columns: Sequence[CodecColumn],
        keys: Sequence[CodecColumn],
        leaves: frozenset[int] = frozenset(),
        required: frozenset[int] = frozenset(),
    ) -> None:
        """``keys``: the columns of the key, in key order; they are among ``columns``.  ``leaves``: ids of
        those that no row gives by their names; ``required``: of those that an insert must give."""
        self._leaves, self._required = leaves, required
        self._columns = columns
        self._keys = keys
        self._shapes: dict[tuple[int, ...], RowShape] = {}
        self.all = row_shape(columns)
        """The shape of rows of every column."""
        self.keys = KeyEncoder(
            tuple(c.name for c in keys),
            [TAGS["other"] if is_checked(c.type) else tag(c.type) for c in keys],
            [c.type.width for c in keys],
        )

    def shape(self, columns: Sequence[CodecColumn]) -> RowShape:
        """How rows of these columns become dicts."""
        if columns is self._columns:
            return self.all
        ids = tuple([column.id for column in columns])
        found = self._shapes.get(ids)
        if found is None:
            if len(self._shapes) >= _SHAPES_KEPT:
                self._shapes.clear()
            found = self._shapes[ids] = row_shape(columns)
        return found

    @cached_property
    def _formats(self) -> tuple[bytes, ...]:
        """Of the columns, as Arrow's C data interface writes their types."""
        return tuple(
            _NO_FORMAT if is_checked(c.type) else format_of(c.type.arrow.__arrow_c_schema__())
            for c in self._columns
        )

    def prepare_batch(
        self, batch: pa.RecordBatch, operation: int, room: int
    ) -> tuple[list[bytes], list[list[Cell]]] | None:
        """``RowWriter.prepare_rows`` of a record batch; None also where a column is of another type."""
        try:
            batch.validate()  # whether buffers are as long as the rows need; their cells are looked at below
            schema, array = batch.__arrow_c_array__()
        except (pa.ArrowException, ValueError):
            return None
        return cells_of_batch(self.writer, self._formats, schema, array, operation, room)

    @cached_property
    def _kinds(self) -> tuple[tuple[int, int, int], ...]:
        """(place among the columns, kind, width) of the key columns."""
        return tuple((self._columns.index(c), c.type.kind, c.type.width) for c in self._keys)

    def batch(self, batch: pa.RecordBatch, operation: int, room: int) -> GivenBatch | None:
        """A record batch as columns of C (``given_batch.batch_of``); None: the general path takes it."""
        try:
            batch.validate()  # as in ``prepare_batch``
            schema, array = batch.__arrow_c_array__()
        except (pa.ArrowException, ValueError):
            return None
        return batch_of(self.writer, self._formats, self._kinds, schema, array, operation, room)

    @cached_property
    def writer(self) -> RowWriter:
        """Dicts to cells in the order of the columns, and cells to records."""
        keys = {c.id for c in self._keys}
        return RowWriter(
            [
                (
                    f"{_HIDDEN}{c.name}" if c.id in self._leaves else c.name,
                    c.id,
                    TAGS["other"] if is_checked(c.type) else tag(c.type),
                    c.type.width,
                    c.nullable,
                )
                for c in self._columns
            ],
            [self._columns.index(c) for c in self._keys],
            [
                _default(c)
                if c.id not in keys | self._required and (c.nullable or c.write_default is not None)
                else Ellipsis
                for c in self._columns
            ],
        )


def row_shape(columns: Sequence[CodecColumn]) -> RowShape:
    """How rows of these columns become dicts."""
    return RowShape(
        [c.name for c in columns],
        [c.id for c in columns],
        [tag(c.type) for c in columns],
        [_decoder(c) for c in columns],
        [_shown_default(c) for c in columns],
    )


def _shown_default(column: CodecColumn) -> Any:
    """A default that Python has no value for, without pandas, must not keep other columns from being read."""
    if column.read_default is None:
        return None
    return values.python_or_scalar(column.type, values.physical(column.type, column.read_default))


def raw_shape(columns: Sequence[CodecColumn]) -> RowShape:
    """How rows of these columns become cells as bytes."""
    return RowShape(
        [c.name for c in columns],
        [c.id for c in columns],
        [TAGS["raw"]] * len(columns),
        [_decoder(c) for c in columns],
        [None if c.read_default is None else values.raw_bytes(c.type, c.read_default) for c in columns],
    )


def tag(type_: ColumnType) -> int:
    """How the kernel makes values of the type's cells."""
    made = type_.value.name in _BY_PYTHON or type_.is_long_decimal
    if made or (type_.is_temporal and not _is_common(type_)):
        return TAGS["other"]
    if type_.kind == TYPE_BINARY:
        return TAGS["text"] if type_.is_string else TAGS["bytes"]
    if type_.kind == TYPE_DECIMAL:
        return TAGS["other"]
    if type_.kind == TYPE_FLOAT:
        return TAGS["float"]
    if type_.kind == TYPE_BOOL:
        return TAGS["bool"]
    if type_.is_date:
        return TAGS["date"]
    if type_.is_timestamp:
        return TAGS["time"] if type_.arrow.tz is None else TAGS["time_utc"]
    return TAGS["unsigned" if type_.kind == TYPE_UNSIGNED else "signed"]


_BY_PYTHON = frozenset({"bool8", "uuid", "month_day_nano_interval", "null"})
"""Types whose values are made by ``values`` alone."""
_HIDDEN = "\0"
"""What no name of a column that a row gives begins with."""
_NO_FORMAT = b""
"""Of columns whose cells only the general path checks."""


def is_checked(type_: ColumnType) -> bool:
    """Whether not every value of a cell's size is one of the type: then it is checked by the general path."""
    return type_.is_narrower or type_.value.name in _BY_PYTHON or limits(type_) is not None


def _is_common(type_: ColumnType) -> bool:
    """Whether a type of times is one that the kernel knows."""
    return type_.value.name in ("date32", "timestamp[us]") or (type_.is_utc and type_.arrow.unit == "us")


def _decoder(column: CodecColumn) -> Callable[[bytes], Any]:
    """The general path for one cell."""
    type_, what = column.type, f"column {column.name!r}"

    def decode(raw: bytes) -> Any:
        return values.python(type_, values.unpack(type_, raw), what)

    return decode


def _default(column: CodecColumn) -> bytes | None:
    """The cell that an insert without the column stores."""
    if column.write_default is None:
        return None
    return values.raw_bytes(column.type, column.write_default)

"""Whatever a caller hands to a write, as Arrow record batches.

Knows every container that data comes in, and nothing of what a table does with it: types are
checked in ``conform.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from typing import Any

import numpy as np
import pyarrow as pa

from kudu_core.common.rows.misfits import brought
from kudu_core.common.rows.pandas_frames import is_pandas_frame, of_pandas
from kudu_core.common.rows.python_columns import no_rows_of, of_columns, of_records, of_table
from kudu_core.common.rows.row_groups import Grouped, groups_of, runs_of
from kudu_core.common.rows.row_objects import as_mapping, is_row
from kudu_core.common.rows.row_sources import collected, is_lazy_frame, is_path, reader_of
from kudu_core.common.schema.schema import Schema
from kudu_core.common.types.casts import cast
from kudu_core.errors import InvalidArgument, SchemaMismatch

_ROWS_AT_ONCE = 65536
_ACCEPTED = (
    "an Arrow table, batch, reader or dataset, a polars, pandas or Spark frame, a DuckDB relation, a dict of "
    "columns, a list of dicts, dataclasses or named tuples, or an iterable of record batches"
)


@dataclass(frozen=True, slots=True)
class GivenRows:
    """Some of the rows that a caller gives, as a batch."""

    batch: pa.RecordBatch
    first: int
    """Rows that came before, in batches before this one."""
    numbers: np.ndarray | None = None
    """(n,) int64: the number of each row among all that are given; None: ``first`` and those that follow."""
    from_rows: bool = False
    """Each row has said which columns it has; other batches of the call may have others."""


def batches(data: Any, schema: Schema | None = None) -> Iterator[pa.RecordBatch]:
    """The rows of ``data``, as record batches, in order if they all have the same columns.

    At least one batch comes (perhaps of no rows) when the data has columns, so that its columns
    can be checked; data without columns and rows gives none.  Batches of one call may have
    different columns: each says which it gives.

    ``schema`` is the table's.  It guides plain Python values, which carry no Arrow type: a list of
    floats for a float32 column is rounded, a list for a decimal column may mix int and Decimal; text for
    dates and times is read as ISO 8601.

    ``InvalidArgument`` for data of no known kind, columns of different lengths, or values that make
    no column; ``SchemaMismatch`` for a column of a kind that the table's is not; an exception out of a reader
    or generator passes through.
    """
    return (given.batch for given in given_rows(data, schema))


def given_rows(data: Any, schema: Schema | None = None) -> Iterator[GivenRows]:
    """As ``batches``, with what is known of where the rows come from.

    Rows that are dicts, or other objects with named fields, of different columns are put together by their
    columns (``row_groups.py``): rows of one key stay in their order, others may not.
    """
    first = 0
    for item in _given(data, schema):
        given = item if isinstance(item, GivenRows) else GivenRows(item, first)
        batch = given.batch
        if not batch.num_columns and not batch.num_rows:
            continue
        if schema is not None and given.numbers is None:
            fitting = brought(batch, schema, first)
            if fitting is not batch:
                given = GivenRows(fitting, first, None, given.from_rows)
        first += batch.num_rows
        yield given


def _given(data: Any, schema: Schema | None) -> Iterator[pa.RecordBatch | GivenRows]:
    if isinstance(data, pa.RecordBatch):
        return iter((data,))
    if isinstance(data, pa.Table):
        return of_table(data)
    if isinstance(data, Mapping):
        return of_columns(data, schema)
    if is_pandas_frame(data):
        return of_table(of_pandas(data, schema))
    if hasattr(data, "__arrow_c_stream__"):
        return _of_reader(_opened(data))
    if hasattr(data, "__arrow_c_array__"):
        return iter((_from_c_array(data),))
    if isinstance(data, np.ndarray) and data.dtype.names:
        return of_records(data, schema)
    if is_row(data):
        raise InvalidArgument(f"{type(data).__name__} is one row; rows are given as a list of them: [row]")
    if is_lazy_frame(data):
        return (batch for frame in collected(data) for batch in _of_reader(_opened(frame)))
    reader = reader_of(data)
    if reader is not None:
        return _of_reader(reader)
    if is_path(data):
        raise InvalidArgument(
            f"{type(data).__name__} is no kind of rows; those of files are given as a dataset: "
            f"pyarrow.dataset.dataset({str(data)[:200]!r})"
        )
    if isinstance(data, bytes | bytearray | np.ndarray) or not isinstance(data, Iterable):
        raise InvalidArgument(f"{type(data).__name__} is no kind of rows; give {_ACCEPTED}")
    return _of_iterable(data, schema)


def _opened(data: Any) -> pa.RecordBatchReader:
    if isinstance(data, pa.RecordBatchReader):
        return data
    try:
        return pa.RecordBatchReader.from_stream(data)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise InvalidArgument(f"{type(data).__name__} is no stream of rows: {error}") from None


def _of_reader(reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    empty = True
    for batch in reader:
        empty = False
        yield batch
    if empty:
        yield no_rows_of(reader.schema)


def _from_c_array(data: Any) -> pa.RecordBatch:
    try:
        return pa.record_batch(data)
    except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, ValueError) as error:
        raise InvalidArgument(f"{type(data).__name__} is one column; rows are a struct: {error}") from None


def _of_iterable(data: Iterable[Any], schema: Schema | None) -> Iterator[pa.RecordBatch | GivenRows]:
    """Record batches (or what exports them) and rows, mixed at will."""
    first = 0
    known: dict[type, Callable[[Any], Mapping[str, Any]]] = {}
    for are_rows, items in groupby(data, is_row):
        if are_rows:
            while rows := [as_mapping(item, known) for item in islice(items, _ROWS_AT_ONCE)]:
                yield from _of_rows(rows, schema, first)
                first += len(rows)
            continue
        for item in items:
            if not hasattr(item, "__arrow_c_stream__") and not hasattr(item, "__arrow_c_array__"):
                raise InvalidArgument(f"{type(item).__name__} among the rows; give {_ACCEPTED}")
            for batch in _given(item, schema):
                assert isinstance(batch, pa.RecordBatch)
                first += batch.num_rows
                yield batch


def _of_rows(rows: Sequence[Mapping[str, Any]], schema: Schema | None, first: int) -> Iterator[GivenRows]:
    """``first``: the number of the first row."""
    runs = runs_of(rows)
    groups = groups_of(rows, schema, first) if schema is not None and len(runs) > 1 else None
    if groups is not None and schema is not None and len(groups) < len(runs):
        made = _made(groups, schema, first)
        if made is not None:
            yield from made
            return
    # In the order of the rows: so a value that does not fit is found in its row.
    for run in runs:
        for batch in of_columns(run.columns(), schema, first):
            yield GivenRows(batch, first, None, True)
            first += batch.num_rows


def _made(groups: Sequence[Grouped], schema: Schema, first: int) -> list[GivenRows] | None:
    """Groups as batches in the table's types; None: a value does not fit, or a column is none of the
    table's in one of its forms."""
    made = []
    before = first
    for group in groups:
        assert group.numbers is not None
        try:
            [batch] = of_columns(group.columns(), schema)
            batch = brought(batch, schema, 0)
            arrays = [
                cast(array, schema.by_name[name].type, name) if name in schema.by_name else array
                for name, array in zip(batch.schema.names, batch.columns, strict=True)
            ]
        except (InvalidArgument, SchemaMismatch):
            return None
        batch = pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)
        made.append(GivenRows(batch, before, group.numbers + first, True))
        before += batch.num_rows
    return made


__all__ = ["GivenRows", "batches", "given_rows"]

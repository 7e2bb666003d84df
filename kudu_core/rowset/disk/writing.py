"""Rows in key order into ``.rows`` files of about the target size."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kudu_core._ext.index.bloom import bits_per_key
from kudu_core.cfile.columns.specs import ColumnSpec
from kudu_core.cfile.files.rows_format import RowsMeta
from kudu_core.cfile.files.rows_writer import RowsFileSpec, write_rows_file
from kudu_core.common.rows.keys import EncodedKeys
from kudu_core.common.rows.rowblock import ColumnBuffers
from kudu_core.common.schema.schema import Schema, StoredColumn
from kudu_core.errors import StoreError
from kudu_core.options import Options
from kudu_core.rowset.rows.meta import FileRef, RowSetMeta

if TYPE_CHECKING:
    from kudu_core.fs.api import FileSystem

DECODED_FACTOR = 4
"""Rows are cut where they reach the target size before encoding times this: what encoding usually
saves, so that a file stays near the target without being encoded twice."""


@dataclass(frozen=True, slots=True)
class OrderedRows:
    """Rows in strictly ascending key order.

    Columns are asked for one after the other, each when it is written: a file needs the memory of its
    keys and of one column.
    """

    keys: EncodedKeys
    hashes: np.ndarray
    column: Callable[[int, int, int], ColumnBuffers]
    """Rows ``[lower, upper)`` of the column with this id: ``column(id, lower, upper)``."""
    nbytes: int
    """Bytes of all columns and keys before encoding, about."""
    insert_times: np.ndarray | None = None
    """(n,) uint64, or None when the one insert time is the record's or given beside."""

    @property
    def rows(self) -> int:
        return len(self.hashes)


def files_of(decoded_bytes: int, target_bytes: int) -> int:
    """How many files of about the target size so many bytes make."""
    return max(1, -(-decoded_bytes // (target_bytes * DECODED_FACTOR)))


def cuts(rows: OrderedRows, target_bytes: int, least: int = 1) -> Iterator[tuple[int, int]]:
    """Row ranges of equal length, one for each output file: at least so many, if there are rows."""
    if not rows.rows:
        return
    pieces = min(rows.rows, max(files_of(rows.nbytes, target_bytes), least))
    edges = np.linspace(0, rows.rows, pieces + 1).astype(np.int64)
    yield from zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)


def write_rows(
    fs: FileSystem,
    schema: Schema,
    options: Options,
    rows: OrderedRows,
    lower: int,
    upper: int,
    path: str,
) -> RowsMeta:
    """Write rows ``[lower, upper)`` to one file, fsynced; its name is not."""
    times = None if rows.insert_times is None else rows.insert_times[lower:upper]
    if times is not None and len(times) and bool((times == times[0]).all()):
        times = None  # one insert time needs no column: it stands in the manifest
    spec = RowsFileSpec(
        ((column_spec(schema, c), rows.column(c.id, lower, upper)) for c in schema.columns),
        key_ids=schema.key_ids,
        keys=rows.keys.slice(lower, upper),
        hashes=rows.hashes[lower:upper],
        insert_times=times,
        bloom_bits_per_key=bits_per_key(options.bloom_false_positive_rate),
    )
    return write_rows_file(fs, path, spec)


def column_spec(schema: Schema, column: StoredColumn) -> ColumnSpec:
    """How the file room is to store one column of the schema."""
    role = "key" if column.id in schema.key_ids else "value"
    return ColumnSpec(column.id, column.type, column.nullable, role, column.encoding, column.compression)


def rowset_meta(
    rowset_id: int,
    name: str,
    written: RowsMeta,
    *,
    times: np.ndarray | None,
    record_ts: int | None,
    durable: int,
) -> RowSetMeta:
    """The manifest's entry for a file just written."""
    if times is None:
        assert record_ts is not None
        insert_ts: int | None = record_ts
        newest = record_ts
    else:
        newest = int(times.max())
        insert_ts = newest if int(times.min()) == newest else None
    return RowSetMeta(
        id=rowset_id,
        base=FileRef.of(name, written),
        rows=written.rows,
        min_key=written.min_key,
        max_key=written.max_key,
        insert_ts=insert_ts,
        max_insert_ts=newest,
        durable=durable,
        statistics=written.statistics,
    )


def discard(fs: FileSystem, paths: list[str]) -> None:
    """Remove files of an operation that failed; what cannot be removed is an orphan for open."""
    for path in paths:
        try:
            fs.unlink(path, missing_ok=True)
        except OSError:
            continue
        except StoreError:
            return  # the others would wait as long for the same answer

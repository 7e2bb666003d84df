"""``restore``: a table from backups: the rows of a full one, and what those after it changed, as one write.

manifests -> chain -> rows of the runs, oldest first -> one bulk ingest into a table under a temporary
name -> count -> rename -> fsync.  Rows get the time of the restore: a backup holds states, not history.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kudu_core.common.partition.partitions import PartitionSchema
from kudu_core.common.rows.recast.recast_columns import recast_column
from kudu_core.common.rows.rowblock import ColumnBuffers
from kudu_core.common.run.clock import Clock
from kudu_core.common.run.measure.work import under_way
from kudu_core.common.schema.column_names import OP_COLUMN
from kudu_core.common.schema.schema import Schema, StoredColumn
from kudu_core.common.types.widening import changes_cells, most_decimal, narrows
from kudu_core.errors import Corruption, RowErrors, TableNotFound
from kudu_core.objects.urls import is_url
from kudu_core.options import Options
from kudu_core.table.backup.backup_file import BackupFile, read_backup_file
from kudu_core.table.backup.backup_manifest import BackupManifest, check_runs, chosen, needed, read_manifests
from kudu_core.table.calls.call import Call
from kudu_core.table.calls.conform import apply_calls
from kudu_core.table.lifecycle.beside import check_empty, make_beside, open_beside
from kudu_core.table.lifecycle.create import create
from kudu_core.table.opened.handle import Handle
from kudu_core.table.read.plan import ALL_ROWS
from kudu_core.table.read.scan import open_scan
from kudu_core.table.write.door import write_parts

if TYPE_CHECKING:
    from kudu_core.fs.api import FileSystem
    from kudu_core.table.backup.backup_place import BackupPlace
    from kudu_core.table.lifecycle.location import Location


@dataclass(frozen=True, slots=True)
class Chain:
    """The backups that a table is made of."""

    fs: FileSystem
    """Of the folder."""
    folder: str
    manifests: list[BackupManifest]
    """A full one and those that continue it, oldest first."""

    @property
    def newest(self) -> BackupManifest:
        return self.manifests[-1]

    @property
    def name(self) -> str:
        """Of the last one, wherever the folder is."""
        return f"backup {self.newest.number} of {self.newest.timestamp} of table {self.newest.uuid.hex()}"

    @property
    def has_moved(self) -> bool:
        """Whether ranges came or went, so that rows of some backup may belong nowhere by now."""
        return any(manifest.partitions != self.newest.partitions for manifest in self.manifests)


Fill = Callable[["Handle", Chain], None]
"""Writes the rows of a chain into a table that has none yet, as one change."""


def restore(
    backups: BackupPlace,
    fs: FileSystem,
    target: Location,
    at: Any,
    clock: Clock,
    fill: Fill | None = None,
) -> None:
    """Make the table; the walk behind ``kudu_core.restore``.  ``fill``: somebody else writes the rows.

    ``fs``: of the machine, for a ``target`` that is a folder.
    """
    path = target.root
    if not is_url(path):
        check_empty(fs.rooted(path.rsplit("/", 1)[0] or "/"), path)
    chain = _chain(backups.fs, backups.folder, at)
    if is_url(path):
        _make_in_store(target, chain, fill or _fill_here)
    else:
        make_beside(fs, path, lambda inside, place: _build(inside, place, chain, clock, fill or _fill_here))


def _chain(backups: FileSystem, folder: str, at: Any) -> Chain:
    """Of the backup that is wanted, each of which has its files."""
    if not backups.exists(folder):
        raise TableNotFound(f"there is no backup at {folder}; make one with Table.backup")
    manifests = read_manifests(backups, folder, in_store=is_url(folder))
    chain = Chain(backups, folder, needed(folder, manifests, chosen(folder, manifests, at)))
    for manifest in chain.manifests:
        check_runs(backups, folder, manifest)
    return chain


def _build(fs: FileSystem, path: str, chain: Chain, clock: Clock, fill: Fill) -> None:
    """The table of the chain's last backup, closed."""
    schema, partitions = _beginning(chain)
    create(fs.rooted(path), path, schema, partitions, chain.newest.options, clock)
    with open_beside(fs, path, clock) as handle:
        _fill(handle, chain, fill)
        check_total(handle, chain)


def _make_in_store(target: Location, chain: Chain, fill: Fill) -> None:
    """The same in an object store, where nothing can be renamed: nobody sees the table before it is whole,
    and a restore that was cut short is taken up by the next one of the same backup."""
    from kudu_core.table.lifecycle.in_store.create_in_store import DEFAULTS
    from kudu_core.table.lifecycle.in_store.store_location import StoreLocation, restored

    assert isinstance(target, StoreLocation)
    schema, partitions = _beginning(chain)
    options, usual = chain.newest.options, Options()
    own = {name: value for name, value in DEFAULTS.items() if getattr(options, name) == getattr(usual, name)}
    handle = target.restoring(chain.name, schema, partitions, options.overridden(own), Handle)
    handle.leave_to_caller()
    with handle:
        if not open_scan(handle, ALL_ROWS, None).count():  # its rows come as one change
            _fill(handle, chain, fill)
        check_total(handle, chain)
        restored(handle.engine)


def _beginning(chain: Chain) -> tuple[Schema, PartitionSchema]:
    """Of the table before it has rows."""
    newest = chain.newest
    schema = newest.schema.renewed()
    live = tuple(r for r in newest.partitions.ranges if not r.dropped)
    return schema, PartitionSchema(schema, newest.partitions.hashes, newest.partitions.range_ids, live)


def _fill(handle: Handle, chain: Chain, fill: Fill) -> None:
    try:
        fill(handle, chain)
    except RowErrors as exc:
        raise Corruption(chain.folder, 0, f"the backups do not fit together: {exc}") from exc


def _fill_here(handle: Handle, chain: Chain) -> None:
    work = under_way()
    if work is not None:
        work.begin("reading", sum(run.rows for manifest in chain.manifests for run in manifest.runs))
    engine = handle.for_writing()
    batches = _batches(chain.fs, chain, engine.schema)
    calls = apply_calls(engine.schema, batches, OP_COLUMN, stored=True)
    write_parts(engine, _within(calls, chain, engine.partitions), clears=False)


def _batches(fs: FileSystem, chain: Chain, schema: Schema) -> Iterator[pa.RecordBatch]:
    for manifest in chain.manifests:
        for run in manifest.runs:
            yield from batches_of(fs, chain.folder, manifest, run, schema)


def batches_of(
    fs: FileSystem, folder: str, manifest: BackupManifest, run: BackupFile, schema: Schema
) -> Iterator[pa.RecordBatch]:
    """The rows of a run in the newest schema's columns, each with its operation."""
    for batch in _read(fs, folder, manifest, run).to_batches():
        yield _conformed(manifest, batch, schema)


def _read(fs: FileSystem, folder: str, manifest: BackupManifest, run: BackupFile) -> pa.Table:
    path = f"{manifest.directory(folder)}/{run.name}"
    rows = read_backup_file(fs, manifest.directory(folder), run)
    if not rows.schema.equals(manifest.arrow_schema()):
        raise Corruption(path, 0, "the rows have other columns than the backup's manifest says")
    return rows


def _conformed(manifest: BackupManifest, batch: pa.RecordBatch, schema: Schema) -> pa.RecordBatch:
    """Columns are the same by id; one that came later is read as in rows that are older than it."""
    count = batch.num_rows
    if manifest.since is None:
        ops = pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int8)), pa.array(["insert"]))
    else:
        ops = batch.column(OP_COLUMN)
    arrays, names = [ops], [OP_COLUMN]
    for column in schema.columns:
        old = manifest.schema.by_id.get(column.id)
        if old is None:
            arrays.append(_default(column, count))
        else:
            arrays.append(_of_today(batch.column(old.name), old, column))
        names.append(column.name)
    return pa.RecordBatch.from_arrays(arrays, names=names)


def _of_today(array: pa.Array, old: StoredColumn, column: StoredColumn) -> pa.Array:
    """A column of a backup, as its type is now.

    A NULL where there may be none any more, or a decimal with more digits than it may have, is of a row that
    a later backup of the chain replaces: anything stands for it.
    """
    is_null = old.nullable and not column.nullable and array.null_count
    if changes_cells(old.type, column.type):
        given = ColumnBuffers.from_arrow(array, old.type)
        if is_null:
            given = replace(given, validity=None)
        return recast_column(given, old.type.value, column.type.value).to_arrow(column.type)
    if old.type.arrow == column.type.arrow and not is_null:
        return array
    if narrows(old.type, column.type):
        most = pa.scalar(most_decimal(column.type), array.type)
        array = pc.if_else(pc.less_equal(pc.abs(array), most), array, most)
    valid, *others = array.buffers()
    buffers = [None if is_null else valid, *others]
    return pa.Array.from_buffers(column.type.arrow, len(array), buffers, offset=array.offset)


def _default(column: StoredColumn, count: int) -> pa.Array:
    if column.read_default is None:
        return pa.nulls(count, column.type.arrow)
    return ColumnBuffers.constant(column.type, column.read_default, count).to_arrow(column.type)


def _within(calls: Iterator[Call], chain: Chain, partitions: PartitionSchema) -> Iterator[Call]:
    """Without the rows of ranges that were dropped later."""
    if not chain.has_moved:
        yield from calls
        return
    for call in calls:
        kept = np.flatnonzero(partitions.route(call.block) >= 0)
        if len(kept) == call.rows:
            yield call
        elif len(kept):
            ops = call.ops[kept] if isinstance(call.ops, np.ndarray) else call.ops
            status = None if call.status is None else call.status[kept]
            yield replace(call, ops=ops, block=call.block.take(kept), status=status)


def check_total(handle: Handle, chain: Chain) -> None:
    """``Corruption`` unless the table has as many rows as the one that was backed up."""
    total = open_scan(handle, ALL_ROWS, None).count()
    newest = chain.newest
    if total != newest.total:
        reason = f"backup {newest.number} is of a table of {newest.total} rows; its files give {total}"
        raise Corruption(chain.folder, 0, reason)


__all__ = ["Chain", "Fill", "batches_of", "check_total", "restore"]

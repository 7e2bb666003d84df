"""``Table.clone`` from or to an object store: a table with the same rows, which are read and written.

No bytes can be shared there, so nothing is kept that only the files have: the clone has the rows of one
moment, as a restored table does, and is made as one (``restore.py``), whole or not at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kudu_core.common.partition.partitions import PartitionSchema
from kudu_core.errors import InternalError
from kudu_core.objects.urls import is_url
from kudu_core.options import Options
from kudu_core.table.calls.conform import conform_calls
from kudu_core.table.lifecycle.beside import check_empty, make_beside, open_beside
from kudu_core.table.lifecycle.create import create
from kudu_core.table.opened.handle import Handle
from kudu_core.table.read.plan import ALL_ROWS, ScanRequest
from kudu_core.table.read.scan import open_scan
from kudu_core.table.read.snapshot import Snapshot, open_snapshot
from kudu_core.table.write.door import write_parts

if TYPE_CHECKING:
    from kudu_core.common.run.clock import Clock
    from kudu_core.common.schema.schema import Schema
    from kudu_core.fs.api import FileSystem
    from kudu_core.table.lifecycle.location import Location


def clone_rows(handle: Handle, fs: FileSystem, target: Location, at: Any, clock: Clock) -> None:
    """Make the clone.  ``fs``: of the machine, for a ``target`` that is a folder."""
    path = target.root
    if not is_url(path):
        check_empty(fs.rooted(path.rsplit("/", 1)[0] or "/"), path)
    with open_snapshot(handle, at) as snapshot:
        engine = handle.opened()
        schema, partitions = _beginning(engine.schema, engine.partitions)
        options = engine.table_file.state.options
        if is_url(path):
            name = f"clone of {snapshot.timestamp} of table {engine.uuid.hex()}"
            _make_in_store(handle, snapshot, target, name, schema, partitions, options)
            return

        def build(inside: FileSystem, place: str) -> None:
            create(inside.rooted(place), place, schema, partitions, options, clock)
            with open_beside(inside, place, clock) as clone:
                _fill(handle, snapshot, clone)

        make_beside(fs, path, build)


def _make_in_store(
    handle: Handle,
    snapshot: Snapshot,
    target: Location,
    name: str,
    schema: Schema,
    partitions: PartitionSchema,
    options: Options,
) -> None:
    """One that was cut short is taken up by the next of the same moment, and is nobody's to open."""
    from kudu_core.table.lifecycle.in_store.create_in_store import DEFAULTS
    from kudu_core.table.lifecycle.in_store.store_location import StoreLocation, restored

    assert isinstance(target, StoreLocation)
    usual = Options()
    own = {key: value for key, value in DEFAULTS.items() if getattr(options, key) == getattr(usual, key)}
    clone = target.restoring(name, schema, partitions, options.overridden(own), Handle)
    clone.leave_to_caller()
    with clone:
        if not open_scan(clone, ALL_ROWS, None).count():  # its rows come as one change
            _fill(handle, snapshot, clone)
        restored(clone.engine)


def _beginning(schema: Schema, partitions: PartitionSchema) -> tuple[Schema, PartitionSchema]:
    """Of the clone before it has rows."""
    first = schema.renewed()
    live = tuple(r for r in partitions.ranges if not r.dropped)
    return first, PartitionSchema(first, partitions.hashes, partitions.range_ids, live)


def _fill(handle: Handle, snapshot: Snapshot, clone: Handle) -> None:
    engine = clone.for_writing()
    rows = open_scan(handle, ScanRequest(stored=True, expired=True), snapshot)
    write_parts(engine, conform_calls(engine.schema, "insert", iter(rows), stored=True), clears=False)
    here = open_scan(clone, ALL_ROWS, None).count()
    if here != (there := open_scan(handle, ALL_ROWS, snapshot).count()):
        raise InternalError(f"a clone of {there:,} rows has {here:,}")


__all__ = ["clone_rows"]

"""The walk of a schema change (protocol A1 to A3).

next version -> all mutexes -> one log record, durable -> directories of new tablets -> TABLE -> memory.

Nothing stored is rewritten: files and records name columns by ids, which are never used again.  A file that
lacks a column reads its fixed default.  A column that the schema lacks is not looked at, and flushes and
compactions leave it out, unless a scan that was made before may still ask for it.  MemRowSets of the old
columns are frozen; a type of other cells finds nothing in memory (``altering/changed_cells.py``).

Memory follows in the order tablets with their partitions, schema, so that whoever reads beside it and has
the schema has the tablets.  A write whose schema or partitions have changed encodes and routes its rows
again.  A bulk ingest is fitted to them (``table/runs/refitted.py``) and built again, and so is a distributed
job if its columns are still there.

A tablet has a time of creation and one of its end, and a snapshot is routed by the partitions of its time.
A tablet that has ended stays until the horizon has passed its end (``purge``).  What a table is after a
record is in ``table/stored/alteration.py``: pure functions, which replay and readers follow too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kudu_core.common.partition.partitions import PartitionSchema
from kudu_core.common.run.locks import HeldLocks
from kudu_core.common.run.measure.work import LongWork
from kudu_core.common.schema.alter import SAME, altered
from kudu_core.errors import InvalidArgument
from kudu_core.events import TableAltered
from kudu_core.rowset.memory.memrowset import MemRowSet
from kudu_core.table.lifecycle.altering.altered_options import options_changed, take_effect
from kudu_core.table.lifecycle.altering.changed_cells import changes_cells, flush_before, flush_rest, retype
from kudu_core.table.lifecycle.altering.demands import Fitted, StatesFit, demands_of, refuse_demands
from kudu_core.table.opened.record import recorded
from kudu_core.table.stored.alteration import Alteration
from kudu_core.table.stored.indexes import check_indexed
from kudu_core.table.stored.table_state import TableState, tablet_directory
from kudu_core.tablet.store.edits import TabletState
from kudu_core.tablet.store.manifest import Manifest
from kudu_core.tablet.store.tablet import Tablet, freeze_memrowset
from kudu_core.wal import RECORD_KIND_ALTER

if TYPE_CHECKING:
    from kudu_core.common.schema.schema import Schema
    from kudu_core.fs.api import FileSystem
    from kudu_core.table.opened.engine import Engine
    from kudu_core.table.opened.table_file import StoredTable
    from kudu_core.wal.appending import AppendingLog


def alter(
    engine: Engine,
    *,
    add: Any = (),
    drop: Any = (),
    rename: Mapping[str, str] | None = None,
    change: Any = None,
    order: Any = (),
    add_range: Any = None,
    drop_range: Any = None,
    options: Any = None,
    ttl: Any = SAME,
    fit: StatesFit = refuse_demands,
) -> int:
    """Change columns, ranges and options as one record; its timestamp.  See ``Table.alter``.

    ``fit``: whether rows are as a change demands, which the rooms above know how to read.
    """
    with LongWork("alter", engine.tell, unit="tablets") as work:
        return _altered(
            engine, work, fit, add=add, drop=drop, rename=rename, change=change, order=order,
            add_range=add_range, drop_range=drop_range, options=options, ttl=ttl,
        )  # fmt: skip


def _altered(
    engine: Engine,
    work: LongWork,
    fit: StatesFit,
    *,
    add: Any,
    drop: Any,
    rename: Mapping[str, str] | None,
    change: Any,
    order: Any,
    add_range: Any,
    drop_range: Any,
    options: Any,
    ttl: Any,
) -> int:
    started = engine.clock.monotonic_s()
    engine.check_writable()
    if change is not None:
        flush_before(engine, rename, change)
    with engine.altering:
        engine.check_writable()
        schema, partitions = engine.schema, engine.partitions
        changed = altered(schema, drop=drop, rename=rename, add=add, change=change, order=order, ttl=ttl)
        check_indexed(engine.table_file.state.indexes, schema, changed)
        if _said(changed) != _said(schema):
            schema = changed
        if _is_keyed_otherwise(schema, engine.schema):
            partitions = partitions.over(schema)
        gone, new = _ranges("drop_range", drop_range), _ranges("add_range", add_range)
        if gone or new:
            partitions = partitions.altered(schema, drop=gone, add=new)
        settings = options_changed(engine, options)
        if schema is engine.schema and partitions is engine.partitions and not settings:
            raise InvalidArgument(
                "alter changes nothing: give add, drop, rename, change, order, add_range, drop_range, "
                "options or ttl that say something else than there is"
            )
        alteration = Alteration.of(engine.table_file.state, schema, partitions, settings)
        demands = demands_of(engine.schema, schema)
        fitted = Fitted(engine, demands, settings, fit)
        created = [new_tablet(engine, partitions, *entry) for entry in alteration.created]
        laned = engine.tablets if changes_cells(engine.schema, schema) else ()
        # The new ones too: whoever finds them in memory waits until all is as the record says.
        mutexes = [tablet.mutex for tablet in (*engine.tablets, *created)]
        with HeldLocks([tablet.flush_lane for tablet in laned]), HeldLocks(mutexes):
            engine.check_writable()
            flush_rest(laned)
            alteration = replace(alteration, horizon=fitted.settled())
            ts = log_and_apply(engine, alteration, created, schema, partitions)
    engine.wait_visible(ts)
    engine.memory.wake_flushes()  # MemRowSets were frozen
    work.count(len(engine.tablets))
    engine.tell(
        TableAltered(
            elapsed_s=engine.clock.monotonic_s() - started,
            timestamp=ts,
            schema_version=schema.version,
            tablets=sum(t.dropped_ts is None for t in engine.tablets),
        )
    )
    return ts


def _said(schema: Schema) -> tuple[Any, ...]:
    """All of a schema but its version, and the ids that are free."""
    return schema.columns, schema.nested, schema.ttl


def _is_keyed_otherwise(schema: Schema, before: Schema) -> bool:
    """Whether key columns have other names or types, by which partitions show bounds and take them."""
    return [(c.name, c.type) for c in schema.key_columns] != [(c.name, c.type) for c in before.key_columns]


def _ranges(name: str, given: Any) -> Sequence[tuple[Any, Any]]:
    """A range, (lower, upper), or a list of them."""
    if given is None:
        return ()
    if isinstance(given, tuple):
        return (given,)
    if isinstance(given, list):
        return given
    raise InvalidArgument(f"{name} is (lower, upper), or a list of such pairs, not {given!r}")


def log_and_apply(
    engine: Engine,
    alteration: Alteration,
    new: Sequence[Tablet],
    schema: Schema,
    partitions: PartitionSchema,
) -> int:
    """Under the mutexes of all tablets, the new ones' too: one record, what it says on disk and in memory."""
    with recorded(engine, RECORD_KIND_ALTER, schema.version, (alteration.to_bytes(),)) as ts:
        engine.log.wait_durable(ts)
        if new:
            engine.home.make_tablets(new)
        adopt(engine, alteration, new, ts, schema, partitions)
    return ts


def new_tablet(engine: Engine, partitions: PartitionSchema, tablet_id: int, ordinal: int) -> Tablet:
    """A tablet without rows, nor anything on disk: in memory, and nobody else's."""
    path = tablet_directory(engine.path, tablet_id)
    partition = partitions.partition_of(ordinal)
    return Tablet(engine.tablet_context, tablet_id, partition, path, TabletState(), None)


def adopt(
    engine: Engine,
    alteration: Alteration,
    new: Sequence[Tablet],
    ts: int,
    schema: Schema,
    partitions: PartitionSchema,
) -> None:
    """Under the mutexes of all tablets, the new ones' too, the record durable: what it says into TABLE, then
    memory."""

    def after(state: TableState) -> TableState:
        edits = {t.id: t.manifest.proven_number for t in new if t.manifest is not None}
        told = {**state.edits, **edits}
        return replace(alteration.after(state, ts), tokens=dict(engine.writers.applied_writes), edits=told)

    engine.table_file.change(after)
    take_effect(engine, alteration.options)
    # Tablets and partitions at once, before columns: whoever reads beside this and has these has those.
    dropped = set(alteration.dropped)
    for tablet in new:
        tablet.created_ts = ts
    for tablet in engine.tablets:
        if tablet.id in dropped:
            tablet.partition = partitions.partition_of(tablet.partition.ordinal)
            tablet.dropped_ts = ts
    if new or dropped or partitions is not engine.partitions:
        engine.replace_tablets(engine.tablets.with_new(new, partitions))
    if schema is engine.schema:
        return
    is_of_cells = changes_cells(engine.schema, schema)
    engine.schema_pins.note_dropped(engine.schema, schema)
    engine.schema = schema
    for tablet in engine.tablets:
        if is_of_cells:
            retype(tablet, schema)
            continue
        # What was inserted before keeps the columns of its time (protocol A2).
        if not freeze_memrowset(tablet):
            tablet.view = replace(tablet.view, active=MemRowSet(schema))


def open_manifest(
    fs: FileSystem,
    path: str,
    table_file: StoredTable,
    log: AppendingLog,
    tablet_id: int,
    content: TabletState,
) -> Manifest:
    """The manifest of a tablet of a table that is open for writing."""
    return Manifest(
        fs,
        tablet_directory(path, tablet_id),
        table_file.state.uuid,
        tablet_id,
        table_file.state.epoch,
        content,
        fence=table_file.fence,
        poison=log.poison,
        check_poisoned=log.raise_if_poisoned,
    )


__all__ = ["adopt", "alter", "log_and_apply", "new_tablet", "open_manifest"]

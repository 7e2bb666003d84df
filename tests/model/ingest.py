"""Bulk ingest: build, record, install per tablet (protocol G1 to G5).  Replay installs, too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.model.disk import IngestPart, Record
from tests.model.rules import Violation
from tests.model.stores import Change, DeltaFile, DeltaMemStore, MemRowSet, Row, RowSet, Tablet

if TYPE_CHECKING:
    from tests.model.protocol import Writer


@dataclass(slots=True)
class Build:
    """Protocol G2: where each key lived at ``p``: absent (None), in memory (-1, 0), (rowset, rowid)."""

    p: int
    values: dict[int, int]
    found: dict[int, tuple[int, int] | None]


def locate(tablet: Tablet, key: int) -> tuple[int, int] | None:
    store, rowid = tablet.home(key)
    if store is None:
        return None
    return (-1, 0) if isinstance(store, MemRowSet) else (store.id, rowid)


def step(writer: Writer, builds: list[Build]) -> None:
    """Build an ingest, or bring one that is built into the log.  Installing is a step of its own."""
    if builds:
        record_ingest(writer, builds)
    elif writer.rng.random() < 0.5:
        count = writer.environment.keys
        keys = writer.rng.sample(range(count), writer.rng.randint(1, count))
        homes = {key: writer.tablet_of(key) for key in keys}
        if any(tablet.holder for tablet in homes.values()):
            return
        found = {key: locate(tablet, key) for key, tablet in homes.items()}
        builds.append(Build(writer.cut(), {key: writer.oracle.next_value() for key in keys}, found))
        if writer.rng.random() < 0.5:
            record_ingest(writer, builds)


def record_ingest(writer: Writer, builds: list[Build]) -> None:
    """Protocol G3, G4."""
    build = builds[-1]
    homes = {key: writer.tablet_of(key) for key in sorted(build.found)}
    if any(tablet.holder for tablet in homes.values()):
        return
    builds.clear()
    columns = range(writer.environment.columns)
    touched: dict[int, dict[int, tuple[int, int] | None]] = {}
    for key, tablet in homes.items():
        # Deciding every key again is what protocol G3 asks of those that changed; others answer as before.
        found = locate(tablet, key) if writer.rules.ingest_decides_again else build.found[key]
        touched.setdefault(tablet.id, {})[key] = found
    parts = {}
    for tablet_id, decided in touched.items():
        rows: list[Row] = []
        deltas: dict[int, list[Change]] = {}
        part = IngestPart(None, None, {}, {}, {})
        for key, found in decided.items():
            value = build.values[key]
            if found is None:
                image = (value,) * len(columns)
                rows.append(Row(key, 0, image, ()))
                part.all_keys[key] = ("I", image)
                continue
            change: tuple[str, Any] = ("U", {0: value})
            part.all_keys[key] = change
            if found[0] == -1:
                part.by_key[key] = change
            else:
                deltas.setdefault(found[0], []).append(Change(found[1], 0, *change))
        if rows:
            part.rowset, part.base = writer.disk.new_id(), writer.disk.new_file(tuple(rows))
        part.deltas = {rowset: writer.disk.new_file(tuple(c)) for rowset, c in deltas.items()}
        parts[tablet_id] = part
        if writer.rules.ingest_edits_first:
            writer.check_fence(racing=True)
            writer.sync_manifest(tablet_id)
    record = writer.append("INGEST", parts=parts)
    writer.note("ingest: record", record.ts, {tablet_id: part.all_keys for tablet_id, part in parts.items()})
    writer.in_flight[record.ts] = set(parts)
    for tablet_id in parts:
        writer.tablets[tablet_id].holder = record


def install(writer: Writer) -> None:
    """Protocol G5 for one tablet, once the record is durable."""
    held = [t for t in writer.tablets.values() if t.holder and t.holder.kind == "INGEST"]
    if not held:
        return
    tablet = writer.rng.choice(held)
    record = tablet.holder
    assert record is not None
    if writer.durable_through(record.ts):
        install_part(writer, tablet, record)
        for key, (op, value) in record.parts[tablet.id].by_key.items():
            tablet.change(tablet.home(key), key, record.ts, op, value)
        writer.let_go(tablet)


def install_part(writer: Writer, tablet: Tablet, record: Record) -> None:
    """The files of a record: new rowset, delta files, one edit.  Changes by key are the caller's."""
    part: IngestPart = record.parts[tablet.id]
    files = writer.disk.files
    put = []
    for rowset_id, file in part.deltas.items():
        rowset = next((r for r in tablet.rowsets if r.id == rowset_id), None)
        if rowset is None:
            raise Violation(f"G5: a delta file for rowset {rowset_id}, which is gone")
        if file not in files:
            raise Violation(f"N11: file {file}, named by the log, is gone")
        if writer.rules.ingest_deltas == "flush_first":
            flush_memory(writer, rowset)
        rowset.deltas.append(dated(file, files[file], record.ts))
        rowset.d = record.ts
        put.append(rowset)
    if part.base is not None and part.rowset is not None:
        if part.base not in files:
            raise Violation(f"N11: file {part.base}, named by the log, is gone")
        rows = tuple(row._replace(insert_ts=record.ts) for row in files[part.base])
        added = RowSet(part.rowset, part.base, record.ts, rows, [], record.ts)
        tablet.rowsets.append(added)
        put.append(added)
    writer.note("ingest: install", tablet.id, record.ts)
    writer.edit(tablet, put, g=record.ts)


def dated(file: int, changes: tuple[Change, ...], ts: int) -> DeltaFile:
    return DeltaFile(file, tuple(change._replace(ts=ts) for change in changes), ts)


def flush_memory(writer: Writer, rowset: RowSet) -> None:
    """Protocol G3: what is in the rowset's memory stores becomes files in front of the ingest's."""
    stores: list[DeltaFile | DeltaMemStore] = []
    for store in rowset.deltas:
        if isinstance(store, DeltaFile):
            stores.append(store)
        elif store.changes:
            changes = tuple(store.changes)
            stores.append(DeltaFile(writer.disk.new_file(changes), changes))
    rowset.deltas = stores

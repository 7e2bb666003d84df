"""Reading everything that a table has stored, past the caches, to see that it is sound.

The table is opened anew for reading, beside whoever has it open: so what TABLE, manifests and log must be for
each other is asked by the code that opens tables.  Then every file is read and held against its manifest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kudu_core.cfile.columns.statistics import FileStatistics
from kudu_core.cfile.files.delta_file import DeltaFile
from kudu_core.cfile.files.rows_file import RowsFile
from kudu_core.cfile.files.rows_format import RowsMeta
from kudu_core.common.format.names import (
    file_path,
    is_data_file,
    is_staging,
    job_of_mark,
    parse_lost,
    tablet_of_folder,
)
from kudu_core.common.run.measure.work import LongWork, under_way
from kudu_core.errors import Corruption
from kudu_core.fs.base import is_temporary
from kudu_core.fs.copies import copy_of
from kudu_core.fs.missing import FileMissing
from kudu_core.rowset.rows.meta import ColumnsRef, DeltaRef, FileRef, RowSetMeta
from kudu_core.table.lifecycle.lost import FOLDER, lost_usage
from kudu_core.table.lifecycle.open_reader import open_for_reading
from kudu_core.tablet.ingest.install import part_of
from kudu_core.tablet.store import records
from kudu_core.wal import RECORD_KIND_INGEST, RECORD_KIND_WRITE, is_log_name, open_log

if TYPE_CHECKING:
    from kudu_core.fs.api import FileSystem
    from kudu_core.table.opened.engine import Engine
    from kudu_core.tablet.store.tablet import Tablet

TRIES = 5
"""Beside a writer: files that are gone were merged meanwhile, and in a newer state it is no damage."""
_PARTS = frozenset(("LOCK", "TABLE", copy_of("TABLE"), FOLDER, "repair", "staging", "tablets", "wal"))
"""``repair/`` is what ``kudu_core.repair`` has put aside."""
_MANIFESTS = frozenset(("MANIFEST", copy_of("MANIFEST")))


@dataclass(frozen=True, slots=True)
class Verified:
    """What ``Table.verify`` has read and found sound: TABLE, every MANIFEST, the log, and every file that
    they name, against what they say of it.  Records behind an ingest that a crash has left to the next open
    for writing are taken apart, and not replayed.

    >>> stock.verify().records
    1
    """

    files: int
    bytes: int
    """Of those files."""
    records: int
    """Of the log, as far as it is durable and still needed."""
    edits: int = 0
    """Numbers of the last edits of all manifests, added up."""
    segments: int = 0
    """Of the log, spare ones too."""
    unnamed: tuple[str, ...] = ()
    """Data files in tablets that nothing names: of work under way, let go of and not deleted yet, or left by
    a process that died.  The next open for writing deletes those that an edit let go of, and moves the
    others to ``lost/``."""
    lost_files: int = 0
    lost_bytes: int = 0
    """What is in ``lost/``: unread, since nothing names it."""
    staging: tuple[str, ...] = ()
    """Folders in ``staging/``: unread, since they are no part of the table."""
    foreign: tuple[str, ...] = ()
    """Names in the table's folders that are none of ours.  Nothing reads or removes them."""


def verify(engine: Engine, progress: Any = None) -> Verified:
    """Read TABLE, manifests, the log, and every data file of the newest state.

    Raises
    ------
    Corruption
        At the first damage, with file and offset.  Of a record of the log that cannot be replayed, too.
    """
    with LongWork("verify", engine.tell, unit="bytes", progress=progress) as work:
        return _verify(engine, work)


def _verify(engine: Engine, work: LongWork) -> Verified:
    for attempt in range(TRIES):
        fresh = opened_anew(engine)
        try:
            work.begin("log")
            found = verify_frame(fresh)
            work.begin("files", sum(meta.size_bytes for tablet in fresh.tablets for meta in _metas(tablet)))
            checked = [verify_tablet(tablet) for tablet in fresh.tablets]
        except FileMissing:
            if attempt + 1 == TRIES or not is_written(fresh):
                raise
            continue
        finally:
            fresh.close()
        return with_tablets(found, checked)
    raise AssertionError("unreachable")


def with_tablets(found: Verified, checked: list[tuple[int, int, int]]) -> Verified:
    """``verify_frame``'s answer with those of ``verify_tablet``."""
    before = found.files, found.bytes, 0
    files, size, edits = (sum(numbers) for numbers in zip(before, *checked, strict=True))
    return replace(found, files=files, bytes=size, edits=edits)


def opened_anew(engine: Engine) -> Engine:
    """The same table, opened for reading: nothing comes from what ``engine`` has in memory.

    ``Corruption`` if a manifest has less than ``engine`` has made durable.
    """
    engine.table_file.fence()
    durable = {t.id: t.manifest.proven_number for t in engine.tablets if t.manifest is not None}
    if engine.in_store:
        from kudu_core.table.lifecycle.in_store.looking import opened_beside

        fresh = opened_beside(engine)
    else:
        fresh, _ = open_for_reading(engine.fs, engine.path, None, engine.clock, None)
    for tablet in fresh.tablets:
        if tablet.state.number < durable.get(tablet.id, 0):
            path = f"{tablet.directory}/MANIFEST"
            fresh.close()
            raise Corruption(
                path, 0, f"it ends at edit {tablet.state.number}; edit {durable[tablet.id]} is durable"
            )
    return fresh


def is_written(engine: Engine) -> bool:
    """Whether somebody may replace files of the table meanwhile."""
    if engine.in_store:
        return not engine.table_file.is_unwritten()
    return engine.fs.lease(f"{engine.path}/LOCK").holder() is not None


def verify_frame(engine: Engine) -> Verified:
    """What is not of one tablet, of a table that was just opened for reading: the log, record by record, with
    the files that it alone names, and what lies in the folders."""
    check_replayed(engine)
    check_tags(engine)
    if engine.in_store:
        return _verify_frame_in_store(engine)
    fs, path = engine.fs, engine.path
    records_read, waiting = verify_log(engine)
    lost_files, lost_bytes = lost_usage(fs, path)
    folders = fs.listdir(f"{path}/staging") if fs.exists(f"{path}/staging") else []
    return Verified(
        files=sum(map(len, waiting.values())),
        bytes=sum(file.size for files in waiting.values() for file in files),
        records=records_read,
        segments=sum(map(is_log_name, fs.listdir(f"{path}/wal"))),
        unnamed=tuple(name for tablet in engine.tablets for name in _unnamed(fs, path, tablet, waiting)),
        lost_files=lost_files,
        lost_bytes=lost_bytes,
        staging=tuple(name for name in folders if is_staging(name)),
        foreign=tuple(_foreign(engine)),
    )


def _verify_frame_in_store(engine: Engine) -> Verified:
    """As ``verify_frame``: what an ingest's record names is in its edits (protocol B7)."""
    # What few tables need is not loaded with the others.
    from kudu_core.table.lifecycle.in_store import looking

    count = 0
    for record in looking.log_records(engine):
        if record.kind in (RECORD_KIND_WRITE, RECORD_KIND_INGEST):
            records.decode(record.payload, f"log record {record.lsn}", 0)
        count += 1
    found = looking.listed(engine)
    return Verified(
        files=0,
        bytes=0,
        records=count,
        segments=found.log_objects,
        unnamed=found.unnamed,
        foreign=found.foreign,
    )


def check_replayed(engine: Engine) -> None:
    """``Corruption`` if the handle ends before a record of the log that cannot be replayed."""
    if engine.unreplayed is not None:
        raise engine.unreplayed.as_corruption()


def check_tags(engine: Engine) -> None:
    """``Corruption`` if the history of a tag is gone, which every writer keeps."""
    for name, ts in engine.table_file.state.tags.items():
        if ts < engine.oldest_ts:
            reason = f"the tag {name!r} is of {ts}, and history reaches back to {engine.oldest_ts}"
            raise Corruption(f"{engine.path}/TABLE", 0, reason)


def verify_log(engine: Engine) -> tuple[int, dict[int, list[FileRef]]]:
    """Read the log as far as it is durable and still needed, and take every record apart; how many those
    are.  And, by tablet, files that the manifests do not name yet, as a crash has left their ingest to the
    next open for writing: read, and sound."""
    alive = is_written(engine)
    tablets = {} if alive else {tablet.id: tablet for tablet in engine.tablets}  # a writer has installed it
    clean_end = 0 if alive else engine.table_file.state.clean_end
    tail = open_log(engine.fs, f"{engine.path}/wal", engine.uuid, writer_alive=alive, clean_end=clean_end)
    count = 0
    waiting: dict[int, list[FileRef]] = {}
    try:
        for record in tail.records():
            if record.kind in (RECORD_KIND_WRITE, RECORD_KIND_INGEST):
                where = f"log record {record.lsn}"
                payload = records.decode(record.payload, where, 0)
                for tablet_id in payload.tablets if record.kind == RECORD_KIND_INGEST else ():
                    tablet = tablets.get(tablet_id)
                    if tablet is not None and record.ts > tablet.state.ingests_durable:
                        files = _verify_ingested(tablet, payload.extra, record.ts, where)
                        waiting.setdefault(tablet_id, []).extend(files)
            count += 1
    finally:
        tail.close()
    return count, waiting


def _verify_ingested(tablet: Tablet, extra: Mapping[str, Any], ts: int, where: str) -> Iterator[FileRef]:
    """Read the files that an ingest's record names, as they will be of the tablet."""
    rowsets, deltas = part_of(extra, tablet, ts, where)
    for meta in rowsets:
        _verify_rowset(tablet, replace(meta, insert_ts=ts, max_insert_ts=ts, durable=ts))
        yield from meta.files
    for rowset_id, ref in deltas.items():
        rowset = tablet.view.rowset(rowset_id)
        assert rowset is not None, "or it could not be parsed"
        stamped = replace(ref, min_ts=ts, max_ts=ts, record_ts=ts)
        _verify_delta(tablet.context.fs, tablet.directory, replace(rowset.meta, durable=ts), stamped, "redo")
        yield ref.file


def _unnamed(
    fs: FileSystem, path: str, tablet: Tablet, waiting: Mapping[int, Iterable[FileRef]]
) -> Iterator[str]:
    names = tablet.state.files.union(file.name for file in waiting.get(tablet.id, ()))
    for name in fs.listdir(tablet.directory):
        if is_data_file(name) and name not in names:
            yield f"{tablet.directory.removeprefix(path + '/')}/{name}"


def _foreign(engine: Engine) -> Iterator[str]:
    """Names that no table gives, relative to the table's folder."""
    fs, path = engine.fs, engine.path

    def others(folder: str, is_ours: object) -> Iterator[str]:
        if fs.exists(f"{path}/{folder}"):
            for name in fs.listdir(f"{path}/{folder}"):
                if not (callable(is_ours) and is_ours(name)) and not is_temporary(name):
                    yield f"{folder}/{name}"

    yield from (name for name in fs.listdir(path) if name not in _PARTS and not is_temporary(name))
    yield from others("wal", is_log_name)
    yield from others("staging", lambda name: is_staging(name) or job_of_mark(name) is not None)
    yield from others(FOLDER, lambda name: parse_lost(name) is not None)
    yield from others("tablets", lambda name: tablet_of_folder(name) is not None)
    for tablet in engine.tablets:
        folder = tablet.directory.removeprefix(path + "/")
        yield from others(folder, lambda name: name in _MANIFESTS or is_data_file(name))


# ---- one tablet


def verify_tablet(tablet: Tablet) -> tuple[int, int, int]:
    """Read every data file of a tablet's newest state, and hold it against its manifest; how many there are,
    their bytes, and the number of the manifest's last edit."""
    work = under_way()
    files = size = 0
    for meta in tablet.state.rowsets.values():
        _verify_rowset(tablet, meta)
        if work is not None:
            work.advance(meta.size_bytes)
        files += len(meta.files)
        size += meta.size_bytes
    return files, size, tablet.state.number


def _metas(tablet: Tablet) -> Iterable[RowSetMeta]:
    return tablet.state.rowsets.values()


def _verify_rowset(tablet: Tablet, meta: RowSetMeta) -> None:
    fs, directory = tablet.context.fs, tablet.directory
    rows = _verify_rows(fs, directory, meta.base, meta.statistics)
    told = meta.rows, meta.min_key, meta.max_key
    if (rows.rows, rows.min_key, rows.max_key) != told:
        raise Corruption(file_path(directory, meta.base.name), 0, "other rows than its manifest says")
    _check_insert_times(directory, meta, rows)
    for columns in meta.replaced:
        _verify_columns(fs, directory, meta, columns)
    for ref in (*meta.redo, *meta.undo):
        _verify_delta(fs, directory, meta, ref, "redo" if ref in meta.redo else "undo")


def _verify_rows(fs: FileSystem, directory: str, ref: FileRef, statistics: FileStatistics | None) -> RowsMeta:
    path = file_path(directory, ref.name)
    with RowsFile(fs, path, size=ref.size, footer_crc=ref.footer_crc) as file:
        file.verify()
        meta = file.meta
    if statistics is not None and statistics != meta.statistics:
        raise Corruption(path, 0, "its columns are not those of the statistics in its manifest")
    return meta


def _check_insert_times(directory: str, meta: RowSetMeta, rows: RowsMeta) -> None:
    known = rows.max_insert if meta.insert_ts is None else meta.insert_ts
    stored = rows.max_insert is not None
    if known != meta.max_insert_ts or stored != (meta.insert_ts is None):
        reason = f"its rows were inserted by {known}, its manifest says {meta.max_insert_ts}"
        raise Corruption(file_path(directory, meta.base.name), 0, reason)


def _verify_columns(fs: FileSystem, directory: str, meta: RowSetMeta, columns: ColumnsRef) -> None:
    found = _verify_rows(fs, directory, columns.file, columns.statistics)
    known = () if columns.statistics is None else columns.statistics.column_ids
    if found.rows != meta.rows or (known and not set(columns.column_ids) <= set(known)):
        path = file_path(directory, columns.file.name)
        raise Corruption(path, 0, "other rows or columns than its manifest says")


def _verify_delta(fs: FileSystem, directory: str, meta: RowSetMeta, ref: DeltaRef, kind: str) -> None:
    path = file_path(directory, ref.file.name)
    with DeltaFile(fs, path, size=ref.file.size, footer_crc=ref.file.footer_crc) as file:
        file.verify()
        found = file.meta
    stamps = (
        ref.record_ts if found.min_ts is None else found.min_ts,
        (ref.record_ts if found.max_ts is None else found.max_ts),
    )
    liveness = found.delete_count + found.reinsert_count
    told = kind, ref.entries, ref.liveness, dict(ref.updates), (ref.min_ts, ref.max_ts)
    if (found.kind.lower(), found.entries, liveness, found.updates, stamps) != told:
        raise Corruption(path, 0, "its entries are not those that its manifest counts")
    if found.max_rowid >= meta.rows or ref.max_ts > meta.durable:
        raise Corruption(path, 0, f"it changes row {found.max_rowid} of {meta.rows}, up to {ref.max_ts}")


__all__ = [
    "TRIES",
    "Verified",
    "check_replayed",
    "is_written",
    "opened_anew",
    "verify",
    "verify_frame",
    "verify_log",
    "verify_tablet",
    "with_tablets",
]

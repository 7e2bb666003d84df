"""What a table may have been of which neither TABLE nor its copy can be read.

Files of rows say ids and types of columns and which of them are the key; records that alter the table say all
of it; nothing else says names.  What the caller gives stands.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kudu_core.cfile.columns.specs import ColumnSpec
from kudu_core.cfile.files.rows_file import RowsFile
from kudu_core.common.format.members import BROKEN, integer, parsed
from kudu_core.common.format.names import tablet_of_folder
from kudu_core.common.partition.partitions import PartitionSchema
from kudu_core.common.schema.declare import declare
from kudu_core.common.schema.schema import Schema, StoredColumn
from kudu_core.errors import InvalidArgument, KuduError, TableNotFound
from kudu_core.options import Options
from kudu_core.rowset.disk.salvage import UNREADABLE
from kudu_core.table.repair.files import Files
from kudu_core.table.stored.table_state import TableState, TabletEntry, tablet_directory
from kudu_core.tablet.store import records
from kudu_core.tablet.store.salvage import salvage_manifest
from kudu_core.wal import RECORD_KIND_ALTER, RECORD_KIND_INGEST, Record
from kudu_core.wal.salvage import SalvagedLog, segment_uuids

if TYPE_CHECKING:
    from kudu_core.fs.api import FileSystem


@dataclass(frozen=True, slots=True)
class Given:
    """What the caller says of a table of which nothing else does."""

    schema: Any = None
    primary_key: Any = None
    partition_by: Any = None

    @property
    def is_empty(self) -> bool:
        return self.schema is None and self.primary_key is None and self.partition_by is None


@dataclass(slots=True)
class Guess:
    state: TableState
    assumptions: list[str]


@dataclass(slots=True)
class _Altered:
    """What records that alter the table say, the last of each."""

    schema: Schema | None = None
    partitions: dict[str, Any] | None = None
    ended: frozenset[int] = frozenset()


def guess(fs: FileSystem, path: str, log: SalvagedLog, given: Given) -> Guess:
    """The table as it seems to have been.

    Raises
    ------
    TableNotFound
        There is nothing of a table.
    InvalidArgument
        Nothing says what the columns are, or ``given`` does not fit what the files say.
    """
    tablets = _tablets(fs, path)
    if not tablets:
        raise TableNotFound(f"there is nothing of a table at {path}: neither TABLE nor tablets")
    altered = _altered(log)
    assumed: list[str] = []
    schema = altered.schema
    if schema is not None and given.schema is not None:
        raise InvalidArgument("the log says what the columns are: schema and primary_key are not needed")
    if schema is None:
        columns, key_ids = _columns_of_files(fs, path)
        schema = _schema(columns, key_ids, given, assumed)
    if given.partition_by is not None:
        partitions = PartitionSchema.make(schema, given.partition_by)
    elif altered.partitions is not None:
        partitions = PartitionSchema.from_json(altered.partitions, schema)
    else:
        partitions = PartitionSchema.make(schema)
        assumed.append("the table has one partition; say partition_by= for others")
    left = [tablet for tablet in tablets if tablet not in altered.ended]
    assumed.append(
        f"every folder of a tablet is one of the table's: {len(left)}; none was dropped before the log"
    )
    entries = tuple(TabletEntry(tablet, 0, 0) for tablet in left)
    uuid = log.table_uuid or uuid_of(fs, path) or bytes(16)
    return Guess(TableState(uuid, max(1, log.epoch), Options(), (schema,), partitions, entries), assumed)


def _altered(log: SalvagedLog) -> _Altered:
    found = _Altered()
    for record in log:
        with suppress(KuduError, *BROKEN):
            value = _members(record)
            if value is None:
                continue
            found.ended |= {integer(tablet) for tablet in value["dropped"]}
            if value.get("schema") is not None:
                found.schema = replace(Schema.from_json(value["schema"]), version=1)
            if value.get("partitions") is not None:
                found.partitions = value["partitions"]
    return found


def _members(record: Record) -> dict[str, Any] | None:
    """What a record says of the table as a whole; None: it does not."""
    if record.kind == RECORD_KIND_ALTER:
        return parsed(record.payload)
    if record.kind == RECORD_KIND_INGEST:
        extra = records.decode_extra(record.payload, f"log record {record.lsn}", 0)
        return extra if "created" in extra else None
    return None


def _columns_of_files(fs: FileSystem, path: str) -> tuple[dict[int, ColumnSpec], tuple[int, ...]]:
    """Columns by id, and the key, as files of rows have them."""
    columns: dict[int, ColumnSpec] = {}
    key_ids: tuple[int, ...] = ()
    files = Files(fs, path)
    for name in [name for tablet in _tablets(fs, path) for name in files.of(tablet_directory(path, tablet))]:
        if not name.endswith(".rows"):
            continue
        with suppress(*UNREADABLE), RowsFile(fs, name, None) as file:
            columns |= {i: file.columns[i].spec for i in file.column_ids}
            key_ids = file.key_ids or key_ids
    return columns, key_ids


def _schema(
    columns: dict[int, ColumnSpec], key_ids: tuple[int, ...], given: Given, assumed: list[str]
) -> Schema:
    if given.schema is None:
        if not key_ids:
            raise InvalidArgument(
                "neither TABLE nor a file of rows says what the columns are; pass schema= and primary_key="
            )
        assumed.append("columns have their numbers for names, and no defaults; say schema= for others")
        stored = tuple(
            StoredColumn(i, f"column_{i}", spec.type, spec.nullable and i not in key_ids)
            for i, spec in sorted(columns.items())
        )
        return Schema(1, stored, key_ids)
    if given.primary_key is None:
        raise InvalidArgument("with schema= goes primary_key=")
    declared = declare(given.schema, given.primary_key)
    if not key_ids:
        assumed.append("the columns were never altered")
        return declared
    there = ", ".join(f"{i}: {spec.type}" for i, spec in sorted(columns.items()))
    if len(columns) != len(declared.columns):
        raise InvalidArgument(
            f"schema has {len(declared.columns)} columns, the files have {len(columns)}; in the order in "
            f"which they were made, dropped ones too, they are {there}"
        )
    ids = dict(zip((c.id for c in declared.columns), sorted(columns), strict=True))
    for column in declared.columns:
        if columns[ids[column.id]].type != column.type:
            raise InvalidArgument(
                f"column {column.name!r} is {column.type}; the files have, in order, {there}"
            )
    if tuple(ids[i] for i in declared.key_ids) != key_ids:
        raise InvalidArgument(f"the key is columns {key_ids} of the files, which are {there}")
    stored = tuple(replace(column, id=ids[column.id]) for column in declared.columns)
    return Schema(1, stored, key_ids)


def uuid_of(fs: FileSystem, path: str) -> bytes | None:
    """The table that most segments of the log, and manifests, say they are of."""
    votes = segment_uuids(fs, f"{path}/wal")
    for tablet in _tablets(fs, path):
        found = salvage_manifest(fs, tablet_directory(path, tablet), None, tablet, 0)
        if found.table_uuid is not None:
            votes[found.table_uuid] += 1
    return votes.most_common(1)[0][0] if votes else None


def _tablets(fs: FileSystem, path: str) -> list[int]:
    """The tablets that have a folder."""
    with suppress(*UNREADABLE):
        return [i for name in fs.listdir(f"{path}/tablets") if (i := tablet_of_folder(name))]
    return []


__all__ = ["Given", "Guess", "guess", "uuid_of"]

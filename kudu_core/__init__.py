"""Kudu's tablet storage as a Python library.

A table with a primary key in a directory: inserts, upserts, updates of single columns, deletes,
atomic batches, snapshot scans.  Everything goes in and out as Arrow.
"""

import kudu_core.engines.arrow  # noqa: F401  (Table.to_dataset)
from kudu_core.common.partition.declared import HashPartition, RangePartition
from kudu_core.common.schema.declare import Column
from kudu_core.errors import (
    ChangesLost,
    Closed,
    ColumnTooLarge,
    Corruption,
    Fenced,
    InternalError,
    InvalidArgument,
    KuduError,
    Locked,
    MemoryLimit,
    NotSupported,
    Poisoned,
    ReadOnly,
    RowErrors,
    SchemaMismatch,
    SnapshotInFuture,
    SnapshotTooOld,
    TableExists,
    TableNotFound,
    TokenMismatch,
    UnreplayedWarning,
)
from kudu_core.options import Options
from kudu_core.table.backup.format import BackupResult
from kudu_core.table.calls.result import WriteResult
from kudu_core.table.read.scan import Scan
from kudu_core.table.read.snapshot import Snapshot
from kudu_core.table.read.tokens import ScanToken
from kudu_core.table.repair.repair import repair
from kudu_core.table.repair.report import RepairReport
from kudu_core.table.table import Table, create_table, open_table, restore
from kudu_core.table.write.batch import Batch

__version__ = "0.1.0"

__all__ = [
    "BackupResult",
    "Batch",
    "ChangesLost",
    "Closed",
    "Column",
    "ColumnTooLarge",
    "Corruption",
    "Fenced",
    "HashPartition",
    "InternalError",
    "InvalidArgument",
    "KuduError",
    "Locked",
    "MemoryLimit",
    "NotSupported",
    "Options",
    "Poisoned",
    "RangePartition",
    "ReadOnly",
    "RepairReport",
    "RowErrors",
    "Scan",
    "ScanToken",
    "SchemaMismatch",
    "Snapshot",
    "SnapshotInFuture",
    "SnapshotTooOld",
    "Table",
    "TableExists",
    "TableNotFound",
    "TokenMismatch",
    "UnreplayedWarning",
    "WriteResult",
    "create_table",
    "open_table",
    "repair",
    "restore",
]

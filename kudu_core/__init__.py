"""Kudu's tablet storage as a Python library.

A table with a primary key in a directory: inserts, upserts, updates of single columns, deletes,
atomic batches, snapshot scans.  Everything goes in and out as Arrow.

``import kudu_core`` alone loads the errors.  Every other name loads what it needs, Arrow and the compiled
kernels among it, when it is first used (``docs/decisions/0005-names-load-when-used.md``).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kudu_core.errors import (
    Cancelled,
    ChangesLost,
    Closed,
    ColumnTooLarge,
    Conflict,
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
    StoreDenied,
    StoreError,
    StoreUnavailable,
    TableExists,
    TableNotFound,
    TokenMismatch,
    UnreplayedWarning,
)

if TYPE_CHECKING:
    from kudu_core.common.partition.declared import HashPartition, RangePartition
    from kudu_core.common.partition.partitions import PartitionSchema
    from kudu_core.common.schema.declare import Column
    from kudu_core.objects.check_store import StoreReport, check_store
    from kudu_core.options import Options
    from kudu_core.page.report_data import ReportData
    from kudu_core.page.report_page import Report
    from kudu_core.sql.sql_text import expr
    from kudu_core.table.backup.backup_manifest import BackupResult
    from kudu_core.table.calls.result import WriteResult
    from kudu_core.table.changes.change_tokens import ChangeToken
    from kudu_core.table.changes.changes import Changes
    from kudu_core.table.entry import create_table, open_table, restore
    from kudu_core.table.lifecycle.manage.drop_table import drop_table
    from kudu_core.table.lifecycle.manage.list_tables import ListedTable, list_tables
    from kudu_core.table.lifecycle.manage.rename_table import rename_table
    from kudu_core.table.merge.merge_rows import Merge, MergeResult
    from kudu_core.table.merge.sides import new, old
    from kudu_core.table.read.explain import Explained
    from kudu_core.table.read.scan import Scan
    from kudu_core.table.read.snapshot import Snapshot
    from kudu_core.table.read.tokens import ScanToken
    from kudu_core.table.repair.repair import repair
    from kudu_core.table.repair.report import RepairReport
    from kudu_core.table.report.prometheus_text import prometheus_text
    from kudu_core.table.report.verify import Verified
    from kudu_core.table.table import Table
    from kudu_core.table.write.batch import Batch
    from kudu_core.table.write.ticket import WriteTicket
    from kudu_core.tablet.replay.replay_log import Unreplayed
    from kudu_core.web.report_table import report
    from kudu_core.web.server import serve

__version__ = "0.1.0"

__all__ = [
    "BackupResult",
    "Batch",
    "Cancelled",
    "ChangeToken",
    "Changes",
    "ChangesLost",
    "Closed",
    "Column",
    "ColumnTooLarge",
    "Conflict",
    "Corruption",
    "Explained",
    "Fenced",
    "HashPartition",
    "InternalError",
    "InvalidArgument",
    "KuduError",
    "ListedTable",
    "Locked",
    "MemoryLimit",
    "Merge",
    "MergeResult",
    "NotSupported",
    "Options",
    "PartitionSchema",
    "Poisoned",
    "RangePartition",
    "ReadOnly",
    "RepairReport",
    "Report",
    "ReportData",
    "RowErrors",
    "Scan",
    "ScanToken",
    "SchemaMismatch",
    "Snapshot",
    "SnapshotInFuture",
    "SnapshotTooOld",
    "StoreDenied",
    "StoreError",
    "StoreReport",
    "StoreUnavailable",
    "Table",
    "TableExists",
    "TableNotFound",
    "TokenMismatch",
    "Unreplayed",
    "UnreplayedWarning",
    "Verified",
    "WriteResult",
    "WriteTicket",
    "check_store",
    "create_table",
    "drop_table",
    "expr",
    "list_tables",
    "new",
    "old",
    "open_table",
    "prometheus_text",
    "rename_table",
    "repair",
    "report",
    "restore",
    "serve",
]

_HOMES = {
    "BackupResult": "table.backup.backup_manifest",
    "Batch": "table.write.batch",
    "ChangeToken": "table.changes.change_tokens",
    "Changes": "table.changes.changes",
    "Column": "common.schema.declare",
    "Explained": "table.read.explain",
    "HashPartition": "common.partition.declared",
    "ListedTable": "table.lifecycle.manage.list_tables",
    "Merge": "table.merge.merge_rows",
    "MergeResult": "table.merge.merge_rows",
    "Options": "options",
    "PartitionSchema": "common.partition.partitions",
    "RangePartition": "common.partition.declared",
    "RepairReport": "table.repair.report",
    "Report": "page.report_page",
    "ReportData": "page.report_data",
    "Scan": "table.read.scan",
    "ScanToken": "table.read.tokens",
    "Snapshot": "table.read.snapshot",
    "StoreReport": "objects.check_store",
    "Table": "table.table",
    "Unreplayed": "tablet.replay.replay_log",
    "Verified": "table.report.verify",
    "WriteResult": "table.calls.result",
    "WriteTicket": "table.write.ticket",
    "check_store": "objects.check_store",
    "create_table": "table.entry",
    "drop_table": "table.lifecycle.manage.drop_table",
    "expr": "sql.sql_text",
    "list_tables": "table.lifecycle.manage.list_tables",
    "new": "table.merge.sides",
    "old": "table.merge.sides",
    "open_table": "table.entry",
    "prometheus_text": "table.report.prometheus_text",
    "rename_table": "table.lifecycle.manage.rename_table",
    "repair": "table.repair.repair",
    "report": "web.report_table",
    "restore": "table.entry",
    "serve": "web.server",
}
"""Name -> the module below ``kudu_core`` that has it."""

if not TYPE_CHECKING:  # or type checkers would believe that there is every name

    def __getattr__(name: str) -> Any:
        """A name of ``__all__`` at its first use; from then on it is an attribute like any other."""
        home = _HOMES.get(name)
        if home is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(f"{__name__}.{home}"), name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

"""The log's bytes: appending (``log``), waiting (``sync``, ``watermarks``), reading (``tail``), the format.

Knows timestamps, durability and segments; what a payload means is the tablet's and the table's.
"""

from kudu_core.wal.find_records import Record
from kudu_core.wal.format import (
    RECORD_KIND_ALTER,
    RECORD_KIND_CHECKPOINT,
    RECORD_KIND_EDIT,
    RECORD_KIND_INGEST,
    RECORD_KIND_WRITE,
    Checkpoint,
    Segment,
    is_log_name,
)
from kudu_core.wal.log import Log
from kudu_core.wal.log_options import Durability, LogOptions
from kudu_core.wal.open_segments import LogChanged
from kudu_core.wal.segments import holds_records
from kudu_core.wal.tail import LogTail, open_log, read_log

__all__ = [
    "RECORD_KIND_ALTER",
    "RECORD_KIND_CHECKPOINT",
    "RECORD_KIND_EDIT",
    "RECORD_KIND_INGEST",
    "RECORD_KIND_WRITE",
    "Checkpoint",
    "Durability",
    "Log",
    "LogChanged",
    "LogOptions",
    "LogTail",
    "Record",
    "Segment",
    "holds_records",
    "is_log_name",
    "open_log",
    "read_log",
]

"""``from kudu_core import spark as ks``: tables and PySpark.

Needs the extra ``kudu-core[spark]``.  ``spark.read.format("kudu_core")`` works without this import.
"""

from kudu_core.engines.spark.cache import table
from kudu_core.engines.spark.changes import changes, history_of
from kudu_core.engines.spark.frame_merge import FrameMerge, merge
from kudu_core.engines.spark.restoring import restore
from kudu_core.engines.spark.scan import count, scan
from kudu_core.engines.spark.stream.stream_sink import foreach_batch
from kudu_core.engines.spark.upkeep import backup, maintain, verify
from kudu_core.engines.spark.write import commit, create, write

__all__ = [
    "FrameMerge",
    "backup",
    "changes",
    "commit",
    "count",
    "create",
    "foreach_batch",
    "history_of",
    "maintain",
    "merge",
    "restore",
    "scan",
    "table",
    "verify",
    "write",
]

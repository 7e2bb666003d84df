"""By this module Spark finds the data source "kudu_core".

Spark imports every top-level module named ``pyspark_*`` when it looks for a data source, and one that
fails breaks the look-up of all; so the engine is imported only when it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from kudu_core.engines.spark.source import KuduReader, KuduWriter
    from kudu_core.engines.spark.stream.stream_sink import KuduStreamWriter
    from kudu_core.engines.spark.stream.stream_source import KuduStreamReader


class DefaultSource(DataSource):
    """Tables as ``spark.read.format("kudu_core")`` and ``df.write.format("kudu_core")``, ``.mode("append")``
    or ``.mode("overwrite")``.

    Options to read: columns ("a,b"), where (JSON: [["k", ">", 5], ...]), snapshot (a timestamp) or
    timestampAsOf (a time with its zone), targetRowsPerTask, limit; readChanges, since, until, images, net to
    read changes; of streams also maxRowsPerTrigger.  Options to write: operation (upsert), txnAppId and
    txnVersion, onRepeat (check), onDuplicate (error), sequenceBy, ignoreNull (false), lockTimeoutS.
    """

    _newest: int | None = None
    """Up to when a DataFrame reads, known since it was made; None: when it is planned."""

    @classmethod
    def name(cls) -> str:
        return "kudu_core"

    def schema(self) -> StructType:
        from kudu_core.engines.spark import source

        self._newest = source.newest(self.options)
        return source.schema(self.options)

    def reader(self, schema: StructType) -> KuduReader:
        from kudu_core.engines.spark.source import KuduReader

        return KuduReader(self.options, schema, self._newest)

    def writer(self, schema: StructType, overwrite: bool) -> KuduWriter:
        from kudu_core.engines.spark.source import KuduWriter

        return KuduWriter(self.options, schema, overwrite)

    def streamReader(self, schema: StructType) -> KuduStreamReader:
        from kudu_core.engines.spark.stream.stream_source import KuduStreamReader

        return KuduStreamReader(self.options, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> KuduStreamWriter:
        from kudu_core.engines.spark.stream.stream_sink import KuduStreamWriter

        return KuduStreamWriter(self.options, schema, overwrite)

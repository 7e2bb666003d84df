"""Rows of a table at one snapshot, asked for in the words of ``pyarrow.dataset``.

Columns and filter become those of a scan of ours, so they prune tablets, rowsets and pages; the filter is
applied exactly, because the engines do not ask for the columns that only the filter needs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from kudu_core.common.schema.schema import Schema
from kudu_core.common.where import expressions
from kudu_core.engines.arrow.table_scanner import AnyScanner, TableScanner
from kudu_core.errors import InvalidArgument
from kudu_core.table.opened.handle import Handle
from kudu_core.table.read.moment import snapshot_timestamp
from kudu_core.table.read.plan import BATCH_ROWS, ScanPlan, ScanRequest
from kudu_core.table.read.scan import Scan
from kudu_core.table.read.snapshot import open_snapshot

if TYPE_CHECKING:
    from kudu_core.common.run.locks import Claim
    from kudu_core.table.opened.engine import Engine

HINTS = (
    "batch_readahead",
    "fragment_readahead",
    "fragment_scan_options",
    "use_threads",
    "cache_metadata",
    "memory_pool",
)
"""pyarrow's arguments about how files are read.  Taken, as engines pass them; the table's options decide."""


class DatasetMoment:
    """A snapshot and the columns of one moment; while this lives, both can be read."""

    def __init__(self, handle: Handle, at: Any, schema: Schema | None = None) -> None:
        self.handle = handle
        self.snapshot = open_snapshot(handle, at)
        self.schema, self._columns = handle.steady(_pinned_columns)  # not older than the snapshot
        if schema is not None:
            self.schema = schema
        self.arrow_schema = self.schema.arrow

    def planned(self, request: ScanRequest) -> ScanPlan:
        """What is asked for: engines stop reading where they have enough."""
        plan = request.planned(self.schema, now_us=self.snapshot.clock_us)
        return replace(plan, may_stop=True)

    def scan(self, plan: ScanPlan) -> Scan:
        """The rows of a plan."""
        engine = self.handle.opened()
        return Scan(self.handle, plan, snapshot_timestamp(engine, self.snapshot))


def _pinned_columns(engine: Engine) -> tuple[Schema, Claim]:
    return engine.schema, engine.schema_pins.pin(engine.schema)


class Rows:
    """What a dataset of ours and its fragments answer alike."""

    _held: DatasetMoment
    _where: pc.Expression | None
    """Only rows that pass are there."""

    def _narrowed(self, plan: ScanPlan) -> ScanPlan:
        """Of a plan for all rows of the table, what is of these."""
        return plan

    def _scan(
        self, columns: Any, filter: pc.Expression | None, batch_size: int | None, limit: int | None = None
    ) -> Scan:
        rows = BATCH_ROWS if batch_size is None else batch_size
        where = both(self._where, filter)
        plan = self._held.planned(ScanRequest(columns, where, limit=limit, batch_rows=rows))
        return self._held.scan(self._narrowed(plan))

    def scanner(
        self,
        columns: Any = None,
        filter: pc.Expression | None = None,
        batch_size: int | None = None,
        **hints: Any,
    ) -> AnyScanner:
        """The rows, read as they are asked for.

        A ``pyarrow.dataset.Scanner`` where ``columns`` has expressions, or where ``use_threads`` is said,
        as ``pyarrow.dataset.write_dataset`` does, which needs one; it serves once and reads ahead.

        Parameters
        ----------
        columns
            Names, in the order wanted; or names and expressions over the columns.
        filter
            As ``where`` of ``Table.scan``.
        batch_size
            The most rows of a batch.
        hints
            ``HINTS``: how pyarrow would read files.
        """
        check_hints(hints)
        if isinstance(columns, str):
            raise InvalidArgument(f"columns is a list of names: [{columns!r}]")
        schema = self._held.schema
        names = columns if columns is None else _needed(columns, schema)
        scan = self._scan(names, filter, batch_size)
        plain = names is None or list(names) == columns
        if plain and "use_threads" not in hints:
            return TableScanner(scan, self._held.arrow_schema)
        # One thread there: the rows come from our pool, and with more of them Arrow reads far ahead.
        projection = None if plain else columns
        return ds.Scanner.from_batches(scan.to_reader(), columns=projection, use_threads=False)

    def to_batches(
        self,
        columns: Any = None,
        filter: pc.Expression | None = None,
        batch_size: int | None = None,
        **hints: Any,
    ) -> Iterator[pa.RecordBatch]:
        """The batches of ``scanner``, read one by one."""
        check_hints(hints)
        batches: Iterator[pa.RecordBatch] = self.scanner(columns, filter, batch_size).to_batches()
        return batches

    def to_table(
        self,
        columns: Any = None,
        filter: pc.Expression | None = None,
        batch_size: int | None = None,
        **hints: Any,
    ) -> pa.Table:
        """All rows of ``scanner``."""
        check_hints(hints)
        return self.scanner(columns, filter, batch_size).to_table()

    def head(
        self,
        num_rows: int,
        columns: Any = None,
        filter: pc.Expression | None = None,
        batch_size: int | None = None,
        **hints: Any,
    ) -> pa.Table:
        """The first rows that come; no more are read than that takes."""
        check_hints(hints)
        if is_plain(columns):
            return self._scan(columns, filter, batch_size, limit=num_rows).to_table()
        return self.scanner(columns, filter, batch_size).head(num_rows)

    def count_rows(
        self, filter: pc.Expression | None = None, batch_size: int | None = None, **hints: Any
    ) -> int:
        """How many rows pass, reading only what the filter and deletions need."""
        check_hints(hints)
        return self._scan([], filter, batch_size).count()


def both(where: pc.Expression | None, filter: pc.Expression | None) -> pc.Expression | None:
    """The rows that pass both; ``filter`` is the caller's, and checked."""
    if filter is not None and not isinstance(filter, pc.Expression):
        raise InvalidArgument(f"filter is a pyarrow.compute expression, not {filter!r}")
    if where is None or filter is None:
        return where if filter is None else filter
    return where & filter


def is_plain(columns: Any) -> bool:
    """Whether the columns of a scan are these as they are."""
    return columns is None or (isinstance(columns, list) and len(set(columns)) == len(columns))


def _needed(columns: Any, schema: Schema) -> list[str]:
    """Names of the table's columns that a projection takes, each once."""
    if not isinstance(columns, dict):
        return list(dict.fromkeys(columns))
    names: dict[str, None] = {}
    for expression in columns.values():
        node = expressions.parse(expression)
        # Not understood, it may take any column.
        taken = schema.declared_names if node is None else expressions.references(node)
        whole = {name if name in schema.declared_names else _around(name, schema) for name in sorted(taken)}
        names.update(dict.fromkeys(name for name in schema.declared_names if name in whole))
    return list(names)


def _around(name: str, schema: Schema) -> str:
    """The column that has a field; ``InvalidArgument`` where there is none."""
    schema.seen(name)
    return name.split(".", maxsplit=1)[0]


def check_hints(hints: dict[str, Any]) -> None:
    """``InvalidArgument`` of what is none of ``HINTS``, or asks for what a table has not."""
    for name in hints:
        if name not in HINTS:
            raise InvalidArgument(f"no argument {name!r}; beside columns, filter and batch_size: {HINTS}")
    if hints.get("fragment_scan_options") is not None:
        raise InvalidArgument("fragment_scan_options are about the format of files; a table takes none")


__all__ = ["HINTS", "DatasetMoment", "Rows", "both", "check_hints", "is_plain"]

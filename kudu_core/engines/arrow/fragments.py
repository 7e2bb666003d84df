"""Shares of a table's dataset that are read by themselves: what DataFusion, Dask and Ray read at once.

A fragment is a scan token (``Table.scan_tokens``) with the methods of ``pyarrow.dataset.Fragment``.  In the
process of its dataset it is read by the dataset's handle, elsewhere by one that it opens for reading.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from kudu_core.common.types import values
from kudu_core.common.where import keybounds
from kudu_core.engines.arrow.dataset_rows import DatasetMoment, Rows, both
from kudu_core.engines.arrow.table_scanner import AnyScanner
from kudu_core.errors import NotSupported
from kudu_core.table.entry import open_table
from kudu_core.table.opened.handle import handle_of
from kudu_core.table.read.plan import ScanPlan, ScanRequest
from kudu_core.table.read.sent.sent_columns import columns_of_today
from kudu_core.table.read.tokens import ScanToken, check_target, tokens_between

if TYPE_CHECKING:
    from kudu_core.common.schema.schema import Schema
    from kudu_core.common.types.types import ColumnType
    from kudu_core.table.opened.engine import Engine

FRAGMENT_ROWS = 1 << 19
"""Rows of a fragment, about, where nobody says how many."""


def fragments_of(
    held: DatasetMoment, where: pc.Expression | None, filter: pc.Expression | None, target_rows: int
) -> list[TableFragment]:
    """Shares of about ``target_rows`` of the rows that pass ``where``; those that zone maps and partitions
    show to have nothing that passes ``filter`` are left out.  Key indexes and zone maps are read."""
    check_target(target_rows)
    plan = held.planned(ScanRequest(None, both(where, filter)))
    held.handle.opened()
    tokens = tokens_between(held.handle, plan, held.snapshot.timestamp, target_rows)
    return [TableFragment(held, token, where) for token in tokens]


class ShareRows(Rows):
    """The rows of one token."""

    def __init__(self, held: DatasetMoment, token: ScanToken, where: pc.Expression | None) -> None:
        self._held, self._token, self._where = held, token, where

    def _narrowed(self, plan: ScanPlan) -> ScanPlan:
        token = self._token
        lower, upper = keybounds.intersect((plan.lower, plan.upper), (token.lower, token.upper))
        return replace(
            plan,
            lower=lower,
            upper=upper,
            implied=(plan.implied[0] and lower == plan.lower, plan.implied[1] and upper == plan.upper),
            tablet_ids=frozenset((token.tablet_id,)),
        )


class TableFragment:
    """One share of a dataset: a range of keys of one tablet.  Picklable.

    It has the methods of a ``pyarrow.dataset.Fragment`` and is none: that is a C++ object, which cannot be
    made in Python, and without which ``pyarrow.dataset.Scanner.from_fragment`` would end the process.
    """

    def __init__(self, held: DatasetMoment, token: ScanToken, where: pc.Expression | None) -> None:
        self._rows = ShareRows(held, token, where)
        self._held, self._token, self._where = held, token, where

    @property
    def physical_schema(self) -> pa.Schema:
        """The columns of the dataset."""
        return self._held.arrow_schema

    @property
    def partition_expression(self) -> pc.Expression:
        """What is true of the key in every row, as its range of keys says."""
        return guarantee(self._held, self._token)

    @property
    def rows(self) -> int:
        """About how many rows it has, for planning."""
        return self._token.rows

    def scanner(self, schema: pa.Schema | None = None, columns: Any = None, **options: Any) -> AnyScanner:
        """As ``scanner`` of the dataset, of these rows."""
        self._check(schema)
        return self._rows.scanner(columns, **options)

    def to_batches(
        self, schema: pa.Schema | None = None, columns: Any = None, **options: Any
    ) -> Iterator[pa.RecordBatch]:
        """The batches of ``scanner``, read one by one."""
        self._check(schema)
        return self._rows.to_batches(columns, **options)

    def to_table(self, schema: pa.Schema | None = None, columns: Any = None, **options: Any) -> pa.Table:
        """All rows of ``scanner``."""
        self._check(schema)
        return self._rows.to_table(columns, **options)

    def head(self, num_rows: int, columns: Any = None, **options: Any) -> pa.Table:
        """The first rows that come; no more are read than that takes."""
        return self._rows.head(num_rows, columns, **options)

    def take(self, indices: Any, columns: Any = None, **options: Any) -> pa.Table:
        """Rows by their places; all are read."""
        return self._rows.to_table(columns, **options).take(indices)

    def count_rows(self, filter: pc.Expression | None = None, **options: Any) -> int:
        """How many rows pass, reading only what the filter and deletions need."""
        return self._rows.count_rows(filter, **options)

    def _check(self, schema: pa.Schema | None) -> None:
        if schema is not None and schema != self.physical_schema:
            raise NotSupported("a fragment has the columns of its dataset; give `columns` to choose of them")

    def __reduce__(self) -> Any:
        return _arrived, (self._token, self._where)

    def __repr__(self) -> str:
        token = self._token
        place = f"{token.table_path!r}, tablet {token.tablet_id}"
        return f"<kudu_core fragment of {place}, about {token.rows} rows>"


def _arrived(token: ScanToken, where: pc.Expression | None) -> TableFragment:
    """A fragment in another process, with a handle of its own, which lives as long as it does."""
    handle = handle_of(open_table(token.table_path, storage_options=token.storage_options))
    schema, _ = columns_of_today(handle.engine.schema, token)
    return TableFragment(DatasetMoment(handle, token.timestamp, schema), token, where)


def guarantee(held: DatasetMoment, token: ScanToken) -> pc.Expression:
    """What a token's range of keys, and its tablet's, say of columns, as Arrow's scans understand it."""
    schema = held.schema
    known = keybounds.lifted(schema.key_codec, schema.key_ids, (token.lower, token.upper))
    ends = [
        (column_id, None if low is None else low[0], None if high is None else high[0])
        for column_id, (low, high) in known.items()
    ]
    parts: list[pc.Expression] = []
    for column_id, low, high in (*ends, *_of_tablet(held.handle.engine, schema, token.tablet_id)):
        column = schema.by_id[column_id]
        least, most = _scalar(column.type, low), _scalar(column.type, high)
        if least is not None:
            parts.append(pc.field(column.name) >= least)
        if most is not None:
            parts.append(pc.field(column.name) <= most)
    return reduce(and_, parts) if parts else pc.scalar(True)


def _of_tablet(engine: Engine, schema: Schema, tablet_id: int) -> Iterator[tuple[int, Any, Any]]:
    """(Id, smallest and largest physical value, or None) of the first column of a tablet's range."""
    tablets = engine.tablets
    for tablet in tablets:
        if tablet.id == tablet_id and tablet.partition.range is not None:
            scheme = tablets.partitions.scheme_of(tablet.partition.ordinal)
            column_id = scheme.range_ids[0]
            type_ = schema.by_id[column_id].type
            low, high = scheme.bounds(tablet.partition)
            yield (
                column_id,
                None if low is None else values.physical(type_, low[0]),
                None if high is None else values.physical(type_, high[0]),
            )


def _scalar(type_: ColumnType, physical: values.Physical | None) -> pa.Scalar | None:
    """A bound as a value; None where there is none: what all texts with a prefix lie below is no text."""
    if physical is None:
        return None
    value = values.python_or_scalar(type_, physical)
    try:
        return value if isinstance(value, pa.Scalar) else pa.scalar(value, type_.arrow)
    except UnicodeEncodeError:
        return None


__all__ = ["FRAGMENT_ROWS", "TableFragment", "fragments_of"]

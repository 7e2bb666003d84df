"""A scan in plain values: what it asks for, by the ids of columns, without the table and the snapshot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kudu_core.common.schema.nested_columns import NestedColumn
from kudu_core.common.where.predicates import compile_where
from kudu_core.table.read.plan import ScanPlan
from kudu_core.table.read.sent.sent_columns import (
    columns_of_today,
    expression_bytes,
    expression_from,
    seen_of,
    told_seen,
)

if TYPE_CHECKING:
    from kudu_core.common.schema.schema import Schema


@dataclass(frozen=True, slots=True, kw_only=True)
class SentScan:
    """A ``ScanPlan`` as it travels.  Columns keep the names that they had when it was made."""

    columns: tuple[str, ...]
    column_ids: tuple[int, ...]
    where: bytes | None
    """The predicate in pyarrow's own serialised form."""
    where_columns: tuple[tuple[str, int], ...]
    where_nested: tuple[NestedColumn, ...]
    lower: bytes | None
    upper: bytes | None
    implied: tuple[bool, bool]
    ordered: bool
    limit: int | None
    batch_rows: int
    tablet_ids: frozenset[int] | None
    dictionary: frozenset[int]
    seen: tuple[int | NestedColumn, ...] | None
    """As of a ``ScanToken``."""
    stored: bool

    @staticmethod
    def of(plan: ScanPlan) -> SentScan:
        tested = () if plan.filter is None else sorted(plan.filter.columns)
        return SentScan(
            columns=tuple(column.name for column in plan.columns),
            column_ids=tuple(column.id for column in plan.columns),
            where=None if plan.filter is None else expression_bytes(plan.filter.expression),
            where_columns=tuple((name, plan.schema.by_name[name].id) for name in tested),
            where_nested=() if plan.filter is None else plan.filter.nested,
            lower=plan.lower, upper=plan.upper, implied=plan.implied, ordered=plan.ordered,
            limit=plan.limit, batch_rows=plan.batch_rows, tablet_ids=plan.tablet_ids,
            dictionary=plan.dictionary, seen=told_seen(plan.seen), stored=plan.stored,
        )  # fmt: skip

    def planned(self, schema: Schema) -> ScanPlan:
        """The plan, of the table's schema of now; ``SchemaMismatch`` where a column was dropped."""
        needed, columns = columns_of_today(schema, self, of="scan")
        where = None if self.where is None else compile_where(expression_from(self.where), needed)
        return ScanPlan(
            schema=needed, columns=columns, filter=where, lower=self.lower, upper=self.upper,
            implied=self.implied, ordered=self.ordered, limit=self.limit, batch_rows=self.batch_rows,
            tablet_ids=self.tablet_ids, dictionary=self.dictionary, seen=seen_of(columns, self.seen),
            stored=self.stored,
        )  # fmt: skip


__all__ = ["SentScan"]

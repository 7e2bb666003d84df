"""What a scan would read, told level by level: tablets, rowsets, pages, rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kudu_core.common.format.html_table import html_table
from kudu_core.common.run.clock import time_of
from kudu_core.table.read.plan import ScanPlan, planned_tablets

if TYPE_CHECKING:
    from kudu_core.rowset.scan.scan_counts import ScanCounts
    from kudu_core.table.opened.engine import Engine


@dataclass(slots=True)
class Explained:
    """What a scan would read and what it skips, level by level.

    >>> stock.scan(where=pc.field("id") == 1).explain().rowsets
    1
    """

    snapshot: int
    tablets: int
    tablets_pruned: int
    rowsets: int
    rowsets_pruned: int
    pages: int
    pages_pruned: int
    rows: int
    """In the rowsets that are read."""
    rows_by_keys: int
    """What bounds and a search in the key columns leave of them."""
    rows_wanted: int
    """What zone maps leave of these."""
    columns: list[str]
    predicate: str
    pruning_terms: list[str] = field(default_factory=list)
    indexes: dict[str, int] = field(default_factory=dict)
    """By name: in how many rowsets an index finds the rows."""

    def __str__(self) -> str:
        lines = [f"  {what:9} {told}" for what, told in self._lines()]
        return "\n".join([f"scan at {self.snapshot}", *lines])

    def _repr_html_(self) -> str:
        return html_table(f"scan at {self.snapshot} ({time_of(self.snapshot)})", (), self._lines())

    def _lines(self) -> tuple[tuple[str, str], ...]:
        return (
            ("columns", ", ".join(self.columns) or "(none)"),
            ("predicate", self.predicate),
            ("pruned by", "; ".join(self.pruning_terms) or "(nothing)"),
            ("by index", ", ".join(f"{n} ({f} rowsets)" for n, f in self.indexes.items()) or "(none)"),
            ("tablets", f"{self.tablets - self.tablets_pruned} of {self.tablets} read"),
            ("rowsets", f"{self.rowsets - self.rowsets_pruned} of {self.rowsets} read"),
            ("pages", f"{self.pages - self.pages_pruned} of {self.pages} read (per column)"),
            ("rows", f"{self.rows_wanted} of {self.rows} looked at; keys leave {self.rows_by_keys}"),
        )


def explained(engine: Engine, plan: ScanPlan, snapshot: int, counts: ScanCounts) -> Explained:
    """What ``counts`` says of a plan.  ``engine``: the state in which they were counted, or a newer one, of
    whose tablets at the snapshot the same is true."""
    there = sum(tablet.is_there(snapshot) for tablet in engine.tablets)
    where = plan.filter
    return Explained(
        snapshot=snapshot,
        tablets=there,
        tablets_pruned=there - len(planned_tablets(engine, plan, snapshot)),
        rowsets=counts.rowsets,
        rowsets_pruned=counts.rowsets_pruned,
        pages=counts.pages,
        pages_pruned=counts.pages_pruned,
        rows=counts.rows,
        rows_by_keys=counts.rows_by_keys,
        rows_wanted=counts.rows_wanted,
        columns=[column.name for column in plan.columns],
        predicate="(none)" if where is None else str(where.expression),
        pruning_terms=[] if where is None else [str(term) for term in where.terms],
        indexes=dict(sorted(counts.indexes.items())),
    )


__all__ = ["Explained", "explained"]

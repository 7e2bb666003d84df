"""What a scan is asked for, and what that comes to for one schema: before anything is read.

request -> predicate taken apart -> bounds of the key -> tablets that may hold an answer
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kudu_core.common.rows.keys import encode_prefix
from kudu_core.common.rows.shown import Seen, Shown, picked
from kudu_core.common.schema.schema import Schema, StoredColumn
from kudu_core.common.types.types import TYPE_BINARY
from kudu_core.common.where import keybounds
from kudu_core.common.where.keybounds import Bounds
from kudu_core.common.where.predicates import Filter, compile_where
from kudu_core.errors import InvalidArgument, SchemaMismatch
from kudu_core.rowset.scan.scan import FIRST_ROWS, ScanSpec
from kudu_core.sql.where_text import without_text
from kudu_core.table.read.expiry.expired import without_expired
from kudu_core.table.read.scan_columns import ScanColumns

if TYPE_CHECKING:
    from kudu_core.rowset.scan.by_index import ColumnsIndex
    from kudu_core.table.opened.engine import Engine
    from kudu_core.table.opened.kept_plans import KeptPlans
    from kudu_core.tablet.store.tablet import Tablet

BATCH_ROWS = 65_536
"""Rows of a batch, where nobody says how many."""
LARGEST_BATCH_ROWS = 1 << 24
UNIT_ROWS = 1 << 18
"""Rows that a thread reads at once, where batches are not asked to be small."""
_KEPT_COLUMNS = 100
"""Of a plan that is kept, where they are named: names of more take as long to compare as to look up."""
_TESTED_ROWS = 1 << 10
"""Rows that a scan with a limit tests at first."""
_EARLY_ROWS = 1 << 12
"""Rows that a scan reads at first whose reader may stop before the end."""


@dataclass(frozen=True, slots=True)
class ScanRequest:
    """What a scan is asked for, as ``Table.scan`` has it from its caller; not checked yet.

    It may be planned more than once: what its caller gave as an iterator is read here, and kept.
    """

    columns: Any = None
    where: Any = None
    key_range: tuple[Any, Any] | None = None
    order: str = "any"
    limit: int | None = None
    batch_rows: int = BATCH_ROWS
    dictionary: Sequence[str] = ()
    stored: bool = False
    """Rows as they are stored, not as their user declared them."""
    expired: bool = False
    """Rows that have outlived the table's ``ttl`` too: of reads that copy or check a table, not of users'."""

    def __post_init__(self) -> None:
        if self.columns is not None:
            object.__setattr__(self, "columns", kept(self.columns))
        if self.where is not None:
            object.__setattr__(self, "where", kept_filters(self.where))
        if self.dictionary:
            object.__setattr__(self, "dictionary", kept(self.dictionary))

    def planned(
        self, schema: Schema, plans: KeptPlans[ScanPlan] | None = None, *, now_us: int | None = None
    ) -> ScanPlan:
        """What it comes to; ``InvalidArgument`` or ``SchemaMismatch`` names what does not fit.

        ``plans``: where those of the schema are kept.  ``now_us``: as of ``expiry_clock``.
        """
        if schema.ttl is not None and not self.expired:
            where = compile_where(without_text(self.where, schema), schema)
            return self._planned(schema, without_expired(where, schema, now_us))
        if plans is None:
            return self._planned(schema, compile_where(without_text(self.where, schema), schema))
        predicate = None if self.where is None else plans.predicate(self.where)
        compiled = None if predicate is None else predicate.filter
        asked = self._asked()
        if asked is None or (predicate is not None and self.key_range is not None):
            return self._planned(schema, compiled)
        those = plans if predicate is None else predicate
        plan = those.get(asked)
        if plan is None:
            plan = replace(self, key_range=None)._planned(schema, compiled)
            those.put(asked, plan)
        if self.key_range is None:
            return plan
        return plan.between(*_key_range(schema, self.key_range))

    def _asked(self) -> tuple[Any, ...] | None:
        """What determines the plan but bounds and predicate; None where it cannot be told from others."""
        columns = self.columns
        if columns is not None:
            if type(columns) not in (list, tuple) or len(columns) > _KEPT_COLUMNS:
                return None
            columns = tuple(columns)
        if self.dictionary or self.stored:
            return None
        asked = columns, self.order, self.limit, type(self.limit), self.batch_rows, type(self.batch_rows)
        try:
            hash(asked)
        except TypeError:
            return None
        return asked

    def _planned(self, schema: Schema, compiled: Filter | None) -> ScanPlan:
        if self.order not in ("any", "key"):
            raise InvalidArgument(f'order is "any" or "key", not {self.order!r}')
        check_limit(self.limit)
        within = _key_range(schema, self.key_range)
        known = _known_bounds(schema, compiled)
        lower, upper = within if compiled is None else keybounds.intersect(within, known)
        columns, seen = picked(schema, self.columns, stored=self.stored)
        return ScanPlan(
            schema=schema,
            columns=columns,
            seen=seen,
            filter=compiled,
            lower=lower,
            upper=upper,
            implied=(lower == known[0], upper == known[1]),
            ordered=self.order == "key",
            limit=self.limit,
            batch_rows=check_batch_rows(self.batch_rows),
            dictionary=_coded(seen, self.dictionary, self.stored),
            stored=self.stored,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanPlan:
    """What a scan is asked for, checked against the schema."""

    schema: Schema
    columns: tuple[StoredColumn, ...]
    """What is read, as it is stored."""
    seen: Sequence[Seen] | None = None
    """What users see of it; None: the same."""
    filter: Filter | None = None
    lower: bytes | None = None
    """First encoded key, or None for the first there is."""
    upper: bytes | None = None
    """Encoded key to stop before, or None."""
    implied: tuple[bool, bool] = (False, False)
    """Which of the two say no more than the predicate."""
    ordered: bool = False
    limit: int | None = None
    batch_rows: int = BATCH_ROWS
    tablet_ids: frozenset[int] | None = None
    """None: all that pruning leaves."""
    dictionary: frozenset[int] = frozenset()
    """Columns that come as Arrow dictionaries."""
    stored: bool = False
    """As of the request."""
    may_stop: bool = False
    """Whether its reader may stop before the end, without a limit: its first units of work are small then."""
    made: ScanColumns = field(default=None, compare=False)  # type: ignore[assignment]
    """What is made of the columns when it is needed; plans of the same columns may share it."""

    def __post_init__(self) -> None:
        if self.made is None:
            object.__setattr__(self, "made", ScanColumns(self.columns, self.dictionary, self.seen))

    @staticmethod
    def of_keys(
        schema: Schema,
        columns: tuple[StoredColumn, ...],
        where: Filter | None,
        bounds: Bounds,
        batch_rows: int,
        *,
        seen: Sequence[Seen] | None = None,
        stored: bool = False,
    ) -> ScanPlan:
        """Of the keys between bounds that a plan before this one has made of ``where``."""
        lower, upper = bounds
        known = _known_bounds(schema, where)
        implied = lower == known[0], upper == known[1]
        return ScanPlan(
            schema=schema, columns=columns, filter=where, lower=lower, upper=upper, implied=implied,
            batch_rows=batch_rows, dictionary=_coded(seen or columns, (), stored), seen=seen, stored=stored,
        )  # fmt: skip

    def between(self, lower: bytes | None, upper: bytes | None) -> ScanPlan:
        """The same between bounds, of a plan that has none and no predicate."""
        return ScanPlan(
            schema=self.schema, columns=self.columns, seen=self.seen, lower=lower, upper=upper,
            implied=(lower is None, upper is None), ordered=self.ordered, limit=self.limit,
            batch_rows=self.batch_rows, dictionary=self.dictionary, stored=self.stored, made=self.made,
        )  # fmt: skip

    def arrow_schema(self) -> pa.Schema:
        """Of the batches, as they are read."""
        return self.made.arrow

    @property
    def shown(self) -> Shown | None:
        """How users see the batches, where it is otherwise than they are read."""
        return None if self.stored or self.made.shown.is_plain else self.made.shown

    def told(self) -> list[tuple[str, str]]:
        """What is asked for, for people: only what was asked for."""
        show = self.schema.key_codec.show
        lines = [("columns", ", ".join(column.name for column in self.seen or self.columns) or "(none)")]
        if self.filter is not None:
            lines.append(("where", str(self.filter.expression)))
        if self.lower is not None or self.upper is not None:
            lines.append(("keys", f"[{show(self.lower)}, {show(self.upper)})"))
        if self.ordered:
            lines.append(("order", "key"))
        if self.limit is not None:
            lines.append(("limit", str(self.limit)))
        return lines

    def needed(self) -> list[StoredColumn]:
        """The projected columns and those of the predicate; some may be in it twice."""
        tested = () if self.filter is None else self.filter.columns
        return [*self.columns, *(self.schema.by_name[name] for name in tested)]

    def spec(self, indexes: tuple[ColumnsIndex, ...] = ()) -> ScanSpec:
        """What each rowset is asked for.  ``indexes``: the table's."""
        return ScanSpec(
            self.schema,
            self.columns,
            self.filter,
            self.lower,
            self.upper,
            self.ordered,
            self._unit_rows(),
            self._first_rows(),
            None if self.ordered else self.arrow_schema(),
            self.dictionary,
            self.implied,
            indexes=indexes,
        )

    def spec_of(
        self, columns: tuple[StoredColumn, ...], indexes: tuple[ColumnsIndex, ...] = ()
    ) -> ScanSpec:
        """For an answer without rows: what is asked of these columns, in no order, as buffers."""
        return ScanSpec(
            self.schema, columns, self.filter, self.lower, self.upper, False, UNIT_ROWS,
            implied=self.implied, indexes=indexes,
        )  # fmt: skip

    def _unit_rows(self) -> int:
        """Rows of one piece of work: some batches, whose threads then meet less often."""
        if self.limit is not None or self.ordered or self.batch_rows < BATCH_ROWS:
            return self.batch_rows
        return max(self.batch_rows, UNIT_ROWS)

    def first_unit_rows(self, spec: ScanSpec) -> int | None:
        """Rows of the first unit of work of each rowset; each one after it has twice as many."""
        return _EARLY_ROWS if self.may_stop and spec.first_rows is None else spec.first_rows

    def _first_rows(self) -> int | None:
        """Of the first piece of work, where few rows may be wanted."""
        if self.limit is None:
            return None
        return max(self.limit, FIRST_ROWS) if self.filter is None else _TESTED_ROWS


# ---- which tablets ----


def prune_tablets(
    engine: Engine, where: Filter | None, lower: bytes | None, upper: bytes | None, snapshot: int
) -> Sequence[Tablet]:
    """Tablets whose partition may hold an answer at a snapshot."""
    tablets, terms = engine.tablets, () if where is None else where.terms
    if not (terms or tablets.partitions.range_ids or (lower is not None and upper is not None)):
        return tablets.there(snapshot)  # hashes say nothing of keys that are not given
    ordinals = set(tablets.partitions.prune(terms, lower, upper, dropped=True))
    if len(ordinals) == tablets.partitions.every_count:
        return tablets.there(snapshot)
    return [t for t in tablets.there(snapshot) if t.partition.ordinal in ordinals]


def planned_tablets(engine: Engine, plan: ScanPlan, snapshot: int) -> Sequence[Tablet]:
    """Tablets that a plan reads at a snapshot."""
    keep = prune_tablets(engine, plan.filter, plan.lower, plan.upper, snapshot)
    if plan.tablet_ids is not None:
        keep = [t for t in keep if t.id in plan.tablet_ids]
    return keep


def check_columns(engine: Engine, schema: Schema, columns: Iterable[StoredColumn]) -> None:
    """A reader that was refreshed past a drop cannot tell whether the column's data is still there (protocol
    R4); the writing process keeps it while something is alive that asks for it."""
    if engine.writer or engine.schema.version == schema.version:
        return
    for column in columns:
        if column.id not in engine.schema.by_id:
            raise SchemaMismatch(f"column {column.name!r} was dropped; make the scan again")


# ---- arguments ----


def kept(given: Any) -> Any:
    """``given``, or what it has where it is an iterator: so that it can be read again."""
    return list(given) if isinstance(given, Iterator) else given


def kept_filters(where: Any) -> Any:
    """The same of a predicate, whose filter lists may hold iterators of values."""
    if not isinstance(where, list | tuple):
        return where
    if len(where) == 3 and isinstance(where[0], str):
        copied = [where[0], where[1], kept(where[2])]
    else:
        copied = [kept_filters(part) for part in where]
    return tuple(copied) if isinstance(where, tuple) else copied


def check_limit(limit: object) -> None:
    """``InvalidArgument`` unless it is a number of rows, or None."""
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 0):
        raise InvalidArgument(f"limit is a whole number from 0 or None, not {limit!r}")


def check_batch_rows(batch_rows: int) -> int:
    """``InvalidArgument`` unless a batch may have so many rows."""
    whole = isinstance(batch_rows, int) and not isinstance(batch_rows, bool)
    if not whole or not 1 <= batch_rows <= LARGEST_BATCH_ROWS:
        most = f"{LARGEST_BATCH_ROWS:,}"
        raise InvalidArgument(f"batch_rows is a whole number from 1 to {most}, not {batch_rows!r}")
    return batch_rows


def _coded(seen: Sequence[Seen], names: Sequence[str], stored: bool) -> frozenset[int]:
    """Ids of the columns that are to come as dictionaries: those of these names, and what was declared so."""
    if isinstance(names, str):
        raise InvalidArgument(f"dictionary is a list of names: [{names!r}]")
    columns = [column for column in seen if isinstance(column, StoredColumn)]
    by_name = {column.name: column for column in columns}
    for name in names:
        if name not in by_name:
            raise InvalidArgument(f"dictionary: {name!r} is not a flat column of the scan")
        if by_name[name].type.kind != TYPE_BINARY:
            raise InvalidArgument(f"dictionary: {name!r} is {by_name[name].type}, not a string or binary")
    declared = () if stored else (c for c in columns if c.type.is_dictionary and c.type.kind == TYPE_BINARY)
    return frozenset([*(by_name[name].id for name in names), *(column.id for column in declared)])


def _known_bounds(schema: Schema, where: Filter | None) -> Bounds:
    """What a predicate says of the key."""
    return (None, None) if where is None else keybounds.key_bounds(schema, where.terms)


def _key_range(schema: Schema, key_range: tuple[Any, Any] | None) -> Bounds:
    if key_range is None:
        return None, None
    if not isinstance(key_range, tuple | list) or len(key_range) != 2:
        raise InvalidArgument("key_range is (lower, upper), each a key, a prefix of one, or None")
    lower, upper = key_range
    return _bound(schema, lower), _bound(schema, upper)


def _bound(schema: Schema, key: Any) -> bytes | None:
    """A whole key encodes as its prefix does, and the row path does that faster."""
    if key is None:
        return None
    encoded = schema.row_codec.keys.encode(key)
    return encode_prefix(schema, key) if encoded is None else encoded


ALL_ROWS = ScanRequest(columns=(), expired=True)
"""All rows that are stored, to be counted."""


__all__ = [
    "ALL_ROWS",
    "BATCH_ROWS",
    "UNIT_ROWS",
    "ScanPlan",
    "ScanRequest",
    "check_batch_rows",
    "check_columns",
    "check_limit",
    "kept",
    "kept_filters",
    "planned_tablets",
    "prune_tablets",
]

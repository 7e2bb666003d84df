"""Shares of a table's changes that travel to other processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from kudu_core.common.schema.nested_columns import NestedColumn
from kudu_core.common.where.predicates import compile_where
from kudu_core.errors import ChangesLost, InvalidArgument
from kudu_core.table.changes.changes import Changes, open_changes
from kudu_core.table.changes.changes_plan import ChangesPlan, ChangesRequest, check_window, window, windows
from kudu_core.table.changes.counts import told
from kudu_core.table.changes.lineage import sharing_keys
from kudu_core.table.read.sent.sent_columns import (
    columns_of_today,
    expression_bytes,
    expression_from,
    seen_of,
    told_seen,
)
from kudu_core.table.read.tokens import check_target
from kudu_core.tablet.store.tablet import Tablet

if TYPE_CHECKING:
    from kudu_core.table.opened.engine import Engine
    from kudu_core.table.opened.handle import Handle


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeToken:
    """The changes of some tablets in some window, in plain values.  Picklable.

    Both ends are fixed when the token is made, so every reader, and every retry, sees the same
    changes, as long as history reaches back to ``since``.

    >>> [stock.change_token(token).to_table().num_rows for token in stock.change_tokens(None, net=True)]
    [3]
    """

    table_path: str
    table_uuid: str
    tablet_ids: tuple[int, ...]
    since: int
    timestamp: int
    """The last time that is in."""
    first: bool
    """``net`` alone: what is there at ``timestamp`` is told as inserts, whatever was there at ``since``."""
    images: str
    net: bool
    schema_version: int
    columns: tuple[str, ...]
    column_ids: tuple[int, ...]
    where: bytes | None
    where_columns: tuple[tuple[str, int], ...]
    rows: int
    """At most about how many changes it has, for planning."""
    storage_options: Mapping[str, Any] | None = field(default=None, repr=False)
    """As of a ``ScanToken``."""
    stored: bool = False
    """As of a ``ScanToken``."""
    seen: tuple[int | NestedColumn, ...] | None = None
    """As of a ``ScanToken``."""
    where_nested: tuple[NestedColumn, ...] = ()
    """As of a ``ScanToken``."""


def change_tokens(
    handle: Handle, request: ChangesRequest, since: Any, until: Any, target_rows: int
) -> list[ChangeToken]:
    """The walk behind ``Table.change_tokens``.

    A share is of one partition, with all tablets that it has had, since an overwrite is one change for each
    key of the old rows and the new ones; all changes of a large one are cut by time as well, net ones are
    not.  Partitions that one key may have been in belong together where changes are net.
    """
    if since is None and not request.net:
        raise InvalidArgument(
            "since=None is for net changes; read a state by scan_tokens(at=S), then the changes since S"
        )
    while True:
        whole = open_changes(handle, request, since, until)  # a writer keeps its window readable
        try:
            return _cut(handle, whole, target_rows, first=since is None)
        except ChangesLost:
            if since is not None:
                raise
            # Where history begins has moved, as the reader was refreshed meanwhile.


def changes_of(handle: Handle, token: ChangeToken) -> Changes:
    """The walk behind ``Table.change_token``."""
    check_change_token(handle.opened(), token)
    handle.refresh_to(token.timestamp, token.schema_version)

    def made(engine: Engine) -> Changes:
        plan = plan_of_changes(engine, token)
        first, last = window(engine, token.since, token.timestamp)
        return Changes(handle, plan, first, last, first=token.first)

    return handle.steady(made)


def _cut(handle: Handle, changes: Changes, target_rows: int, *, first: bool) -> list[ChangeToken]:
    """Shares of about ``target_rows`` changes.  ``first``: the first state too is told."""
    engine, plan, since, until = handle.opened(), changes.plan, changes.since, changes.until
    check_target(target_rows)
    check_window(engine, since)
    tokens: list[ChangeToken] = []
    switches = engine.tablets.switches
    for group in _groups(engine, plan, since, until):
        ids = frozenset(tablet.id for tablet in group)
        most = sum(part.most for tablet in group for part in told(tablet, since, until, switches))
        if plan.net and first:
            most = sum(_rows(tablet) for tablet in group)
        if not most:
            continue
        whole = _token(engine, replace(plan, tablet_ids=ids), since, until, most, first=first)
        if plan.net or most <= target_rows * 3 // 2:
            tokens.append(whole)
            continue
        mine = Changes(handle, replace(plan, tablet_ids=ids), since, until, first=False)
        times, counts = mine.counts()
        for lower, upper in windows(times, counts, since, until, target_rows):
            rows = int(counts[(times > lower) & (times <= upper)].sum())
            if rows:
                tokens.append(replace(whole, since=lower, timestamp=upper, rows=rows))
    return tokens


def _groups(engine: Engine, plan: ChangesPlan, since: int, until: int) -> list[list[Tablet]]:
    """Tablets that are read together, of those in which a row of the predicate may be."""
    terms = () if plan.filter is None else plan.filter.terms
    ordinals = set(engine.partitions.prune(terms, None, None, dropped=True))
    there = [
        tablet
        for tablet in engine.tablets
        if tablet.partition.ordinal in ordinals
        and tablet.created_ts <= until
        and (tablet.dropped_ts is None or tablet.dropped_ts > since)
    ]
    if plan.net:
        return sharing_keys(there, since, until, engine.tablets.switches)
    groups: dict[int, list[Tablet]] = {}
    for tablet in there:
        groups.setdefault(tablet.partition.ordinal, []).append(tablet)
    return list(groups.values())


def _rows(tablet: Tablet) -> int:
    return sum(len(memory) for memory in (tablet.view.active, *tablet.view.frozen)) + sum(
        rowset.meta.rows for rowset in tablet.view.rowsets
    )


def _token(
    engine: Engine, plan: ChangesPlan, since: int, until: int, rows: int, *, first: bool
) -> ChangeToken:
    assert plan.tablet_ids is not None
    tested = () if plan.filter is None else sorted(plan.filter.columns)
    return ChangeToken(
        table_path=engine.path,
        table_uuid=engine.uuid.hex(),
        tablet_ids=tuple(sorted(plan.tablet_ids)),
        since=since,
        timestamp=until,
        first=first,
        images="both" if plan.both else "after",
        net=plan.net,
        schema_version=plan.schema.version,
        columns=tuple(c.name for c in plan.columns),
        column_ids=tuple(c.id for c in plan.columns),
        where=None if plan.filter is None else expression_bytes(plan.filter.expression),
        where_columns=tuple((name, plan.schema.by_name[name].id) for name in tested),
        where_nested=() if plan.filter is None else plan.filter.nested,
        rows=rows,
        stored=plan.stored,
        seen=told_seen(plan.seen),
        storage_options=engine.table_file.storage_options,
    )


def check_change_token(engine: Engine, token: object) -> None:
    """``InvalidArgument`` unless it is a token of this table."""
    if not isinstance(token, ChangeToken):
        raise InvalidArgument(f"change_token takes what change_tokens made, not {token!r}")
    if token.table_uuid != engine.uuid.hex():
        raise InvalidArgument(f"the token belongs to another table than the one at {engine.path}")


def plan_of_changes(engine: Engine, token: ChangeToken) -> ChangesPlan:
    """What a token asks for, of a table that is not behind it.  Columns keep the names that they had when it
    was made, whatever they are called by now."""
    check_change_token(engine, token)
    there = {tablet.id for tablet in engine.tablets}
    for tablet_id in token.tablet_ids:
        if tablet_id not in there:
            raise ChangesLost(f"tablet {tablet_id} of {engine.path} was dropped, and its history is gone")
    planned, columns = columns_of_today(engine.schema, token, every=True)
    where = None if token.where is None else expression_from(token.where)
    return ChangesPlan(
        schema=planned,
        columns=columns,
        filter=compile_where(where, planned),
        both=token.images == "both",
        net=token.net,
        tablet_ids=frozenset(token.tablet_ids),
        seen=seen_of(columns, token.seen),
        stored=token.stored,
    )


__all__ = ["ChangeToken", "change_tokens", "changes_of"]

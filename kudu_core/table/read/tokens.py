"""Shares of a scan that travel to other processes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from kudu_core.common.schema.nested_columns import NestedColumn
from kudu_core.common.where.predicates import compile_where
from kudu_core.errors import InvalidArgument, SnapshotTooOld
from kudu_core.rowset.scan.row_ranges import Pruning
from kudu_core.table.read.expiry.expired import expiry_clock
from kudu_core.table.read.moment import check_readable, snapshot_timestamp
from kudu_core.table.read.plan import ScanPlan, ScanRequest, prune_tablets
from kudu_core.table.read.scan import Scan
from kudu_core.table.read.sent.sent_columns import (
    columns_of_today,
    expression_bytes,
    expression_from,
    seen_of,
    told_seen,
)
from kudu_core.table.read.shares import shares

if TYPE_CHECKING:
    from kudu_core.table.opened.engine import Engine
    from kudu_core.table.opened.handle import Handle

DEFAULT_TARGET_ROWS = 2_000_000
"""Rows of a share, about, where nobody says how many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanToken:
    """One share of a scan, in plain values.  Picklable.

    The snapshot is fixed when the token is made, so every reader, and every retry, sees the same
    rows.  It names no files: whoever reads it finds those of the tablet as they are then.

    >>> for token in stock.scan_tokens(["name"]):
    ...     there = kc.open_table(token.table_path, storage_options=token.storage_options)
    ...     there.scan_token(token).to_table().num_rows
    3
    """

    table_path: str
    table_uuid: str
    tablet_id: int
    timestamp: int
    schema_version: int
    columns: tuple[str, ...]
    column_ids: tuple[int, ...]
    where: bytes | None
    """The predicate in pyarrow's own serialised form."""
    where_columns: tuple[tuple[str, int], ...]
    """Names and ids of the columns that it reads."""
    lower: bytes | None
    """First encoded key, or None."""
    upper: bytes | None
    """Encoded key to stop before, or None."""
    batch_rows: int
    rows: int
    """About how many rows it reads, for planning."""
    storage_options: Mapping[str, Any] | None = field(default=None, repr=False)
    """Of a table in an object store: what it was opened with here, for whoever opens it there."""
    stored: bool = False
    """Rows as they are stored, not as their user declared them: for backups."""
    seen: tuple[int | NestedColumn, ...] | None = None
    """What users see of the columns, by their ids where it is one of them; None: these."""
    where_nested: tuple[NestedColumn, ...] = ()
    """The nested columns that the predicate reads, each stored by some of ``where_columns``."""


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A place between two rows of a table's snapshot: tablets by their ids, keys in order."""

    tablet_id: int
    key: bytes = b""
    """The first encoded key after it; empty: the tablet's first."""


def scan_tokens(handle: Handle, request: ScanRequest, at: Any, target_rows: int) -> list[ScanToken]:
    """The walk behind ``Table.scan_tokens``."""

    def planned() -> list[ScanToken]:
        engine = handle.opened()
        plan = request.planned(engine.schema, now_us=expiry_clock(engine, at))
        snapshot = snapshot_timestamp(engine, at)
        return tokens_between(handle, plan, snapshot, target_rows)

    return handle.of_now(at, planned)


def scan_of(handle: Handle, token: ScanToken) -> Scan:
    """The walk behind ``Table.scan_token``."""
    handle.opened()
    check_token(token)
    handle.refresh_to(token.timestamp, token.schema_version)

    def made(engine: Engine) -> Scan:
        snapshot = snapshot_timestamp(engine, token.timestamp)
        return Scan(handle, plan_of(engine, token), snapshot)

    return handle.steady(made)


def tokens_between(
    handle: Handle,
    plan: ScanPlan,
    snapshot: int,
    target_rows: int,
    start: Position | None = None,
    end: Position | None = None,
) -> list[ScanToken]:
    """``make_tokens``, where the writer may replace files meanwhile."""
    return handle.retrying(lambda engine: list(make_tokens(engine, plan, snapshot, target_rows, start, end)))


def make_tokens(
    engine: Engine,
    plan: ScanPlan,
    snapshot: int,
    target_rows: int,
    start: Position | None = None,
    end: Position | None = None,
) -> Iterator[ScanToken]:
    """Cut a scan into shares of about ``target_rows`` rows, never across tablets, in order of position.

    Read are key indexes and zone maps, no pages.  There is no share in which the zone maps leave nothing.
    ``start`` and ``end`` leave out what lies before and from there on.
    """
    check_target(target_rows)
    if engine.writer:
        # Others read what is durable.  The same rows: nothing lies, or will, between W and the snapshot.
        engine.log.wait_committed(snapshot)
        snapshot = min(snapshot, engine.log.committed_ts)
    check_readable(engine, snapshot)  # else its rows are not among those that zone maps speak of
    with engine.pins.pin(snapshot):
        yield from _tokens(engine, plan, snapshot, target_rows, start, end)


def _tokens(
    engine: Engine,
    plan: ScanPlan,
    snapshot: int,
    target_rows: int,
    start: Position | None,
    end: Position | None,
) -> Iterator[ScanToken]:
    """The shares of a snapshot whose history is there."""
    where = None if plan.filter is None else expression_bytes(plan.filter.expression)
    tested = () if plan.filter is None else sorted(plan.filter.columns)
    for tablet in prune_tablets(engine, plan.filter, plan.lower, plan.upper, snapshot):
        first, last = plan.lower, plan.upper
        if start is not None and tablet.id <= start.tablet_id:
            if tablet.id < start.tablet_id:
                continue
            first = max(first or b"", start.key)
        if end is not None and tablet.id >= end.tablet_id:
            if tablet.id > end.tablet_id or not end.key:
                continue
            last = end.key if last is None else min(last, end.key)
        if last is not None and (first or b"") >= last:
            continue
        pruning = Pruning.of(plan.schema, plan.filter, first, last)
        for lower, upper, rows in shares(tablet, pruning, snapshot, target_rows):
            yield ScanToken(
                table_path=engine.path,
                table_uuid=engine.uuid.hex(),
                tablet_id=tablet.id,
                timestamp=snapshot,
                schema_version=plan.schema.version,
                columns=tuple(c.name for c in plan.columns),
                column_ids=tuple(c.id for c in plan.columns),
                where=where,
                where_columns=tuple((name, plan.schema.by_name[name].id) for name in tested),
                where_nested=() if plan.filter is None else plan.filter.nested,
                lower=lower,
                upper=upper,
                batch_rows=plan.batch_rows,
                rows=rows,
                stored=plan.stored,
                seen=told_seen(plan.seen),
                storage_options=engine.table_file.storage_options,
            )


def position_after(
    engine: Engine, plan: ScanPlan, snapshot: int, start: Position | None, max_rows: int
) -> Position | None:
    """Where about ``max_rows`` rows from ``start`` on end; None: at the end of the scan.

    Never at ``start``: where rows cannot be told apart without reading them there are more.
    """
    rows = 0
    for token in make_tokens(engine, plan, snapshot, max_rows, start):
        if rows and rows + token.rows > max_rows:
            return Position(token.tablet_id, token.lower or b"")
        rows += token.rows
    return None


def check_target(target_rows: object) -> None:
    if isinstance(target_rows, bool) or not isinstance(target_rows, int) or target_rows < 1:
        raise InvalidArgument(f"target_rows is a whole number from 1, not {target_rows!r}")


def check_token(token: object) -> None:
    if not isinstance(token, ScanToken):
        raise InvalidArgument(f"scan_token takes what scan_tokens made, not {token!r}")


def plan_of(engine: Engine, token: ScanToken) -> ScanPlan:
    """What a token asks for, checked against the table.  Columns keep the names that they had when it was
    made, whatever they are called by now."""
    if token.table_uuid != engine.uuid.hex():
        raise InvalidArgument(f"the token belongs to another table than the one at {engine.path}")
    if not any(t.id == token.tablet_id for t in engine.tablets):
        if token.tablet_id < engine.table_file.state.next_tablet:
            raise SnapshotTooOld(
                f"the range of the token's tablet {token.tablet_id} was dropped, and its history is gone"
            )
        raise InvalidArgument(f"the token's tablet {token.tablet_id} is not in {engine.path}")
    planned, chosen = columns_of_today(engine.schema, token)
    where = None if token.where is None else expression_from(token.where)
    bounds = token.lower, token.upper
    filter_ = compile_where(where, planned)
    seen = seen_of(chosen, token.seen)
    plan = ScanPlan.of_keys(
        planned, chosen, filter_, bounds, token.batch_rows, seen=seen, stored=token.stored
    )
    return replace(plan, tablet_ids=frozenset((token.tablet_id,)))

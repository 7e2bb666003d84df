"""From terms to ranges of encoded keys, and back from ranges to equalities.

Source: Kudu common/scan_spec.cc, key_util.cc (push predicates into bounds, lift bounds into
predicates); with encoded bytes both are shorter than with values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kudu_core._ext.base.status import PageError
from kudu_core.common.schema.schema import Schema
from kudu_core.common.types.keycodec import KeyCodec, prefix_successor, successor
from kudu_core.common.types.types import TYPE_BINARY, ColumnType
from kudu_core.common.where.analysis import Term

Bounds = tuple[bytes | None, bytes | None]
"""Half-open: first encoded key, first beyond; None = open.  ``NOTHING`` and its like are empty."""

_End = tuple[Any, bool]
"""A physical value, and whether it belongs to the interval."""

Ends = tuple[_End | None, _End | None]
"""Of an interval of one column; None = open."""

NOTHING: Bounds = (b"", b"")


def key_bounds(schema: Schema, terms: Iterable[Term]) -> Bounds:
    """Keys that may satisfy all terms: equalities on leading key columns, then one range."""
    return bounds_of(schema.key_codec, schema.key_ids, terms)


def bounds_of(
    codec: KeyCodec,
    column_ids: Sequence[int],
    terms: Iterable[Term],
    more: Mapping[int, Ends] | None = None,
) -> Bounds:
    """As ``key_bounds``, for keys of any columns; ``more`` is known of some of them."""
    by_column: dict[int, list[Term]] = {}
    for term in terms:
        by_column.setdefault(term.column_id, []).append(term)
    equal: list[Any] = []
    for place, column_id in enumerate(column_ids):
        known = None if more is None else more.get(column_id)
        low, high = _interval(by_column.get(column_id, ()), codec.types[place], known)
        if low is not None and high is not None:
            if low[0] > high[0] or (low[0] == high[0] and not (low[1] and high[1])):
                return NOTHING
            if low[0] == high[0]:
                equal.append(low[0])
                continue
        return _encoded(codec, equal, low, high)
    return _encoded(codec, equal, None, None)


def intersect(one: Bounds, other: Bounds) -> Bounds:
    """Keys in both ranges."""
    lowers = [b for b in (one[0], other[0]) if b is not None]
    uppers = [b for b in (one[1], other[1]) if b is not None]
    return max(lowers, default=None), min(uppers, default=None)


def is_empty(bounds: Bounds) -> bool:
    lower, upper = bounds
    return upper is not None and (lower or b"") >= upper


def equal_prefix(codec: KeyCodec, bounds: Bounds) -> list[Any]:
    """Physical values of the leading columns that all keys in the range share."""
    lower, upper = bounds
    if lower is None or upper is None:
        return []
    try:
        cells, ends = codec.split(lower)
    except PageError:
        return []
    for count in range(len(cells), 0, -1):
        head = lower[: ends[count - 1]]
        end = _next_cells(codec, head, count)
        if end is None or upper <= end:
            return cells[:count]
    return []


def lifted(codec: KeyCodec, column_ids: Sequence[int], bounds: Bounds) -> dict[int, Ends]:
    """What bounds of whole keys say of single columns: those that all keys share, and the next one."""
    shared = equal_prefix(codec, bounds)
    found: dict[int, Ends] = {
        column_id: ((cell, True), (cell, True)) for column_id, cell in zip(column_ids, shared, strict=False)
    }
    place = len(shared)
    if place == len(column_ids):
        return found
    low = high = None
    lower, upper = bounds
    if lower is not None:
        cells, _ = codec.split(lower)
        if len(cells) > place:
            low = cells[place], True
    if upper is not None:
        cells, ends = codec.split(upper)
        if len(cells) > place and cells[:place] == shared:
            high = cells[place], ends[place] < len(upper)
    found[column_ids[place]] = low, high
    return found


def _next_cells(codec: KeyCodec, head: bytes, count: int) -> bytes | None:
    """The smallest encoding that whole cells after these ``count`` ones can have; None: there is none."""
    if codec.types[count - 1].kind != TYPE_BINARY:
        return prefix_successor(head)
    if count == len(codec.types):
        return successor(head)
    return head[:-2] + b"\0\1\0\0"  # the cell with a byte 00 more


def projected(codec: KeyCodec, columns: KeyCodec, bounds: Bounds) -> Bounds:
    """Bounds of whole keys as bounds of their first columns, encoded as keys of their own."""
    count = len(columns.types)
    lower, upper = bounds
    low = high = None
    if lower is not None:
        cells, _ = codec.split(lower)
        low = columns.encode_physical(cells[:count]) or None
    if upper is not None:
        cells, ends = codec.split(upper)
        exact = len(cells) <= count and (ends[-1] if ends else 0) == len(upper)
        head = columns.encode_physical(cells[:count])
        if exact:
            high = head
        elif len(cells) >= count:
            high = successor(head)
        else:
            high = prefix_successor(head)
    return low, high


def _interval(terms: Iterable[Term], type_: ColumnType, more: Ends | None = None) -> Ends:
    """What all terms on one column, and ``more``, leave of it, NULLs aside."""
    lows: list[_End] = [] if more is None or more[0] is None else [more[0]]
    highs: list[_End] = [] if more is None or more[1] is None else [more[1]]
    for term in terms:
        if term.op in ("is_null", "not_null"):
            continue
        cells = term.physical()
        if term.op == "in" and not cells:
            # Nothing is in an empty list; any interval that is empty says so.
            edge: Any = b"" if type_.kind == TYPE_BINARY else 0
            return (edge, False), (edge, False)
        if term.op in ("eq", "in", "ge", "gt", "prefix"):
            lows.append((cells[0], term.op != "gt"))
        if term.op in ("eq", "in", "le", "lt"):
            highs.append((cells[-1], term.op != "lt"))
        if term.op == "prefix":
            assert isinstance(cells[0], bytes)
            end = prefix_successor(cells[0])
            if end is not None:
                highs.append((end, False))
    # Of equal ends the exclusive one is the tighter.
    low = max(lows, key=lambda end: (end[0], not end[1]), default=None)
    high = min(highs, key=lambda end: (end[0], end[1]), default=None)
    return low, high


def _encoded(codec: KeyCodec, equal: list[Any], low: _End | None, high: _End | None) -> Bounds:
    """Bounds from equal leading cells, then an interval of the next column (if there is one)."""
    place = len(equal)
    head = codec.encode_physical(equal)

    def beyond(encoded: bytes, column: int) -> bytes | None:
        """The end of all keys that begin with these cells, ``column`` being the last of them."""
        if column == len(codec.types) - 1 and codec.types[column].kind == TYPE_BINARY:
            return successor(encoded)
        return prefix_successor(encoded)

    lower: bytes | None = head or None
    if low is not None:
        lower = codec.encode_physical([*equal, low[0]])
        if not low[1]:
            lower = beyond(lower, place)
            if lower is None:
                return NOTHING
    elif place == len(codec.types):
        lower = head
    if high is not None:
        upper: bytes | None = codec.encode_physical([*equal, high[0]])
        if high[1]:
            assert upper is not None
            upper = beyond(upper, place)
    else:
        upper = beyond(head, place - 1) if place else None
    return lower, upper

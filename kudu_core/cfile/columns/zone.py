"""Zone maps: what is known of a page, or of a whole column, without reading it.

Bounds are raw bytes: the physical little-endian value of a fixed column, the bytes of a string.
``value`` makes Python values of them.  A bound of a long string is cut: the lower one is a prefix,
the upper one a prefix whose last byte was raised, so both still enclose the values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kudu_core.common.types import values
from kudu_core.errors import InvalidArgument

if TYPE_CHECKING:
    from kudu_core.common.types.types import ColumnType

STRING_ZONE_BYTES = 32


@dataclass(frozen=True, slots=True)
class Zone:
    """Bounds and counts of some rows of a column.

    ``minimum`` and ``maximum`` are None when nothing is known: every cell is null or NaN, or (upper
    bound of a long string only) no short bound exists.  NaN lies outside the bounds and is
    counted.  ``*_exact`` says that the bound is itself a value of the rows.
    """

    minimum: bytes | None
    maximum: bytes | None
    null_count: int
    nan_count: int
    rows: int
    minimum_exact: bool = True
    maximum_exact: bool = True

    @property
    def empty(self) -> bool:
        """No cell holds a value that compares: all are null or NaN."""
        return self.null_count + self.nan_count >= self.rows

    def bounds(self, type_: ColumnType) -> tuple[Any, Any]:
        """``(minimum, maximum)`` as Python values, None where unknown; cut strings stay bytes."""
        return (
            None if self.minimum is None else value(type_, self.minimum, self.minimum_exact),
            None if self.maximum is None else value(type_, self.maximum, self.maximum_exact),
        )

    def physical_bounds(self, type_: ColumnType) -> tuple[Any, Any]:
        """``(minimum, maximum)`` as physical values (``common.types.values``), None where unknown."""
        return (
            None if self.minimum is None else values.unpack(type_, self.minimum),
            None if self.maximum is None else values.unpack(type_, self.maximum),
        )

    def to_json(self) -> dict[str, Any]:
        """JSON-safe, exact: bounds as hex of their raw bytes."""
        return {
            "rows": self.rows,
            "null_count": self.null_count,
            "nan_count": self.nan_count,
            "min": None if self.minimum is None else self.minimum.hex(),
            "max": None if self.maximum is None else self.maximum.hex(),
            "min_exact": self.minimum_exact,
            "max_exact": self.maximum_exact,
        }

    @staticmethod
    def from_json(data: dict[str, Any]) -> Zone:
        """Raises ``ValueError``, ``KeyError`` or ``TypeError`` for anything ``to_json`` does not write."""
        low, high = data["min"], data["max"]
        return Zone(
            None if low is None else bytes.fromhex(low),
            None if high is None else bytes.fromhex(high),
            int(data["null_count"]),
            int(data["nan_count"]),
            int(data["rows"]),
            bool(data["min_exact"]),
            bool(data["max_exact"]),
        )


def value(type_: ColumnType, raw: bytes, exact: bool = True) -> Any:
    """The Python value whose physical bytes are ``raw``.

    Dates and times that Python cannot hold come back as None (nothing known).  A string bound that
    was cut (``exact`` false) stays bytes: it may end inside a character.
    """
    if not exact:
        return raw
    try:
        return values.python(type_, values.unpack(type_, raw))
    except InvalidArgument:
        return None


def cut_bounds(low: bytes, high: bytes) -> tuple[bytes, bool, bytes | None, bool]:
    """Shorten string bounds to 32 bytes: ``(low, exact, high or None, exact)``."""
    low_exact = len(low) <= STRING_ZONE_BYTES
    if len(high) <= STRING_ZONE_BYTES:
        return low[:STRING_ZONE_BYTES], low_exact, high, True
    head = high[:STRING_ZONE_BYTES].rstrip(b"\xff")
    if not head:
        return low[:STRING_ZONE_BYTES], low_exact, None, False
    return low[:STRING_ZONE_BYTES], low_exact, head[:-1] + bytes((head[-1] + 1,)), False


def merge(type_: ColumnType, zones: list[Zone]) -> Zone:
    """One zone that covers all of them."""
    low: Zone | None = None
    high: Zone | None = None
    least: Any = None  # as physical values, which compare as the cells do
    most: Any = None
    unbounded = False
    for zone in zones:
        if zone.empty:
            continue
        assert zone.minimum is not None
        found = values.unpack(type_, zone.minimum)
        if low is None or found < least:
            low, least = zone, found
        if zone.maximum is None:
            unbounded = True
            continue
        found = values.unpack(type_, zone.maximum)
        if high is None or found > most:
            high, most = zone, found
    return Zone(
        None if low is None else low.minimum,
        None if high is None or unbounded else high.maximum,
        sum(zone.null_count for zone in zones),
        sum(zone.nan_count for zone in zones),
        sum(zone.rows for zone in zones),
        low is None or low.minimum_exact,
        (high is None or high.maximum_exact) and not unbounded,
    )

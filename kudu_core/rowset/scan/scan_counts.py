"""What a scan counts while it reads."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class ScanCounts:
    """What a scan looked at and what it could skip; ``explain`` tells them."""

    rowsets: int = 0
    rowsets_pruned: int = 0
    pages: int = 0
    pages_pruned: int = 0
    rows: int = 0
    rows_by_keys: int = 0
    """What bounds and key columns alone leave of ``rows``."""
    rows_wanted: int = 0
    """What zone maps leave of these."""
    rows_read: int = 0
    rows_selected: int = 0
    indexes: dict[str, int] = field(default_factory=dict)
    """By name: of how many rowsets an index found the rows."""
    rowsets_begun: int = 0
    """Rowsets of which an ordered scan has read anything."""


__all__ = ["ScanCounts"]

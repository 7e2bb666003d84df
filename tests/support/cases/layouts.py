"""Layouts of tablets for the merge policy: read, and after a merge."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kudu_core.tablet.maintain.merge_policy import RowSetLayout, RowSetStats

MIB = 1 << 20


def average_height(layout: RowSetLayout) -> float:
    """In how many rowsets a key lies, averaged over the data."""
    return float((layout.high - layout.low).sum())


def ycsb(path: Path) -> list[RowSetStats]:
    """The layout in a file of (MB, first key, last key); lines that begin with # are its header."""
    rowsets = []
    for line in path.read_text().splitlines():
        if line and not line.startswith("#"):
            mb, first, last = line.split("\t")
            rowsets.append(RowSetStats(len(rowsets), first.encode(), last.encode(), int(mb) * MIB))
    return rowsets


def merged(rowsets: Sequence[RowSetStats], ids: Sequence[int], target: int) -> list[RowSetStats]:
    """The rowsets after a merge of some: its outputs share their keys and bytes, evenly."""
    chosen = [r for r in rowsets if r.id in set(ids)]
    dead = sum(r.size_bytes * r.droppable_rows // r.rows for r in chosen)
    size = max(1, sum(r.size_bytes for r in chosen) - dead)
    pieces = -(-size // target)
    first, last = min(r.min_key for r in chosen), max(r.max_key for r in chosen)
    width = max(len(first), len(last)) + 2
    low, high = (int.from_bytes(k.ljust(width, b"\0"), "big") for k in (first, last))
    edges = [low + (high - low) * n // pieces for n in range(pieces + 1)]
    next_id = max(r.id for r in rowsets) + 1
    outputs = [
        RowSetStats(
            next_id + n,
            edges[n].to_bytes(width, "big"),
            max(edges[n], edges[n + 1] - (n + 1 < pieces)).to_bytes(width, "big"),
            size // pieces,
        )
        for n in range(pieces)
    ]
    return [*(r for r in rowsets if r.id not in set(ids)), *outputs]

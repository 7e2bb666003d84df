"""What ``_ext.pages.zones`` means: smallest and largest value, how many nulls, how many NaN."""

from __future__ import annotations

import math
from typing import Any


def fixed(cells: list[Any]) -> tuple[Any, Any, int, int]:
    """Of numbers (None is null); NaN is counted and lies outside the bounds."""
    present = [c for c in cells if c is not None]
    numbers = [c for c in present if not (isinstance(c, float) and math.isnan(c))]
    low = min(numbers) if numbers else None
    high = max(numbers) if numbers else None
    return low, high, len(cells) - len(present), len(present) - len(numbers)


def binary(cells: list[bytes | None]) -> tuple[bytes | None, bytes | None, int]:
    present = [c for c in cells if c is not None]
    return min(present, default=None), max(present, default=None), len(cells) - len(present)


def strings_meet(low: bytes, high: bytes | None, first: bytes, beyond: bytes | None) -> bool:
    """Whether bounds may enclose a string of the interval [first, beyond)."""
    return (high is None or high >= first) and (beyond is None or low < beyond)

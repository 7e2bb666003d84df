"""Members of stored JSON, checked: a good checksum proves nothing about who wrote the file.

Each raises ``ValueError``; whoever reads the file makes it a ``Corruption`` that names it.
"""

from __future__ import annotations

import json
from typing import Any

LIMIT = (1 << 64) - (1 << 32)
"""Timestamps, lsn, epochs and other numbers that are counted on from lie below: nothing overflows 64 bits."""

BROKEN = (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError, RecursionError)
"""What taking stored JSON apart may raise where it has another shape."""


def parsed(data: bytes | bytearray | memoryview) -> dict[str, Any]:
    """A JSON object."""
    try:
        value = json.loads(bytes(data))
    except RecursionError as exc:
        raise ValueError("JSON nested too deeply") from exc
    if not isinstance(value, dict):
        raise ValueError(f"a JSON object is stored here, not {value!r:.60}")
    return value


def integer(value: Any, lower: int = 0, upper: int = LIMIT) -> int:
    """A whole number in ``lower <= value < upper``."""
    if type(value) is not int or not lower <= value < upper:
        raise ValueError(f"a whole number from {lower} to {upper - 1} is stored here, not {value!r:.60}")
    return value


def integer_or_none(value: Any, lower: int = 0, upper: int = LIMIT) -> int | None:
    return None if value is None else integer(value, lower, upper)


def key(text: Any, lower: int = 0, upper: int = LIMIT) -> int:
    """A number that is the name of a member."""
    if not isinstance(text, str) or not text.removeprefix("-").isdecimal() or len(text) > 20:
        raise ValueError(f"the name of a member is a whole number, not {text!r:.60}")
    return integer(int(text), lower, upper)


def text(value: Any) -> str:
    """Text that UTF-8 can hold."""
    if not isinstance(value, str):
        raise ValueError(f"text is stored here, not {value!r:.60}")
    value.encode()  # UnicodeEncodeError is a ValueError
    return value


def flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"true or false is stored here, not {value!r:.60}")
    return value

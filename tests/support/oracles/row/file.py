"""What ``_ext.row.file`` means: the row of a key among the file's keys, and the cells of rows."""

from __future__ import annotations

from typing import Any


def find(keys: list[bytes], key: bytes) -> int:
    return keys.index(key) if key in keys else -1


def row(columns: dict[str, list[Any]], number: int) -> dict[str, Any]:
    return {name: cells[number] for name, cells in columns.items()}

"""Columns whose type has become one of other cells: what they are now, and what they were when."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from kudu_core.common.format.members import integer
from kudu_core.common.types.recasting import readable
from kudu_core.common.types.types import ColumnType

Older = tuple[tuple[int, ColumnType], ...]
"""Types that a column had, each up to a version of the schema, the oldest first."""


class ChangedColumn(Protocol):
    """A column, as far as its type goes."""

    @property
    def id(self) -> int: ...

    @property
    def type(self) -> ColumnType: ...

    @property
    def older(self) -> Older: ...


def cell_types(columns: Iterable[ChangedColumn]) -> dict[int, ColumnType]:
    """By id, of the columns that have changed their cells: of which type they are now."""
    return {column.id: column.type.value for column in columns if column.older}


def types_at(columns: Iterable[ChangedColumn], version: int) -> dict[int, ColumnType]:
    """By id, what columns that have changed their cells since a version of the schema were then."""
    found = {}
    for column in columns:
        then = next((type_ for last, type_ in column.older if version <= last), None)
        if then is not None:
            found[column.id] = then.value
    return found


def forms_of(columns: Iterable[ChangedColumn]) -> dict[int, tuple[ColumnType, ...]]:
    """By id, of columns that have changed their cells: the types that they had, oldest first, and that of
    now."""
    return {
        column.id: (*(type_.value for _, type_ in column.older), column.type.value)
        for column in columns
        if column.older
    }


def older_json(older: Older) -> dict[str, Any]:
    """The member of a stored column that says so; none of a column that never changed."""
    return {"older": [[version, type_.name] for version, type_ in older]} if older else {}


def older_of(stored: Mapping[str, Any], type_: ColumnType, versions: int) -> Older:
    """The inverse, of a column that is of ``type_``; ``ValueError`` for what no column has been."""
    given: Sequence[Any] = stored.get("older", ())
    older = tuple((integer(version, 1, versions), ColumnType.parse(name)) for version, name in given)
    if [version for version, _ in older] != sorted({version for version, _ in older}):
        raise ValueError(f"versions of older types do not ascend: {given}")
    if not all(readable(before.value, type_.value) for _, before in older):
        raise ValueError(f"a column of {type_} was never one of {given}")
    return older


__all__ = ["Older", "cell_types", "forms_of", "older_json", "older_of", "types_at"]

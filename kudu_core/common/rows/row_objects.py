"""Rows that are objects with named fields: dicts, instances of dataclasses, named tuples."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import lru_cache
from typing import Any

_NO_ROWS = ("__arrow_c_stream__", "__arrow_c_array__", "to_pyarrow_dataset")
"""What a class has that holds many rows, though it may be a dataclass, as a table of Delta Lake is."""


def is_row(item: Any) -> bool:
    """Whether this is one row, whose columns have names."""
    return _are_rows(type(item))  # type: ignore[arg-type]  # a type has a hash, whatever mypy says


@lru_cache(maxsize=256)
def _are_rows(kind: type) -> bool:
    if issubclass(kind, Mapping):
        return True
    if not is_dataclass(kind) and not _is_named_tuple(kind):
        return False
    return not any(hasattr(kind, door) for door in _NO_ROWS)


def _is_named_tuple(kind: type) -> bool:
    return issubclass(kind, tuple) and isinstance(getattr(kind, "_fields", None), tuple)


def as_mapping(item: Any, known: dict[type, Callable[[Any], Mapping[str, Any]]]) -> Mapping[str, Any]:
    """A row as a mapping of names to values, which stay as they are: what lies in a field is not taken apart.

    ``known``: what has been found of the types of rows before, for one run of rows.
    """
    if isinstance(item, Mapping):
        return item
    kind = type(item)
    make = known.get(kind)
    if make is None:
        make = known[kind] = _maker(item)
    return make(item)


def _maker(item: Any) -> Callable[[Any], Mapping[str, Any]]:
    names = item._fields if _is_named_tuple(type(item)) else tuple(field.name for field in fields(item))
    return lambda row: {name: getattr(row, name) for name in names}


__all__ = ["as_mapping", "is_row"]

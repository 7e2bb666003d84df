"""What tells a predicate from all others, cheaply: by it is found what was made of the predicate before.

Two predicates with the same identity mean the same, in every schema; that two which mean the same have the
same one is not promised.  It shares nothing with what the caller gave, which may change afterwards.
"""

from __future__ import annotations

import datetime as dt
import struct
from array import array
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

MOST_VALUES = 1 << 15
"""Of a list of values: what is made of a longer one takes much memory to keep."""

_PLAIN = frozenset((int, str, bytes, bool, type(None), dt.date))
"""Types whose values are equal where they mean the same, beside values of the same type."""
_LISTS: frozenset[type] = frozenset((list, tuple, set, frozenset))


def identity_of(where: Any) -> tuple[Any, ...] | None:
    """What a filter list is known by; None where it has values that are not told from others so cheaply.

    The types of the values belong to it: 1, 1.0 and True are three values; so are 0.0 and -0.0.
    """
    kind = type(where)
    if kind is not list and kind is not tuple:
        return None
    if len(where) == 3 and type(where[0]) is str:
        name, op, value = where
        if type(op) is not str:
            return None
        known = _of_value(value)
        return None if known is None else (kind, name, op, known)
    parts: list[Any] = [kind]
    for part in where:
        known = identity_of(part)
        if known is None:
            return None
        parts.append(known)
    return tuple(parts)


def size_of(identity: tuple[Any, ...] | bytes) -> int:
    """About how many bytes an identity takes."""
    if isinstance(identity, bytes):
        return len(identity)
    return sum(
        size_of(part) if isinstance(part, tuple) else len(part) if isinstance(part, str | bytes) else 40
        for part in identity
    )


def _of_value(value: Any) -> tuple[Any, ...] | None:
    kind = type(value)
    if kind in _PLAIN:
        return kind, value
    if kind is float:
        return kind, struct.pack("<d", value)
    if kind in _LISTS:
        return _of_list(value)
    if (
        (kind is np.ndarray or isinstance(value, np.generic))
        and value.dtype.kind in "iufb"
        and value.ndim < 2
    ):
        return (kind, value.dtype.str, value.shape, value.tobytes()) if value.size <= MOST_VALUES else None
    return None


def _of_list(value: Any) -> tuple[Any, ...] | None:
    if len(value) > MOST_VALUES:
        return None
    kinds = set(map(type, value))
    if len(kinds) == 1:
        [kind] = kinds
        packed = _PACKED.get(kind)
        if packed is not None:
            return list, kind, packed(value)
    known = tuple(None if type(one) in _LISTS else _of_value(one) for one in value)
    return None if None in known else (list, known)


def _integers(value: Iterable[int]) -> Any:
    values = tuple(value)
    try:
        return array("q", values).tobytes()
    except OverflowError:
        return values


_PACKED: dict[type, Callable[[Any], Any]] = {
    int: _integers,
    float: lambda value: array("d", value).tobytes(),
    str: tuple,
    bytes: tuple,
    dt.date: tuple,
}


__all__ = ["MOST_VALUES", "identity_of", "size_of"]

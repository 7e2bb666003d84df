"""Rows that do not all have the same columns, put together by their columns.

A row without a column differs from one with NULL there, so rows of different columns cannot be one batch.  In
their own order they would be as many batches as there are changes from one set of columns to another.  Only
rows of one key need to stay in their order: a row goes to the first batch of its columns that does not lie
before the last row of its key.  So 10,000 keys whose rows alternate between two sets are two batches.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kudu_core.common.rows.keys import encode_key
from kudu_core.common.schema.schema import Schema
from kudu_core.errors import InvalidArgument, SchemaMismatch

Row = Mapping[str, Any]


@dataclass(slots=True)
class Grouped:
    """Rows with the same columns, of those that were given."""

    names: Sequence[str]
    rows: Sequence[Row]
    numbers: np.ndarray | None
    """(n,) int64: which of the rows that were given they are; None: they follow each other."""

    def columns(self) -> dict[str, list[Any]]:
        return {name: [row[name] for row in self.rows] for name in self.names}


def runs_of(rows: Sequence[Row]) -> list[Grouped]:
    """Rows that follow each other and have the same columns, in the order of the rows."""
    runs: list[Grouped] = []
    held: list[Row] = []
    before: Iterable[str] = ()
    for row in rows:
        names = row.keys()
        if not held or names != before:
            if not row:
                raise InvalidArgument("a row without any column")
            held, before = [], names
            runs.append(Grouped(list(names), held, None))
        held.append(row)
    return runs


def groups_of(rows: Sequence[Row], schema: Schema, first: int) -> list[Grouped] | None:
    """Rows by their columns, in the fewest batches that keep rows of one key in order.

    None: a key is no plain value of its column, and it cannot be said here which are the same.
    ``SchemaMismatch`` for a row without its key.  ``first``: the number of the first row, for messages.
    """
    sets: dict[frozenset[str], int] = {}
    which = [sets.setdefault(frozenset(row), len(sets)) for row in rows]
    for names, number in sets.items():
        for name in schema.key_names:
            if name not in names:
                row = first + which.index(number)
                raise SchemaMismatch(f"row {row}: column {name!r} is missing; the row has {_listed(names)}")
    keys = _keys(rows, schema)
    if keys is None:
        return None
    batches: list[list[int]] = []
    of_set: list[list[int]] = [[] for _ in sets]
    last: dict[bytes | None, int] = {}
    for row, (key, number) in enumerate(zip(keys, which, strict=True)):
        mine = of_set[number]
        place = bisect_left(mine, last.get(key, 0))
        if place == len(mine):
            mine.append(len(batches))
            batches.append([])
        last[key] = mine[place]
        batches[mine[place]].append(row)
    return [
        Grouped(list(rows[batch[0]]), [rows[row] for row in batch], np.array(batch, np.int64))
        for batch in batches
    ]


def _keys(rows: Sequence[Row], schema: Schema) -> list[bytes | None] | None:
    """What tells the keys apart: their bytes; None of all that have a NULL, which are refused."""
    names, encode = schema.key_names, schema.row_codec.keys.encode
    keys: list[bytes | None] = []
    for row in rows:
        cells = tuple([row[name] for name in names])
        if any(cell is None for cell in cells):
            keys.append(None)
            continue
        encoded = encode(cells)
        try:
            keys.append(encode_key(schema, cells) if encoded is None else encoded)
        except InvalidArgument:
            return None
    return keys


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, sorted(map(str, names)))) or "no column"


__all__ = ["Grouped", "groups_of", "runs_of"]

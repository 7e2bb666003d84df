"""What both kinds of dimension have: columns of the key, and a number for each row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from kudu_core.common.schema.schema import Schema, StoredColumn
from kudu_core.errors import InvalidArgument, shown

I32Array: TypeAlias = npt.NDArray[np.int32]

Columns: TypeAlias = Mapping[int, StoredColumn]
"""The key's columns by their ids."""


def column_ids(schema: Schema, columns: str | Sequence[str], dimension: str) -> tuple[int, ...]:
    """Ids of the columns that a dimension (``"hash"``, ``"range"``) was declared with, checked."""
    if not isinstance(columns, Iterable):
        raise InvalidArgument(f"a {dimension} dimension names columns, not {shown(columns)}")
    names = (columns,) if isinstance(columns, str) else tuple(columns)
    if not names:
        raise InvalidArgument(f"a {dimension} dimension has at least one column")
    ids = []
    for name in names:
        column = schema.column(name)
        if column.id not in schema.key_ids:
            raise InvalidArgument(f"column {name!r} is not in the primary key; only key columns partition")
        if column.id in ids:
            raise InvalidArgument(f"column {name!r} is twice in a {dimension} dimension")
        ids.append(column.id)
    return tuple(ids)

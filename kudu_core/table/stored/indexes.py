"""Indexes of a table, as TABLE has them: names of lists of columns by which rows are to be found.

A column is named by its id, so that a rename changes nothing.  What an index looks like for the rows of one
file is made of that file (``rowset/disk/cell_order.py``): TABLE says only which are wanted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kudu_core.common.format.members import integer, text
from kudu_core.errors import InvalidArgument, shown

if TYPE_CHECKING:
    from kudu_core.common.schema.schema import Schema

MAX_INDEXES: Final = 64
MAX_INDEX_COLUMNS: Final = 8
MAX_NAME_BYTES: Final = 255
"""Of a name, as UTF-8."""
INDEXES_FLAG: Final = 16
"""In the header of a TABLE with indexes: a library that knows none would forget them."""
_MOST_ID: Final = 1 << 31


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """An index as TABLE lists it."""

    id: int
    """Never given to another index."""
    column_ids: tuple[int, ...]


def indexes_to_json(indexes: Mapping[str, IndexEntry], next_index: int) -> dict[str, Any]:
    """The members of TABLE, where there is an index or has been one."""
    if next_index == 1:
        return {}
    listed = [[name, one.id, list(one.column_ids)] for name, one in sorted(indexes.items())]
    return {"indexes": listed, "next_index": next_index}


def indexes_from_json(value: Mapping[str, Any]) -> tuple[dict[str, IndexEntry], int]:
    """The indexes by name, and the id of the next one.  Raises what is in ``members.BROKEN``."""
    listed, next_index = value.get("indexes", []), integer(value.get("next_index", 1), 1, _MOST_ID)
    found = {}
    for name, id_, column_ids in listed:
        ids = tuple(integer(column_id) for column_id in column_ids)
        if not is_name(text(name)) or not 1 <= len(set(ids)) == len(ids) <= MAX_INDEX_COLUMNS:
            raise ValueError(f"{name!r:.80} is no index")
        found[name] = IndexEntry(integer(id_, 1, next_index), ids)
    if len(found) != len(listed) or len({one.id for one in found.values()}) != len(listed):
        raise ValueError(f"{len(listed)} indexes do not have names and numbers of their own")
    if len(found) > MAX_INDEXES:
        raise ValueError(f"{len(found)} indexes; there are at most {MAX_INDEXES}")
    return found, next_index


def is_name(name: str) -> bool:
    """Whether an index can be called so."""
    return name.isprintable() and name == name.strip() and 1 <= len(name.encode()) <= MAX_NAME_BYTES


def check_index_name(name: Any) -> str:
    """``InvalidArgument`` for what is no name of an index."""
    if not isinstance(name, str) or not is_name(name):
        raise InvalidArgument(
            f"{shown(name)} is no name of an index: that is text of 1 to {MAX_NAME_BYTES} bytes, printable, "
            "without spaces at its ends"
        )
    return name


def check_indexed(indexes: Mapping[str, IndexEntry], before: Schema, after: Schema) -> None:
    """``InvalidArgument`` where columns go that an index is of."""
    for name, one in indexes.items():
        for column_id in one.column_ids:
            if column_id not in after.by_id:
                column = before.by_id[column_id].name
                raise InvalidArgument(
                    f"column {column!r} is in the index {name!r} and cannot be dropped: drop_index({name!r}) "
                    "before"
                )


__all__ = [
    "INDEXES_FLAG",
    "MAX_INDEXES",
    "MAX_INDEX_COLUMNS",
    "IndexEntry",
    "check_index_name",
    "check_indexed",
    "indexes_from_json",
    "indexes_to_json",
]

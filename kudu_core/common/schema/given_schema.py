"""The schema of whatever has one: frames, tables, readers, datasets, and names with types.

Only the fields are taken: no row is written, and what pandas writes into the metadata of a schema stays out.
Of packages that need not be there only what their objects can do is looked at.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from kudu_core.errors import InvalidArgument, shown

GIVEN = (
    "a pa.Schema, a list of Columns, fields or (name, type) pairs, a dict of names and types, or "
    "what has a schema: a table, reader or dataset of Arrow, a frame of pandas or Polars"
)


def given_schema(data: Any) -> list[Any]:
    """What was given as columns: fields, (name, type), or whatever else a list holds.

    ``InvalidArgument`` for what has no schema.
    """
    if isinstance(data, pa.DataType):
        raise InvalidArgument(f"a schema is {GIVEN}, not the type {data}")
    if is_of_pandas(data, "DataFrame"):
        return list(_of_pandas(data))
    found = _schema_of(data)
    if found is not None:
        return list(found)
    if isinstance(data, Mapping):
        return [_pair(item) for item in data.items()]
    if isinstance(data, str | bytes) or not isinstance(data, Iterable):
        raise InvalidArgument(f"a schema is {GIVEN}, not {shown(data)}")
    return [_pair(item) if isinstance(item, tuple | list) else item for item in data]


def _schema_of(data: Any) -> pa.Schema | None:
    """Of what is a schema, has one, or speaks Arrow; None: it does not."""
    if isinstance(data, type) or data is None:
        return None
    if isinstance(data, pa.Schema):
        return data
    try:
        if hasattr(data, "__arrow_c_schema__"):
            return pa.schema(data)
        for door in _DOORS:
            held = getattr(data, door, None)
            if held is not None:
                found = _schema_of(held() if callable(held) else held)
                if found is not None:
                    return found
        if hasattr(data, "__arrow_c_stream__"):
            with pa.RecordBatchReader.from_stream(data) as reader:
                return reader.schema
    except (pa.ArrowException, TypeError) as error:
        raise InvalidArgument(f"{type(data).__name__} gives no schema: {error}".replace("\n", " ")) from None
    return None


_DOORS = ("collect_schema", "schema", "projected_schema", "to_arrow", "to_pyarrow")
"""What says the schema of a lazy frame, a frame, table or dataset, a scanner, and of one of Delta Lake."""


def is_of_pandas(data: Any, kind: str) -> bool:
    """Whether it is pandas', by a name of that, without importing it: what it makes exists only where it is
    imported, which another thread may be at."""
    known: type | None = getattr(sys.modules.get("pandas"), kind, None)
    return known is not None and isinstance(data, known)


def with_named_levels(frame: Any) -> Any:
    """The frame with the levels of its index that bear names as columns before the others, and without those
    that bear none."""
    named = [name for name in frame.index.names if isinstance(name, str) and name not in frame.columns]
    if not named:
        return frame
    unnamed = [i for i, name in enumerate(frame.index.names) if name not in named]
    return (frame.reset_index(level=unnamed, drop=True) if unnamed else frame).reset_index()


def _of_pandas(frame: Any) -> pa.Schema:
    frame = with_named_levels(frame)
    fields = []
    for position, name in enumerate(frame.columns):
        if not isinstance(name, str):
            raise InvalidArgument(f"a column's name is text, not {shown(name)}")
        try:
            fields += pa.Schema.from_pandas(frame.iloc[:, [position]], preserve_index=False)
        except (pa.ArrowException, TypeError) as error:
            raise InvalidArgument(f"column {name!r} of a pandas frame: {error}".replace("\n", " ")) from None
    return pa.schema(fields)


def _pair(item: Any) -> tuple[str, Any]:
    if len(item) != 2 or not isinstance(item[0], str):
        raise InvalidArgument(
            f"a column is declared by a Column, a pa.Field or (name, type), not {shown(item)}"
        )
    return item[0], item[1]


__all__ = ["given_schema", "is_of_pandas", "with_named_levels"]

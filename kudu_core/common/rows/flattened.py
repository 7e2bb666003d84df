"""Batches with columns of lists, structs and maps, brought to the columns in which these are stored."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import pyarrow as pa

from kudu_core.common.rows.misfits import fitted
from kudu_core.common.schema.nested_columns import is_field
from kudu_core.common.schema.schema import Schema
from kudu_core.common.types.foreign import names_of
from kudu_core.common.types.nested.nested_casts import nested_cast
from kudu_core.errors import SchemaMismatch, shown


def flat_batch(
    schema: Schema,
    batch: pa.RecordBatch,
    extra: Collection[str] = (),
    first_row: int = 0,
    *,
    stored: bool = False,
    beside: Collection[str] = (),
) -> tuple[pa.RecordBatch, frozenset[str], Collection[str]]:
    """A batch whose nested columns are replaced by their leaves; which of these take no NULL here; and which
    columns are as they are stored.

    ``stored``: leaves may be there already.  ``beside``: leaves that are given elsewhere.
    ``SchemaMismatch`` names the column.
    """
    made = _Flat(batch.num_rows)
    for place, name in enumerate(names_of(batch.schema)):
        column = schema.by_name.get(name)
        is_leaf = column is not None and column.id in schema.leaf_of
        nested = None if name in extra else schema.nested_by_name.get(name) or schema.part(name)
        if nested is not None:
            array = nested_cast(batch.column(place), nested.layout.arrow, name, first_row, fitted)
            leaves = nested.layout.flatten(array, first_row)
            around = flags_around(schema, name)
            for id_, leaf in zip(nested.ids, leaves, strict=True):
                if schema.by_id[id_].name not in around:
                    made.add(schema.by_id[id_].name, leaf, name)
                    made.leaves.add(schema.by_id[id_].name)
                elif array.null_count:  # the struct takes no NULL: the flags are those of one around it
                    outer = name.rpartition(".")[0]
                    raise SchemaMismatch(
                        f"column {name!r} takes no NULL; set {outer!r} to NULL, or give a value"
                    )
        elif is_leaf and not stored and not is_field(name):
            raise SchemaMismatch(
                f"column {shown(name)} is unknown; the table has {', '.join(schema.declared_names)}"
            )
        else:
            made.add(name, batch.column(place), name)
        if not stored:
            made.add_flags(flags_around(schema, name), name)
    needed = needed_leaves(schema, made.flags, {*made.names, *beside})
    return made.batch(), needed, made.leaves


class _Flat:
    """Stored columns as they are found."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._arrays: list[pa.Array] = []
        self.names: list[str] = []
        self.leaves: set[str] = set()
        self.flags: set[str] = set()
        """Those that fields have set."""
        self._givers: dict[str, str] = {}

    def add(self, name: str, array: pa.Array, giver: str) -> None:
        if name in self._givers and self._givers[name] != giver:
            raise SchemaMismatch(f"columns {self._givers[name]!r} and {giver!r} give the same values")
        self._givers[name] = giver
        self.names.append(name)
        self._arrays.append(array)

    def add_flags(self, names: list[str], giver: str) -> None:
        """Who sets a field says that the structs around it are there."""
        for name in names:
            if name not in self._givers:
                self.add(name, pa.array(np.zeros(self._rows, np.bool_)), giver)
                self.flags.add(name)

    def batch(self) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays(self._arrays, names=self.names)


def needed_leaves(schema: Schema, flags: Collection[str], given: Collection[str]) -> frozenset[str]:
    """The leaves that take no NULL where fields make the structs of these flags, which may have been NULL.

    ``SchemaMismatch`` where one of them is not given: nobody knows what it is then."""
    if not flags:
        return frozenset()
    for nested in schema.nested:
        missing = [leaf for leaf in nested.needed_with(flags) if leaf not in given]
        if missing:
            field = missing[0].split("[")[0]
            outer = field.rpartition(".")[0]
            raise SchemaMismatch(
                f"column {field!r} takes no NULL, which it would be where {outer!r} is NULL: "
                f"give it too, or all of {nested.name!r}"
            )
    return frozenset(leaf for nested in schema.nested for leaf in nested.needed_with(flags))


def flags_around(schema: Schema, name: str) -> list[str]:
    """The stored columns that say where the structs around a field are NULL, the outermost first."""
    path = name.split(".")
    whole = schema.nested_by_name.get(path[0])
    if whole is None or len(path) == 1:
        return []
    return [schema.by_id[id_].name for id_ in whole.flags_around(path[1:])]


__all__ = ["flags_around", "flat_batch", "needed_leaves"]

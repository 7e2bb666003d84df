"""Expressions over two rows of one key: the one that is there, and the one that is given.

``old("n")`` is a column of the row that is there, ``new("n")`` one of the row that is given.  They are fields
of ``pyarrow.compute``, "n" of "old" and of "new", and join in its expressions.  A column that is named
without a side is one of the side that the place is about.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kudu_core.common.schema.schema import Schema
from kudu_core.common.types.types import ColumnType
from kudu_core.common.where import expressions
from kudu_core.common.where.filter_lists import read_lists
from kudu_core.common.where.given import AsGiven
from kudu_core.errors import InvalidArgument

OLD = "old"
NEW = "new"
KNOWN, KNOWN_BYTES = 256, 4096
"""So many expressions are kept with a schema, of those that are written down in no more bytes."""
_ROW = "row"
"""A column that every batch has, since Arrow counts no rows of none."""
_PASSES = "passes"

Rows: TypeAlias = npt.NDArray[np.int64]
Column: TypeAlias = Callable[[str, str], pa.Array]
"""(side, name) -> the cells, one for each of some rows."""


def old(name: str) -> pc.Expression:
    """A column, or a field as "column.field", of the row that is there, in a condition or a value of a write.

    >>> stock.update({"id": [1]}, set={"price": kc.old("price") * 2}).updated
    1
    """
    return pc.field(OLD, _checked(name))


def new(name: str) -> pc.Expression:
    """A column of the row that is given, likewise; it need not be one of the table's.

    >>> stock.upsert([{"id": 1, "price": 9.0}], if_=kc.new("price") > kc.old("price")).updated
    1
    """
    return pc.field(NEW, _checked(name))


def _checked(name: str) -> str:
    if not isinstance(name, str) or not name:
        raise InvalidArgument(f"the name of a column is text, not {name!r}")
    return name


@dataclass(frozen=True, slots=True)
class Sided:
    """An expression whose references are "old.n" and "new.n"."""

    expression: pc.Expression
    old: frozenset[str]
    """Names of the columns of the row that is there."""
    new: frozenset[str]

    def of_old(self) -> pc.Expression:
        """The same over the row that is there alone, whose columns have their own names."""
        return _renamed(self.expression, lambda name: name.removeprefix(f"{OLD}."))


def sided(schema: Schema, expression: pc.Expression, bare: str) -> Sided:
    """An expression as a caller gives it, for rows of a table.

    ``bare``: the side of columns that are named without one.
    """
    raw = expressions.serialised(expression)
    if raw.size > KNOWN_BYTES:
        return _sided(schema, expression, bare)
    known, asked = schema.kept, ("sided", bare, raw.to_pybytes())
    made: Sided | None = known.get(asked)
    if made is None:
        if len(known) >= KNOWN:
            known.clear()
        made = known[asked] = _sided(schema, pc.Expression._deserialize(raw), bare)
    return made


def _sided(schema: Schema, expression: pc.Expression, bare: str) -> Sided:
    def named(name: str) -> str:
        side, dot, _ = name.partition(".")
        return name if dot and side in (OLD, NEW) else f"{bare}.{name}"

    def type_of(name: str) -> ColumnType | None:
        return schema.type_of(named(name).partition(".")[2])

    given, _ = AsGiven(expression, None).of_stored_types(lambda _: None, type_of)
    made = _renamed(given.expression, named)
    names = expressions.field_names(made)
    return Sided(made, _of_side(names, OLD), _of_side(names, NEW))


def condition(schema: Schema, where: Any, bare: str, place: str) -> Sided | None:
    """A condition as a caller gives it, an expression or filter lists; None: every row meets it."""
    if where is None:
        return None
    if isinstance(where, pc.Expression):
        return sided(schema, where, bare)
    if isinstance(where, list | tuple):
        listed = read_lists(where, schema)
        return None if listed is None else sided(schema, expressions.spelled(listed), bare)
    raise InvalidArgument(f"{place}: a condition is a pyarrow.compute expression, not {where!r}")


def _renamed(expression: pc.Expression, named: Callable[[str], str]) -> pc.Expression:
    batch, words = expressions.read_serialised(expressions.serialised(expression))
    made = [(word, named(value) if word == "field_ref" else value) for word, value in words]
    return pc.Expression._deserialize(expressions.written(batch, made))


def _of_side(names: Iterable[str], side: str) -> frozenset[str]:
    return frozenset(name.removeprefix(f"{side}.") for name in names if name.startswith(f"{side}."))


def passing(where: Sided, column: Column, rows: int, place: str) -> npt.NDArray[np.bool_]:
    """(rows,) bool: which rows meet a condition; what is NULL does not."""
    [made] = values({_PASSES: where}, column, rows, place)
    if not pa.types.is_boolean(made.type):
        raise InvalidArgument(f"{place}: a condition is true or false, not {made.type}")
    mask: npt.NDArray[np.bool_] = pc.fill_null(made, False).to_numpy(zero_copy_only=False)
    return mask


def values(named: Mapping[str, Sided], column: Column, rows: int, place: str) -> Sequence[pa.Array]:
    """What expressions give for some rows, (rows,) each."""
    import pyarrow.acero as acero

    arrays: dict[str, pa.Array] = {_ROW: pa.array(np.arange(rows))}
    for made in named.values():
        for side, names in ((OLD, made.old), (NEW, made.new)):
            for name in names:
                if f"{side}.{name}" not in arrays:
                    arrays[f"{side}.{name}"] = column(side, name)
    try:
        source = acero.Declaration("table_source", acero.TableSourceNodeOptions(pa.table(arrays)))
        options = acero.ProjectNodeOptions([made.expression for made in named.values()], [*named])
        project = acero.Declaration("project", options, inputs=[source])
        new = project.to_table(use_threads=False)
    except pa.ArrowMemoryError:
        raise
    except pa.ArrowException as error:
        raise InvalidArgument(f"{place}: {error}") from error
    return [_one_array(chunked) for chunked in new.columns]


def _one_array(chunked: pa.ChunkedArray) -> pa.Array:
    if chunked.num_chunks == 1:
        return chunked.chunk(0)
    return chunked.combine_chunks() if chunked.num_chunks else pa.array([], chunked.type)


__all__ = ["NEW", "OLD", "Column", "Rows", "Sided", "condition", "new", "old", "passing", "sided", "values"]

"""Expressions over nested columns: what Arrow computes on the columns put together, and what it does not.

Equality of lists, structs and maps, and the element of a list that may be shorter, are columns that are
computed here beside the others; in the expression a reference stands in their place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kudu_core.common.rows.misfits import fitted
from kudu_core.common.schema.nested_columns import NestedColumn
from kudu_core.common.schema.schema import Schema
from kudu_core.common.types.nested.nested_casts import nested_cast
from kudu_core.common.types.nested.nested_nodes import NestedNode, is_nested
from kudu_core.common.where import expressions
from kudu_core.common.where.nested.assembled import seen_column, seen_node, seen_type
from kudu_core.common.where.nested.equality import elements_at, equal, equals_one, is_list, valid
from kudu_core.common.where.seen import seen
from kudu_core.errors import InvalidArgument, SchemaMismatch

Words = list[tuple[str, str]]
_EQUALITIES = ("equal", "not_equal", "is_in")
_MATCHES_NULL, _SKIPS_NULL = 0, 1
_STEP = "\0step"
ASKS = (
    "of lists, structs and maps a predicate asks what pyarrow.compute computes of them, ==, != and in, "
    'whether they are NULL, and for flat fields of a struct, as "a.x"'
)


@dataclass(frozen=True, slots=True)
class Step:
    """A column that is computed of those before it."""

    function: str
    """"equal", "not_equal", "is_in" or "list_element"."""
    left: pc.Expression
    right: Any
    """An expression; constants as an array, one or those of a list; a place in a list."""
    matches_null: bool = False


@dataclass(frozen=True, slots=True)
class Whole:
    """An expression with the nested columns that it reads.  Immutable; pickles."""

    expression: pc.Expression
    """Over flat columns, nested ones, and the steps."""
    columns: tuple[NestedColumn, ...]
    nodes: tuple[NestedNode, ...]
    steps: tuple[Step, ...]

    @staticmethod
    def of(expression: pc.Expression, names: Sequence[str], schema: Schema) -> Whole | None:
        """An expression that refers to columns of these names; None: it has no part in nested ones.

        ``InvalidArgument`` where Arrow does not compute it for the types."""
        columns = tuple(found for name in sorted(names) if (found := nested_of(schema, name)) is not None)
        steps = _Steps(schema, columns, [name for name in names if name in schema.by_name])
        spelled = steps.rewritten(expression)
        if not columns and not steps.made:
            return None
        nodes = tuple(seen_node(column.layout.root) for column in columns)
        return Whole(spelled, columns, nodes, tuple(steps.made))

    def extended(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Rows with the nested columns of their leaves, and the steps.  ``InvalidArgument`` for values of
        which Arrow does not compute them, ``Corruption`` for leaves that do not go together."""
        pairs = zip(self.columns, self.nodes, strict=True)
        return self._stepped(batch, [seen_column(column, node, batch) for column, node in pairs])

    def nulls(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The same with nested columns that are NULL."""
        return self._stepped(batch, [pa.nulls(batch.num_rows, seen_type(one.type)) for one in self.columns])

    def _stepped(self, batch: pa.RecordBatch, arrays: list[pa.Array]) -> pa.RecordBatch:
        batch = _with(batch, [column.name for column in self.columns], arrays)
        for number, step in enumerate(self.steps):
            batch = _with(batch, [f"{_STEP}{number}"], [_computed(step, batch)])
        return batch


def nested_of(schema: Schema, name: str) -> NestedColumn | None:
    """The nested column of a name, or field of a struct; None: there is none, or it is flat."""
    return schema.nested_by_name.get(name) or (schema.part(name) if schema.nested else None)


def evaluated(expression: pc.Expression, batch: pa.RecordBatch) -> pa.Array:
    """What an expression gives for rows.  ``InvalidArgument`` where it gives nothing."""
    from pyarrow import acero  # it imports pyarrow.dataset, and that pandas

    source = acero.TableSourceNodeOptions(pa.Table.from_batches([batch]))
    plan = acero.Declaration.from_sequence(
        [
            acero.Declaration("table_source", source),
            acero.Declaration("project", acero.ProjectNodeOptions([expression], ["value"])),
        ]
    )
    try:
        column = plan.to_table(use_threads=False).column(0)
    except pa.ArrowMemoryError:
        raise
    except pa.ArrowException as error:
        raise InvalidArgument(f"{expression}: {error}") from None
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks or [pa.nulls(0, column.type)])


def _with(batch: pa.RecordBatch, names: list[str], arrays: list[pa.Array]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([*batch.columns, *arrays], names=[*batch.schema.names, *names])


def _computed(step: Step, batch: pa.RecordBatch) -> pa.Array:
    left = evaluated(step.left, batch)
    if step.function == "list_element":
        return elements_at(left, step.right)
    if step.function == "is_in":
        found = np.zeros(len(left), np.bool_)
        for one in range(len(step.right)):
            value = step.right.slice(one, 1)
            if not value.null_count or step.matches_null:
                found |= equals_one(left, value)
        return pa.array(found)
    there = valid(left)
    if isinstance(step.right, pa.Array):
        found = equals_one(left, step.right)
        there &= not step.right.null_count
    else:
        right = _fitting(evaluated(step.right, batch), left.type)
        found = equal(left, right)
        there &= valid(right)
    return pa.array(found if step.function == "equal" else ~found, mask=~there)


def _fitting(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """Values in the type of those with which they are compared."""
    try:
        return nested_cast(array, type_, "constant", leaf=fitted)
    except SchemaMismatch as error:
        raise InvalidArgument(f"a constant of {array.type} beside {type_}: {error}") from None


class _Steps:
    """Takes the steps out of one expression, the inner ones first."""

    def __init__(self, schema: Schema, columns: Sequence[NestedColumn], flat: Sequence[str]) -> None:
        types = [schema.by_name[name].type for name in flat]
        arrays = [seen(pa.nulls(0, type_.arrow), type_) for type_ in types]
        arrays += [pa.nulls(0, seen_type(column.type)) for column in columns]
        self._none = _with(no_columns(0), [*flat, *(column.name for column in columns)], arrays)
        """No rows, by which it is tried what has which type."""
        self._batch: pa.RecordBatch = None
        self.made: list[Step] = []

    def rewritten(self, expression: pc.Expression) -> pc.Expression:
        self._batch, words = expressions.read_serialised(expressions.serialised(expression))
        spelled, _ = self._node(words, 0)
        return self._expression(spelled) if self.made else expression

    def _expression(self, words: Words) -> pc.Expression:
        return pc.Expression._deserialize(expressions.written(self._batch, words))

    def _node(self, words: Words, at: int) -> tuple[Words, int]:
        word, function = words[at]
        if word != "call":
            return [words[at]], at + 1
        arguments: list[Words] = []
        options: Words = []
        at += 1
        while words[at][0] != "end":
            if words[at][0] == "options":
                options, at = [words[at]], at + 1
                continue
            spelled, at = self._node(words, at)
            arguments.append(spelled)
        step = self._step(function, arguments, options)
        if step is not None:
            name = f"{_STEP}{len(self.made)}"
            self._none = _with(self._none, [name], [_computed(step, self._none)])
            self.made.append(step)
            return [("field_ref", name)], at + 1
        inner = [one for argument in arguments for one in argument]
        return [("call", function), *inner, *options, ("end", function)], at + 1

    def _step(self, function: str, arguments: list[Words], options: Words) -> Step | None:
        if function == "list_element" and len(arguments) == 2:
            return self._element(*arguments)
        if function not in _EQUALITIES:
            return None
        constants = [self._constant(argument) for argument in arguments]
        if len(arguments) == 2 and constants[0] is not None:
            arguments, constants = arguments[::-1], constants[::-1]
        if constants[0] is not None:
            return None
        left = self._expression(arguments[0])
        type_ = evaluated(left, self._none).type
        if not is_nested(type_):
            return None
        if function == "is_in":
            given = self._batch.column(int(options[0][1]))
            matching = given.field("null_matching_behavior")[0].as_py()
            if matching not in (_MATCHES_NULL, _SKIPS_NULL):
                raise InvalidArgument("where: a list of nested values matches NULL or skips it, no more")
            listed = _fitting(given.field("value_set")[0].values, type_)
            return Step(function, left, listed, matching == _MATCHES_NULL)
        if constants[1] is not None:
            return Step(function, left, _fitting(constants[1], type_))
        return Step(function, left, self._expression(arguments[1]))

    def _element(self, lists: Words, place: Words) -> Step | None:
        constant = self._constant(place)
        index = None if constant is None or not pa.types.is_integer(constant.type) else constant[0].as_py()
        left = self._expression(lists)
        if index is None or not is_list(evaluated(left, self._none).type):
            return None
        if index < 0:
            raise InvalidArgument(f"where: list_element counts from 0, not from the end: {index}")
        return Step("list_element", left, index)

    def _constant(self, words: Words) -> pa.Array | None:
        """A literal, as an array of one row."""
        return self._batch.column(int(words[0][1])) if words[0][0] == "literal" else None


def no_columns(rows: int) -> pa.RecordBatch:
    """A batch of rows without columns."""
    return pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([])))


__all__ = ["ASKS", "Whole", "evaluated", "nested_of", "no_columns"]

"""Nested columns as expressions see them: put together of their leaves, with flat values as they are stored.

For what is stored Arrow has the most functions, and a predicate on a field means the same, whether it reaches
the field as a column or within its struct.
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from kudu_core._ext.base.status import PageError
from kudu_core.common.schema.nested_columns import NestedColumn
from kudu_core.common.types.nested.nested_assemble import assembled
from kudu_core.common.types.nested.nested_nodes import FlatNode, NestedNode, StructNode, is_nested, storage_of
from kudu_core.common.types.types import ColumnType
from kudu_core.common.where.seen import is_seen_as_declared
from kudu_core.errors import Corruption

_t = pa.types


def seen_type(type_: pa.DataType) -> pa.DataType:
    """The type that expressions see: that of the stored values, in lists of the plain kinds.  All of it takes
    NULL, since to Arrow a list of what takes none is of another type."""
    if not is_nested(type_):
        flat = ColumnType.from_arrow(type_)
        return flat.value.declared if is_seen_as_declared(flat) else flat.arrow
    type_ = storage_of(type_)
    if _t.is_struct(type_):
        return pa.struct([_seen_field(field) for field in type_])
    if _t.is_map(type_):
        key = pa.field(type_.key_field.name, seen_type(type_.key_field.type), False)
        return pa.map_(key, _seen_field(type_.item_field))
    if _t.is_fixed_size_list(type_):
        return pa.list_(_seen_field(type_.value_field), type_.list_size)
    is_large = _t.is_large_list(type_) or _t.is_large_list_view(type_)
    return (pa.large_list if is_large else pa.list_)(_seen_field(type_.value_field))


def _seen_field(field: pa.Field) -> pa.Field:
    return pa.field(field.name, seen_type(field.type))


def seen_node(node: NestedNode) -> NestedNode:
    """The same leaves, of the types that expressions see."""
    if isinstance(node, FlatNode):
        return replace(node, type=ColumnType.from_arrow(seen_type(node.declared)))
    if isinstance(node, StructNode):
        fields = tuple(seen_node(field) for field in node.fields)
        return replace(node, arrow=seen_type(node.arrow), fields=fields)
    return replace(node, arrow=seen_type(node.arrow), element=seen_node(node.element))


def seen_column(column: NestedColumn, node: NestedNode, batch: pa.RecordBatch) -> pa.Array:
    """The column, whose root ``node`` is as ``seen_node`` has it, of its leaves in a batch.

    ``Corruption`` where they do not go together."""
    leaves = {leaf.name: batch.column(leaf.name) for leaf in column.layout.leaves}
    try:
        return assembled(node, leaves, batch.num_rows)
    except PageError as error:
        raise Corruption("what an expression reads", 0, str(error)) from None


__all__ = ["seen_column", "seen_node", "seen_type"]

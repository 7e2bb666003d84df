"""What a caller gives to a write, as calls of rows in the table's types."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Any

import numpy as np
import pyarrow as pa

from kudu_core._ext.rules import decide as rules
from kudu_core.common.rows.arrow_in import GivenRows, given_rows
from kudu_core.common.rows.conform import conform
from kudu_core.common.rows.row_objects import is_row
from kudu_core.common.rows.row_sources import gives_rows
from kudu_core.common.rows.rowblock import ColumnBuffers, RowBlock
from kudu_core.common.schema.schema import Schema
from kudu_core.common.types.casts import cast
from kudu_core.common.types.foreign import broken, extent_of
from kudu_core.common.types.types import ColumnType
from kudu_core.errors import InvalidArgument, SchemaMismatch, shown
from kudu_core.table.calls.call import Call

_CODES = {
    "insert": rules.CALL_INSERT,
    "insert_ignore": rules.CALL_INSERT_IGNORE,
    "upsert": rules.CALL_UPSERT,
    "upsert_ignore": rules.CALL_UPSERT_IGNORE,
    "update": rules.CALL_UPDATE,
    "update_ignore": rules.CALL_UPDATE_IGNORE,
    "delete": rules.CALL_DELETE,
    "delete_ignore": rules.CALL_DELETE_IGNORE,
}
OPERATIONS = tuple(_CODES)
_TEXT = ColumnType.parse("string")


def with_policy(name: str, value: str, operation: str) -> str:
    """The operation for what ``on_conflict=`` or ``on_missing=`` says."""
    if value == "error":
        return operation
    if value == "ignore":
        return f"{operation}_ignore"
    raise InvalidArgument(f'{name} is "error" or "ignore", not {value!r}')


def conform_calls(
    schema: Schema, operation: str, data: Any, *, unique: bool = False, stored: bool = False
) -> Iterator[Call]:
    """The rows of one call in the table's types, batch by batch as they come.

    Parts that follow the first have ``continues`` set; there is none for data without rows.  Parts of rows
    that say themselves which columns they have may have others than the part before.  ``stored``: they may
    come as they are stored.
    """
    op = _CODES[operation]
    is_delete = operation.startswith("delete")
    if is_delete:
        data = keys_or_rows(schema, data)
    given: frozenset[int] | None = None
    for part in given_rows(data, schema):
        conformed = conform(schema, part.batch, first_row=part.first, stored=stored)
        if is_delete and len(conformed.given) > len(schema.key_ids):
            extra = [schema.by_id[i].name for i in conformed.given if i not in schema.key_ids]
            raise SchemaMismatch(f"delete takes the key columns only; {extra[0]!r} is none of them")
        if operation.startswith("update") and len(conformed.given) == len(schema.key_ids):
            raise InvalidArgument("update needs a column to set beside the key columns")
        if operation.startswith("insert"):
            _require(schema, conformed.given)
        if conformed.block.rows:
            call = Call(
                op, conformed.block, conformed.status,
                unique=unique, continues=given is not None, numbers=part.numbers, schema=schema,
            )  # fmt: skip
            given = _same_columns(given, call, part)
            yield call


def keys_or_rows(schema: Schema, data: Any) -> Any:
    """What a deletion is given, as rows: keys may be given bare, one or a list of them.

    A key of one column is its value, one of several a tuple.  A tuple for a key of one column is a list.
    """
    if isinstance(data, Set):
        data = list(data)
    if len(schema.key_ids) > 1:
        return _keys_of_several(schema, data)
    name = schema.key_names[0]
    if isinstance(data, range | np.ndarray | pa.Array | pa.ChunkedArray):
        return data if isinstance(data, np.ndarray) and data.dtype.names else {name: data}
    if isinstance(data, list | tuple) and not is_row(data):
        return data if data and _has_columns(data[0]) else {name: data}
    if _has_columns(data):
        return [data] if is_row(data) and not isinstance(data, Mapping) else data
    one = isinstance(data, str | bytes | bytearray | pa.Scalar) or not isinstance(data, Iterable)
    return {name: [data]} if one and not gives_rows(data) else data


def _keys_of_several(schema: Schema, data: Any) -> Any:
    """Keys of several columns as columns; all else as it is."""
    if isinstance(data, tuple) and not is_row(data) and not any(map(_is_key_or_row, data)):
        data = [data]
    elif is_row(data) and not isinstance(data, Mapping):
        return [data]
    if not isinstance(data, list | tuple) or not data or type(data[0]) is not tuple:
        return data
    names = schema.key_names
    for row, key in enumerate(data):
        if type(key) is not tuple or len(key) != len(names):
            raise InvalidArgument(f"row {row}: {shown(key)} is no key; a key is ({', '.join(names)})")
    return dict(zip(names, map(list, zip(*data, strict=True)), strict=True))


def _is_key_or_row(item: Any) -> bool:
    return isinstance(item, tuple | list) or _has_columns(item)


def _has_columns(data: Any) -> bool:
    """Whether these are rows, or one, and not a key."""
    exports = hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__")
    return exports or is_row(data)


def _require(schema: Schema, given: frozenset[int]) -> None:
    for column in schema.value_columns:
        if column.id in given:
            continue
        nested = schema.leaf_of.get(column.id)
        if nested is not None and not nested.nullable:
            raise SchemaMismatch(f"column {nested.name!r} takes no NULL; insert must give all of it")
        if nested is None and not column.nullable and column.write_default is None:
            raise SchemaMismatch(
                f"column {column.name!r} takes no NULL and has no default; insert must give it"
            )


def apply_calls(
    schema: Schema, data: Any, op_column: str, *, unique: bool = False, stored: bool = False
) -> Iterator[Call]:
    """Rows with an operation each; otherwise as ``conform_calls``."""
    if op_column in schema.by_name:
        raise InvalidArgument(f"op_column {op_column!r} is a column of the table")
    given: frozenset[int] | None = None
    for part in given_rows(data, schema):
        batch, rows = part.batch, part.first
        conformed = conform(schema, batch, allow_extra=(op_column,), first_row=rows, stored=stored)
        names = conformed.extra.get(op_column)
        if names is None:
            raise SchemaMismatch(f"column {op_column!r} with the operations is missing")
        named, _ = extent_of(names, op_column)
        if named != batch.num_rows:
            raise broken(op_column, f"{named} rows in a batch of {batch.num_rows}")
        ops = _ops(names, op_column, rows)
        has_values = len(conformed.given) > len(schema.key_ids)
        if not has_values and (ops // 2 == rules.CALL_UPDATE // 2).any():
            raise InvalidArgument("update needs a column to set beside the key columns")
        status = conformed.status
        if status is not None:
            # A delete needs its key only: NULLs in other columns of its row mean nothing.
            status = _status_of_ops(schema, conformed.block, ops, status)
        if conformed.block.rows:
            call = Call(
                ops, conformed.block, status,
                unique=unique, continues=given is not None, numbers=part.numbers, schema=schema,
            )  # fmt: skip
            given = _same_columns(given, call, part)
            yield call


def _same_columns(given: frozenset[int] | None, call: Call, part: GivenRows) -> frozenset[int]:
    """The columns of a part, which all parts of the call must give, unless its rows say so of themselves."""
    columns = frozenset(call.block.columns)
    if given is not None and given != columns and (call.unique or not part.from_rows):
        raise SchemaMismatch("the batches of one call have different columns")
    return columns


def _ops(names: pa.Array, op_column: str, first_row: int) -> np.ndarray:
    """Codes of operation names."""
    if not len(names):
        return np.empty(0, np.uint8)
    checked = ColumnBuffers.from_arrow(cast(names, _TEXT, op_column, first_row), _TEXT, op_column, first_row)
    encoded = checked.to_arrow(_TEXT).dictionary_encode()
    codes = []
    for name in encoded.dictionary.to_pylist():
        if name not in _CODES:
            raise InvalidArgument(f"operation {name!r} in {op_column!r} is none of {', '.join(_CODES)}")
        codes.append(_CODES[name])
    if encoded.null_count:
        raise InvalidArgument(f"column {op_column!r} has a NULL; every row needs an operation")
    table = np.array(codes, np.uint8)
    picked: np.ndarray = table[encoded.indices.to_numpy(zero_copy_only=False)]
    return picked


def _status_of_ops(schema: Schema, block: RowBlock, ops: np.ndarray, status: np.ndarray) -> np.ndarray | None:
    key_null = np.zeros(block.rows, bool)
    for column_id in schema.key_ids:
        column = block.columns[column_id]
        if column.validity is not None:
            key_null |= ~column.valid_mask()
    deletes = (ops == rules.CALL_DELETE) | (ops == rules.CALL_DELETE_IGNORE)
    out = np.where(deletes & ~key_null, np.uint8(0), status).astype(np.uint8)
    return out if out.any() else None

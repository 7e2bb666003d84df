"""Columns between a table and Spark: types, and batches with exactly the schema that Spark expects.

Spark has no unsigned integers: uint8, uint16 and uint32 are read as the next wider type, uint64 as
decimal(20,0), and both come back.  Its times have microseconds, whatever those of a column have.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import DataType, StructField, StructType

from kudu_core.common.rows.rowblock import ColumnBuffers
from kudu_core.common.schema.column_names import OP_COLUMN
from kudu_core.common.schema.nested_columns import NestedColumn, nested_field, nested_name
from kudu_core.common.schema.schema import Schema
from kudu_core.common.types.casts import cast
from kudu_core.common.types.foreign import check_layout
from kudu_core.common.types.nested.nested_casts import nested_cast
from kudu_core.common.types.nested.nested_layout import is_nested, layout_of
from kudu_core.common.types.nested.nested_nodes import storage_of
from kudu_core.common.types.types import ColumnType
from kudu_core.engines.spark.versions.wire import wire_schema, wire_type
from kudu_core.errors import InvalidArgument, NotSupported, SchemaMismatch
from kudu_core.table.jobs.commit import APPLY

_WIDER = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.date64(): pa.date32(),
    pa.time32("s"): pa.time64("us"),
    pa.time32("ms"): pa.time64("us"),
}


def spark_type(column: ColumnType | NestedColumn) -> DataType:
    """The Spark type that holds the values of a column; its times have microseconds."""
    type_ = column.type if isinstance(column, NestedColumn) else column.declared
    return from_arrow_type(_for_spark(type_), prefer_timestamp_ntz=True)


def _for_spark(type_: pa.DataType) -> pa.DataType:
    """An Arrow type that Spark has, for the values of another; ``NotSupported`` where there is none."""
    storage = storage_of(type_)
    if not is_nested(storage):
        return _flat_for_spark(ColumnType.from_arrow(type_))
    if pa.types.is_struct(storage):
        return pa.struct([field.with_type(_for_spark(field.type)) for field in storage])
    if pa.types.is_map(storage):
        key, item = (f.with_type(_for_spark(f.type)) for f in (storage.key_field, storage.item_field))
        return pa.map_(key, item)
    element = storage.value_field
    return pa.list_(element.with_type(_for_spark(element.type)))


def _flat_for_spark(type_: ColumnType) -> pa.DataType:
    if type_.is_long_decimal or pa.types.is_interval(type_.value.declared):
        raise NotSupported(f"Spark has no type for {type_}; leave the column out with columns=")
    stored = pa.null() if pa.types.is_null(type_.value.declared) else type_.arrow
    return _WIDER.get(stored, stored)


def spark_schema(schema: Schema, names: Sequence[str] | None = None) -> StructType:
    """Columns of a table as a Spark schema; None: all."""
    fields = []
    for column in schema.declared if names is None else [schema.seen(name) for name in names]:
        type_ = column if isinstance(column, NestedColumn) else column.type
        try:
            fields.append(StructField(column.name, spark_type(type_), column.nullable))
        except (NotSupported, PySparkException) as error:
            raise NotSupported(f"column {column.name!r}: {error}") from None
    return StructType(fields)


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema in which Spark wants batches of these columns."""
    return wire_schema(schema)


def to_spark(batch: pa.RecordBatch, wanted: pa.Schema) -> pa.RecordBatch:
    """A batch of a scan, with exactly Spark's types and nullability.  Equal types are not copied."""
    arrays = [
        column if column.type == field.type else _cast(column, field)
        for column, field in zip(batch.columns, wanted, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=wanted)


def _cast(column: pa.Array, field: pa.Field) -> pa.Array:
    if is_nested(column.type):
        return nested_cast(column, field.type, field.name)
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    try:
        return pc.cast(column, field.type)
    except pa.ArrowInvalid as error:
        raise SchemaMismatch(
            f"column {field.name!r}: {column.type} does not fit Spark's {field.type}: {error}"
        ) from None


def table_schema(schema: StructType) -> pa.Schema:
    """A Spark schema as the schema of a table to create."""
    fields = []
    for field in schema.fields:
        type_ = _arrow_type(field)
        if not is_nested(type_):
            type_ = ColumnType.from_arrow(type_).declared
        fields.append(pa.field(field.name, type_, field.nullable))
    return pa.schema(fields)


def _arrow_type(field: StructField) -> pa.DataType:
    try:
        return wire_type(field.dataType)
    except (PySparkException, TypeError, ValueError) as exc:
        kind = field.dataType.simpleString()
        raise SchemaMismatch(f"column {field.name!r}: no column type holds {kind}") from exc


def staged_columns(
    frame: StructType, schema: Schema, operation: str, sequence_by: str | None = None
) -> tuple[tuple[str, str], ...]:
    """(name, type) of the columns that a write of this frame stages.

    ``SchemaMismatch`` when the frame lacks a key column, has one that the table lacks, or one of a
    type that can never fit.  Values are checked when they are staged.
    """
    names = [field.name for field in frame.fields]
    out = []
    given: set[str] = set()
    for field in frame.fields:
        if names.count(field.name) > 1:
            raise SchemaMismatch(f"column {field.name!r} is twice in the DataFrame; drop or rename one")
        if operation == APPLY and field.name == OP_COLUMN:
            if _arrow_type(field) != pa.string():
                raise SchemaMismatch(f"column {OP_COLUMN!r} names each row's operation; make it a string")
            out.append((OP_COLUMN, "string"))
            continue
        nested = schema.nested_by_name.get(field.name)
        if nested is not None:
            _check_nested(field, nested)
            out.append((nested.name, nested_name(nested.field)))
            given.update(leaf.name for leaf in nested.layout.leaves)
            continue
        column = schema.by_name.get(field.name)
        if column is None and field.name == sequence_by:
            out.append((field.name, ColumnType.from_arrow(_arrow_type(field)).name))
            continue
        if column is None:
            raise SchemaMismatch(_unknown(field.name, schema))
        if column.id in schema.leaf_of:
            raise SchemaMismatch(
                f"column {field.name!r} is a part of column {schema.leaf_of[column.id].name!r}, which a "
                "DataFrame gives as a whole"
            )
        _check_type(field, column.type)
        out.append((column.name, column.type.name))
    for name in schema.key_names:
        if name not in names:
            raise SchemaMismatch(
                f"key column {name!r} is missing in the DataFrame; the key is {', '.join(schema.key_names)}"
            )
    if operation == APPLY and OP_COLUMN not in names:
        raise SchemaMismatch(
            f'operation "apply" needs a string column {OP_COLUMN!r}: the operation of each row'
        )
    if sequence_by is not None and sequence_by not in names:
        raise SchemaMismatch(f"the DataFrame has no column {sequence_by!r}, which sequence_by names")
    given.update(name for name, _ in out if name in schema.by_name)
    _check_given(given, schema, operation)
    return tuple(out)


def _check_given(names: set[str], schema: Schema, operation: str) -> None:
    """What only some operations need or refuse; the commit would say it too, after the work."""
    keys = ", ".join(schema.key_names)
    if operation.startswith("delete") and len(names) > len(schema.key_names):
        raise SchemaMismatch(f"a delete takes the key columns only; write df.select({keys})")
    if operation.startswith("update") and len(names) == len(schema.key_names):
        raise SchemaMismatch(f"an update needs a column to set beside the key ({keys})")
    if operation.startswith("insert"):
        for column in schema.value_columns:
            required = column.id in schema.required_leaves or (
                not column.nullable and column.write_default is None
            )
            if required and column.name not in names:
                raise SchemaMismatch(
                    f"column {column.name!r} takes no NULL and has no default; an insert must give it"
                )


def _unknown(name: str, schema: Schema) -> str:
    close = difflib.get_close_matches(name.lower(), [n.lower() for n in schema.declared_names], 1)
    like = [n for n in schema.declared_names if close and n.lower() == close[0]]
    hint = f" (did you mean {like[0]!r}?)" if like else ""
    return (
        f"the table has no column {name!r}{hint}; it has {', '.join(schema.declared_names)}: "
        "select() those, or drop() the others"
    )


def _check_type(field: StructField, type_: ColumnType) -> None:
    source = _arrow_type(field)
    if type_.arrow == pa.uint64() and pa.types.is_decimal(source) and source.scale == 0:
        return
    try:
        cast(pa.nulls(0, source), type_, field.name)  # pa.array would import pandas
    except SchemaMismatch:
        raise SchemaMismatch(
            f"column {field.name!r} is {type_} ({spark_type(type_).simpleString()} in Spark), "
            f"the DataFrame has {field.dataType.simpleString()}; cast it"
        ) from None


def _check_nested(field: StructField, nested: NestedColumn) -> None:
    try:
        nested_cast(pa.nulls(0, _arrow_type(field)), nested.layout.arrow, field.name)
    except SchemaMismatch as error:
        raise SchemaMismatch(
            f"column {field.name!r} is {nested.type} ({spark_type(nested).simpleString()} in Spark), "
            f"the DataFrame has {field.dataType.simpleString()}; cast it ({error})"
        ) from None


def to_table(batch: pa.RecordBatch, columns: Sequence[tuple[str, str]]) -> pa.RecordBatch:
    """A batch from Spark in the table's types, checked; ``SchemaMismatch`` for a value that does not fit."""
    arrays: list[Any] = []
    for position, (name, type_name) in enumerate(columns):
        array = batch.column(position)
        field = nested_field(name, type_name)
        if field is not None:
            layout = layout_of(name, field.type, field.nullable)
            arrays += layout.flatten(nested_cast(array, field.type, name))
            continue
        type_ = ColumnType.parse(type_name)
        arrays.append(cast(unsigned(array, type_, name), type_, name))
    try:
        return pa.RecordBatch.from_arrays(arrays, schema=staged_schema(columns))
    except pa.ArrowInvalid as exc:
        for array, name in zip(arrays, staged_schema(columns).names, strict=True):
            check_layout(array, name)
        raise SchemaMismatch(f"the columns make no rows: {exc}") from None


def unsigned(array: pa.Array, type_: ColumnType, name: str) -> pa.Array:
    """Of a column of uint64, which Spark has as decimals, the integers; of any other the array."""
    if type_.arrow != pa.uint64() or not pa.types.is_decimal(array.type):
        return array
    check_layout(array, name)
    try:
        return pc.cast(array, pa.uint64())
    except pa.ArrowInvalid as exc:
        raise SchemaMismatch(f"column {name!r}: {array.type} does not fit uint64: {exc}") from None


def check_rows(batch: pa.RecordBatch) -> None:
    """Refuse a batch that is not sound in every buffer and cell, before anything copies its rows."""
    for array, name in zip(batch.columns, batch.schema.names, strict=True):
        check_layout(array, name)
        if pa.types.is_decimal128(array.type):  # of the smallest number Arrow finds its digits few enough
            ColumnBuffers.from_arrow(array, ColumnType.from_arrow(array.type), name)


def binary_cells(cells: Sequence[bytes]) -> pa.Array:
    """(n,) binary.  ``pa.array`` would import pandas, which takes a new process longer than all it does."""
    offsets = np.zeros(len(cells) + 1, np.int32)
    np.cumsum([len(cell) for cell in cells], out=offsets[1:])
    return pa.Array.from_buffers(
        pa.binary(), len(cells), [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(cells))]
    )


def staged_schema(columns: Sequence[tuple[str, str]]) -> pa.Schema:
    """Arrow schema of staged runs."""
    fields = []
    for name, type_name in columns:
        field = nested_field(name, type_name)
        if field is None:
            fields.append(pa.field(name, ColumnType.parse(type_name).arrow))
        else:
            leaves = layout_of(name, field.type, field.nullable).leaves
            fields += [pa.field(leaf.name, leaf.type.arrow) for leaf in leaves]
    return pa.schema(fields)


def projected(schema: Schema, wanted: StructType) -> list[str]:
    """Names of the columns that a user's own ``.schema(...)`` asks for; the types must be ours."""
    for field in wanted.fields:
        column = schema.nested_by_name.get(field.name) or schema.by_name.get(field.name)
        if column is None:
            raise SchemaMismatch(_unknown(field.name, schema))
        have = spark_type(column if isinstance(column, NestedColumn) else column.type)
        if have != field.dataType:
            raise SchemaMismatch(
                f"column {field.name!r} is read as {have.simpleString()}, "
                f"not {field.dataType.simpleString()}; leave .schema() out and cast afterwards"
            )
        if column.nullable and not field.nullable:
            raise SchemaMismatch(f"column {field.name!r} may be NULL; the schema given says it is not")
    if not wanted.fields:
        raise InvalidArgument("the schema given has no columns")
    return [field.name for field in wanted.fields]

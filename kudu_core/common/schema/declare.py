"""What a caller declares of a table: columns, and the primary key, made into a schema.

Everything that no table can have is refused here with an ``InvalidArgument`` that names the column.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from kudu_core.common.schema.column_names import checked_name, first_repeated, listed_names
from kudu_core.common.schema.encodings import COMPRESSIONS, ENCODINGS, encodings_of
from kudu_core.common.schema.given_schema import given_schema
from kudu_core.common.schema.nested_columns import NestedColumn, missing_cell
from kudu_core.common.schema.schema import (
    Schema,
    StoredColumn,
    check_size,
    check_stored,
)
from kudu_core.common.schema.ttl import declared_ttl
from kudu_core.common.types import values
from kudu_core.common.types.nested.nested_layout import NestedLayout, is_nested, layout_of
from kudu_core.common.types.types import ColumnType, check_zone, extension_name
from kudu_core.errors import InvalidArgument, shown


@dataclass(frozen=True, slots=True)
class Column:
    """A column as a caller declares it.

    >>> columns = [kc.Column("id", "int64"), kc.Column("price", "decimal128(10,2)", default=0)]
    >>> kc.create_table(path, columns, "id").insert([{"id": 1}]).inserted
    1

    A table has up to 10,000 columns, up to 64 of them in its key; a name has up to 256 bytes of UTF-8, a
    default up to 64 KiB.

    Parameters
    ----------
    type : pa.DataType, or its name ("int64", "timestamp[us,UTC]", "decimal128(10,2)")
    nullable : key columns are never null, whatever is said here
    default : value of rows that an insert does not give; None = NULL, or, when not nullable, that
        every insert must give one
    encoding : "auto" chooses from the data, block by block.  Of numbers "plain", "rle", "delta" (no floats;
        of a key only the last column), "bitshuffle" (4 or 8 bytes); of bools "plain", "rle"; of strings
        "plain", "dictionary", "prefix".  What is asked for gives way to plain bytes where these are smaller.
    compression : "auto" (LZ4, of pages that are not packed), "none", "lz4", "zstd"; a codec stays where it
        saves a tenth.  Both codecs pack text in pages of about 8 KiB with a dictionary of the column's own
        text, where a file has 256 KiB of it and that pays.  "zstd" makes about 0.85 of what LZ4 makes of
        text; a load takes up to twice the time, and a page takes thrice as long to unpack
    comment : up to 256 characters
    """

    name: str
    type: pa.DataType | ColumnType | str
    nullable: bool = True
    default: Any = None
    encoding: str = "auto"
    compression: str = "auto"
    comment: str = ""


def declare(schema: Any, primary_key: str | Sequence[str], ttl: Any = None) -> Schema:
    """Check what ``create_table`` was given and make version 1 of the schema.

    ``schema``: of whatever has one (``given_schema.py``).
    Key columns become NOT NULL and may stand anywhere.  Every ``InvalidArgument`` names the column.
    """
    columns = [declared_column(declared) for declared in _declared(schema)]
    if not columns:
        raise InvalidArgument("a table has at least one column")
    for column in columns:
        checked_name(column.name)
    repeated = first_repeated(c.name for c in columns)
    if repeated is not None:
        raise InvalidArgument(f"column {repeated!r} is declared twice")
    key = _key_names(primary_key, [c.name for c in columns])
    stored: list[StoredColumn] = []
    nested: list[NestedColumn] = []
    for column in columns:
        made, whole = stored_columns(column, len(stored) + 1, is_key=column.name in key)
        stored += made
        nested += whole
    check_stored_names(stored)
    by_name = {column.name: column for column in stored}
    for name in key[:-1]:
        if by_name[name].encoding == "delta":
            raise InvalidArgument(f"column {name!r}: of key columns, only the last may have encoding 'delta'")
    key_ids = tuple(by_name[name].id for name in key)
    lives = declared_ttl(ttl, by_name, [id_ for one in nested for id_ in one.ids])
    declared = Schema(1, tuple(stored), key_ids, len(stored) + 1, tuple(nested), ttl=lives)
    check_size(declared)
    return declared


def stored_columns(
    column: Column, first_id: int, *, is_key: bool
) -> tuple[list[StoredColumn], list[NestedColumn]]:
    """The stored columns of a declared one, with ids from ``first_id`` on, and what they are leaves of."""
    type_ = column.type
    if not isinstance(type_, pa.DataType) or not is_nested(type_):
        return [store(column, first_id, is_key=is_key)], []
    checked_name(column.name)
    what = f"column {column.name!r}"
    if is_key:
        raise InvalidArgument(f"{what}: a key cannot hold {type_}")
    if column.default is not None:
        raise InvalidArgument(f"{what}: a column of lists, structs or maps has no default but NULL")
    if column.encoding != "auto":
        raise InvalidArgument(f"{what}: the encoding of {type_} is 'auto', not {column.encoding!r}")
    nullable = bool(column.nullable)
    layout = layout_of(column.name, type_, nullable)
    stored = [
        stored_leaf(layout, place, first_id + place, column.compression)
        for place in range(len(layout.leaves))
    ]
    ids = tuple(one.id for one in stored)
    return stored, [NestedColumn(column.name, type_, nullable, column.comment, ids)]


def stored_leaf(layout: NestedLayout, place: int, column_id: int, compression: str) -> StoredColumn:
    """The stored column of a leaf, whose default says that the nested column is NULL, where it may be."""
    leaf = layout.leaves[place]
    declared = Column(leaf.name, leaf.type, leaf.nullable, compression=compression)
    missing = missing_cell(layout, place)
    made = store(declared, column_id, is_key=False)
    return replace(made, read_default=missing, write_default=missing if layout.nullable else None)


def check_stored_names(columns: Sequence[StoredColumn]) -> None:
    """``InvalidArgument`` where a column is called as a part of a nested one is stored."""
    repeated = first_repeated(c.name for c in columns)
    if repeated is not None:
        raise InvalidArgument(
            f"column {repeated!r} is called as a part of a nested column is; rename one of the two"
        )


def _declared(schema: Any) -> list[Any]:
    return [Column(*given) if isinstance(given, tuple) else given for given in given_schema(schema)]


def declared_column(declared: Any) -> Column:
    """A declared column; an Arrow field is one without a default."""
    if isinstance(declared, Column):
        return declared
    if isinstance(declared, pa.Field):
        comment = (declared.metadata or {}).get(b"comment", b"").decode("utf-8", "replace")
        try:
            return Column(declared.name, _type_of(declared), declared.nullable, comment=comment)
        except UnicodeDecodeError as exc:
            raise InvalidArgument(f"the name of a field is no UTF-8: {shown(exc.object)}") from None
    raise InvalidArgument(f"a column is declared by a Column or a pa.Field, not {declared!r}")


def _type_of(field: pa.Field) -> pa.DataType | ColumnType:
    """Of a field; an extension type that this process does not know is told by its metadata."""
    known = {k: v for k, v in (field.metadata or {}).items() if k.startswith(b"ARROW:extension:")}
    if not known or isinstance(field.type, pa.BaseExtensionType):
        return field.type
    return ColumnType.parse(extension_name(field.with_metadata(known)))


def _key_names(primary_key: str | Sequence[str], names: Sequence[str]) -> tuple[str, ...]:
    if not isinstance(primary_key, Iterable):
        raise InvalidArgument(f"a primary key is a name, or names in their order, not {shown(primary_key)}")
    key = (primary_key,) if isinstance(primary_key, str) else tuple(primary_key)
    if not key:
        raise InvalidArgument("a primary key has at least one column")
    for name in key:
        if not isinstance(name, str) or name not in names:
            raise InvalidArgument(
                f"key column {shown(name)} is not a column; there are {listed_names(names)}"
            )
    repeated = first_repeated(key)
    if repeated is not None:
        raise InvalidArgument(f"column {repeated!r} is twice in the key")
    return key


def store(column: Column, column_id: int, *, is_key: bool) -> StoredColumn:
    """Check one declared column and give it an id."""
    checked_name(column.name)
    type_ = column_type(column)
    if is_key and not type_.is_key_type:
        raise InvalidArgument(f"column {column.name!r}: a key cannot hold {type_}")
    if is_key and column.default is not None:
        raise InvalidArgument(f"column {column.name!r}: a key column has no default")
    if column.encoding not in ENCODINGS:
        raise InvalidArgument(
            f"column {column.name!r}: no encoding {column.encoding!r}; there are {', '.join(ENCODINGS)}"
        )
    fitting = encodings_of(type_)
    if column.encoding not in fitting:
        raise InvalidArgument(
            f"column {column.name!r}: no encoding {column.encoding!r} of {type_}; "
            f"there are {', '.join(fitting)}"
        )
    if column.compression not in COMPRESSIONS:
        raise InvalidArgument(
            f"column {column.name!r}: no compression {column.compression!r}; "
            f"there are {', '.join(COMPRESSIONS)}"
        )
    default = None
    if column.default is not None:
        default = values.exact(type_, column.default, f"column {column.name!r}, default")
    nullable = bool(column.nullable) and not is_key
    if type_.value.name == "null" and not nullable:
        raise InvalidArgument(f"column {column.name!r}: a column of type null is nullable")
    stored = StoredColumn(
        column_id,
        column.name,
        type_,
        nullable,
        default,
        default,
        column.encoding,
        column.compression,
        column.comment,
    )
    check_stored(stored)
    return stored


def column_type(column: Column) -> ColumnType:
    """The type that was declared; ``InvalidArgument`` names the column."""
    try:
        type_ = _stored_type(column.type)
        check_zone(type_)
        return type_
    except InvalidArgument as error:
        raise InvalidArgument(f"column {column.name!r}: {error}") from None


def _stored_type(given: pa.DataType | ColumnType | str) -> ColumnType:
    if isinstance(given, ColumnType):
        return given
    return ColumnType.from_arrow(given) if isinstance(given, pa.DataType) else ColumnType.parse(given)

"""What a table's rows look like: columns with ids, and the primary key.

A column's id never changes and is never given to another column, so files and log records name columns by
id and outlive renames.  ``declare.py`` makes a schema of what a caller declares, ``alter.py`` changes one,
and ``common/rows/conform.py`` brings data into its shape.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from kudu_core.common.format.members import flag, integer, text
from kudu_core.common.run.cached import cached_property
from kudu_core.common.schema.column_names import checked_name, first_repeated, is_unicode, listed_names
from kudu_core.common.schema.encodings import COMPRESSIONS, encodings_of
from kudu_core.common.schema.nested_columns import NestedColumn, check_leaves, is_field
from kudu_core.common.schema.older_types import Older, cell_types, older_json, older_of
from kudu_core.common.schema.rowcodec import RowCodec
from kudu_core.common.schema.ttl import Ttl
from kudu_core.common.types import values
from kudu_core.common.types.keycodec import KeyCodec
from kudu_core.common.types.nested.nested_layout import is_nested
from kudu_core.common.types.types import TYPE_BINARY, ColumnType
from kudu_core.errors import InvalidArgument, shown

# Limits of what is stored.  ``declare`` and ``altered`` refuse what lies beyond before anything is written,
# ``from_json`` whatever lies there all the same.
MAX_COLUMNS = 10_000
"""Of one version: footers, records (16 bits) and TABLE carry so many."""
MAX_KEY_COLUMNS = 64
"""What the kernels that search key columns compare."""
MAX_COMMENT_CHARACTERS = 256
MAX_DEFAULT_BYTES = 64 << 10
"""Of a string's or binary's default, in UTF-8: each of the two is in every version of the schema."""
MAX_COLUMN_ID = (1 << 31) - 16
"""Ids of columns lie below; those from there on name columns of staged runs beside the table's."""
MAX_VERSION = 1 << 32
"""Versions lie below."""
MAX_SCHEMA_BYTES = 32 << 20
"""Of a version as JSON."""


@dataclass(frozen=True, slots=True)
class StoredColumn:
    """A column of a table.

    ``read_default`` (fixed when the column was added) is what rows older than the column read;
    ``write_default`` what an insert without the column stores.  Both are exact Python values of
    the type, None = NULL.
    """

    id: int
    name: str
    type: ColumnType
    nullable: bool = True
    read_default: Any = None
    write_default: Any = None
    encoding: str = "auto"
    compression: str = "auto"
    comment: str = ""
    older: Older = ()
    """What files and records of before have of it, where that is other cells."""

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "name": self.name,
            "type": self.type.name,
            "nullable": self.nullable,
            "read_default": values.to_json(self.type, self.read_default),
            "write_default": values.to_json(self.type, self.write_default),
            "encoding": self.encoding,
            "compression": self.compression,
            "comment": self.comment,
            **older_json(self.older),
        }

    @staticmethod
    def from_json(stored: Mapping[str, Any]) -> StoredColumn:
        """Raises ``KeyError``, ``TypeError`` or ``ValueError`` for what ``to_json`` never writes."""
        type_ = ColumnType.parse(stored["type"])
        column = StoredColumn(
            integer(stored["id"], 0, MAX_COLUMN_ID),
            checked_name(stored["name"]),
            type_,
            flag(stored["nullable"]),
            values.from_json(type_, stored["read_default"]),
            values.from_json(type_, stored["write_default"]),
            text(stored["encoding"]),
            text(stored["compression"]),
            text(stored["comment"]),
            older_of(stored, type_, MAX_VERSION),
        )
        check_stored(column)
        return column


@dataclass(frozen=True)
class Schema:
    """The columns of one schema version, in the order that users see.  Immutable."""

    version: int
    columns: tuple[StoredColumn, ...]
    key_ids: tuple[int, ...]
    """Ids of the key columns in key order; they may stand anywhere among the columns."""
    next_id: int = field(default=-1)
    """The id of the next column to be added: above every id ever given."""
    nested: tuple[NestedColumn, ...] = ()
    """Columns of which users see one where some of ``columns``, one beside the other, are stored."""
    cells: int = 0
    """The last version before a change of types by which cells changed; 0: there was none."""
    ttl: Ttl | None = None

    def __post_init__(self) -> None:
        if self.next_id < 0:
            object.__setattr__(self, "next_id", 1 + max((c.id for c in self.columns), default=0))

    def __reduce__(self) -> tuple[Any, ...]:
        own = (self.version, self.columns, self.key_ids, self.next_id, self.nested, self.cells, self.ttl)
        return Schema, own

    @cached_property
    def by_name(self) -> dict[str, StoredColumn]:
        return {column.name: column for column in self.columns}

    @cached_property
    def by_id(self) -> dict[int, StoredColumn]:
        return {column.id: column for column in self.columns}

    @cached_property
    def key_columns(self) -> tuple[StoredColumn, ...]:
        """In key order."""
        return tuple(self.by_id[i] for i in self.key_ids)

    @cached_property
    def value_columns(self) -> tuple[StoredColumn, ...]:
        """Every column that is not in the key, in the order of the columns."""
        return tuple(c for c in self.columns if c.id not in self.key_ids)

    @cached_property
    def _places(self) -> dict[str, int]:
        """Where each column stands in ``key_columns`` followed by ``value_columns``."""
        return {c.name: place for place, c in enumerate((*self.key_columns, *self.value_columns))}

    def keys_first(self, names: Set[str]) -> list[StoredColumn]:
        """The columns of these names: those of the key in key order, then the others in their order."""
        found = sorted(names & self._places.keys(), key=self._places.__getitem__)
        return [self.by_name[name] for name in found]

    @cached_property
    def key_names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.key_columns)

    @cached_property
    def key_codec(self) -> KeyCodec:
        """Encodes and decodes one key."""
        return KeyCodec([(column.name, column.type) for column in self.key_columns])

    @cached_property
    def row_codec(self) -> RowCodec:
        """Keys and rows one at a time, in compiled code."""
        return RowCodec(self.columns, self.key_columns, frozenset(self.leaf_of), self.required_leaves)

    @cached_property
    def cell_types(self) -> dict[int, ColumnType]:
        """By id, of the columns that have changed their cells: of which type they are now."""
        return cell_types(self.columns)

    def renewed(self) -> Schema:
        """The same columns in a table that has no rows yet."""
        return replace(self, version=1, cells=0, columns=tuple(replace(c, older=()) for c in self.columns))

    @cached_property
    def kept(self) -> dict[Any, Any]:
        """What others have made for this schema, and keep as long as it lives."""
        return {}

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Of the stored columns."""
        return tuple(column.name for column in self.columns)

    @cached_property
    def leaf_of(self) -> dict[int, NestedColumn]:
        """The nested column that a stored one is a leaf of, by id."""
        return {id_: one for one in self.nested for id_ in one.ids}

    @cached_property
    def required_leaves(self) -> frozenset[int]:
        """Ids of the leaves of nested columns that take no NULL."""
        return frozenset(id_ for id_, one in self.leaf_of.items() if not one.nullable)

    @cached_property
    def nested_by_name(self) -> dict[str, NestedColumn]:
        return {one.name: one for one in self.nested}

    @cached_property
    def declared(self) -> tuple[StoredColumn | NestedColumn, ...]:
        """The columns that users see, in their order."""
        if not self.nested:
            return self.columns
        seen = [self.leaf_of.get(column.id, column) for column in self.columns]
        return tuple({one.name: one for one in seen}.values())

    @cached_property
    def declared_names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.declared)

    @cached_property
    def arrow(self) -> pa.Schema:
        """What a scan of all columns gives."""
        return pa.schema([declared_field(column) for column in self.declared])

    def column(self, name: str) -> StoredColumn:
        """The column of that name; ``InvalidArgument`` lists the table's columns otherwise."""
        found = self.by_name.get(name)
        if found is None:
            raise self._unknown(name)
        return found

    def seen(self, name: str) -> StoredColumn | NestedColumn:
        """The column that users see under a name, or the field of a struct ("a.b"); ``InvalidArgument``."""
        if self.nested:
            found = self.nested_by_name.get(name)
            if found is not None:
                return found
            part = self.part(name)
            if part is not None:
                return part
        column = self.column(name)
        if column.id in self.leaf_of and not is_field(name):
            raise self._unknown(name)
        return column

    def _unknown(self, name: str) -> InvalidArgument:
        nested = self.nested_by_name.get(name) or (self.part(name) if self.nested else None)
        if nested is not None:
            return InvalidArgument(
                f"column {name!r} is {nested.type}, and a flat one is asked for: a field of structs is "
                f'named with dots, as "{name}.x"'
            )
        return InvalidArgument(f"no column {shown(name)}; the table has {listed_names(self.declared_names)}")

    def null_test(self, name: str) -> tuple[str, bool] | None:
        """Of a nested column, which stored one says where it is NULL, and whether it does so by being true;
        None of any other."""
        nested = self.nested_by_name.get(name) or (self.part(name) if self.nested else None)
        if nested is None:
            return None
        test = nested.layout.null_test()
        return (self.key_names[0], False) if test is None else (test[0], test[1] == "is_true")

    def type_of(self, name: str) -> ColumnType | None:
        """The type of a stored column; None: there is no such column."""
        found = self.by_name.get(name)
        return None if found is None else found.type

    def part(self, name: str) -> NestedColumn | None:
        """The nested field of a struct by its name with dots, as a column; None: there is none, or it is flat
        and has a stored column of that name."""
        path = name.split(".")
        whole = self.nested_by_name.get(path[0]) if len(path) > 1 else None
        found = None if whole is None else whole.part(path[1:])
        return found if found is not None and is_nested(found.type) else None

    def project(self, names: Sequence[str] | None) -> tuple[StoredColumn, ...]:
        """The columns of these names in this order, None for all; each name at most once."""
        if names is None:
            return self.columns
        if isinstance(names, str):
            raise InvalidArgument(f"columns is a list of names: [{names!r}]")
        picked = tuple(self.column(name) for name in names)
        if (repeated := first_repeated(c.name for c in picked)) is not None:
            raise InvalidArgument(f"column {repeated!r} is asked for twice")
        return picked

    @cached_property
    def json_bytes(self) -> int:
        """What ``to_json`` takes in a file."""
        return len(json.dumps(self.to_json(), separators=(",", ":")))

    def to_json(self) -> dict[str, Any]:
        return {
            "version": self.version,
            "columns": [column.to_json() for column in self.columns],
            "key": list(self.key_ids),
            "next_id": self.next_id,
            **({"nested": [one.to_json() for one in self.nested]} if self.nested else {}),
            **({"cells": self.cells} if self.cells else {}),
            **({} if self.ttl is None else {"ttl": self.ttl.to_json()}),
        }

    @staticmethod
    def from_json(stored: Mapping[str, Any]) -> Schema:
        """Raises ``KeyError``, ``TypeError`` or ``ValueError`` for what ``to_json`` never writes."""
        _check_counts(len(stored["columns"]), len(stored["key"]))
        columns = tuple(StoredColumn.from_json(column) for column in stored["columns"])
        schema = Schema(
            integer(stored["version"], 1, MAX_VERSION),
            columns,
            tuple(map(integer, stored["key"])),
            integer(stored["next_id"], 1, MAX_COLUMN_ID + 1),
            tuple(NestedColumn.from_json(one) for one in stored.get("nested", ())),
            integer(stored.get("cells", 0), 0, MAX_VERSION),
            Ttl.from_json(stored.get("ttl"), columns),
        )
        if any(column.older and column.older[-1][0] > schema.cells for column in columns):
            raise ValueError(f"cells changed after version {schema.cells}, the last one before a change")
        check_leaves(columns, schema.nested)
        if len(schema.by_id) != len(columns) or len(schema.by_name) != len(columns):
            raise ValueError("two columns share an id or a name")
        if not schema.key_ids or not set(schema.key_ids) <= schema.by_id.keys():
            raise ValueError(f"key {schema.key_ids} names columns that do not exist")
        if len(set(schema.key_ids)) != len(schema.key_ids):
            raise ValueError(f"a column is twice in the key {schema.key_ids}")
        if any(c.nullable or not c.type.is_key_type for c in schema.key_columns):
            raise ValueError("a key column takes NULL, or has a type that no key can hold")
        if any(c.id < 0 or c.id >= schema.next_id for c in columns):
            raise ValueError("a column's id is not below next_id")
        return schema


def arrow_schema(columns: Iterable[StoredColumn]) -> pa.Schema:
    """The Arrow schema of these columns as they are stored; comments are metadata of fields."""
    return pa.schema([pa.field(c.name, c.type.arrow, c.nullable, _metadata_of(c)) for c in columns])


def declared_field(column: StoredColumn | NestedColumn) -> pa.Field:
    """A column as its user declared it."""
    if isinstance(column, NestedColumn):
        return column.field
    return pa.field(column.name, column.type.declared, column.nullable, _metadata_of(column))


def _metadata_of(column: StoredColumn) -> dict[bytes, bytes] | None:
    metadata = column.type.metadata if column.type.is_named else {}
    if column.comment:
        return {**metadata, b"comment": column.comment.encode()}
    return metadata or None


def _check_counts(columns: int, key_columns: int) -> None:
    if columns > MAX_COLUMNS:
        raise InvalidArgument(
            f"{columns:,} columns; a table has at most {MAX_COLUMNS:,}: put further ones into another"
        )
    if key_columns > MAX_KEY_COLUMNS:
        raise InvalidArgument(f"a key of {key_columns} columns; at most {MAX_KEY_COLUMNS} make a key")


def check_size(schema: Schema) -> None:
    """``InvalidArgument`` for a new version that the files of a table do not take."""
    _check_counts(len(schema.columns), len(schema.key_ids))
    if schema.version >= MAX_VERSION or schema.next_id > MAX_COLUMN_ID:
        raise InvalidArgument(
            f"schema version {schema.version}, next column id {schema.next_id}: versions end below "
            f"{MAX_VERSION}, ids of columns below {MAX_COLUMN_ID}; make another table"
        )
    if schema.json_bytes > MAX_SCHEMA_BYTES:
        raise InvalidArgument(
            f"{len(schema.columns):,} columns with their names, comments and defaults take "
            f"{schema.json_bytes:,} bytes; at most {MAX_SCHEMA_BYTES:,} are stored: make some of them shorter"
        )


def check_stored(column: StoredColumn) -> None:
    """``InvalidArgument`` for what no file holds, or no reader takes."""
    if column.encoding not in encodings_of(column.type) or column.compression not in COMPRESSIONS:
        raise InvalidArgument(
            f"column {column.name!r}: encoding {shown(column.encoding)} or compression "
            f"{shown(column.compression)} is not of {column.type}"
        )
    comment = column.comment
    if not isinstance(comment, str) or len(comment) > MAX_COMMENT_CHARACTERS or not is_unicode(comment):
        raise InvalidArgument(
            f"column {column.name!r}: a comment is text of up to {MAX_COMMENT_CHARACTERS} characters that "
            f"UTF-8 can hold, not {shown(comment)}"
        )
    if column.type.kind != TYPE_BINARY:
        return
    for default in {column.read_default, column.write_default} - {None}:
        if isinstance(default, str) and not is_unicode(default):
            raise InvalidArgument(
                f"column {column.name!r}: default {shown(default)} cannot be written as UTF-8"
            )
        stored = values.physical(column.type, default)
        assert isinstance(stored, bytes)
        if (size := len(stored)) > MAX_DEFAULT_BYTES:
            raise InvalidArgument(
                f"column {column.name!r}: a default of {size:,} bytes; at most {MAX_DEFAULT_BYTES:,} are kept"
            )

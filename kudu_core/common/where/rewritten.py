"""Predicates that pyarrow has serialised, brought to the types and columns of a table.

Arrow has few functions for views, half floats, dictionaries and extension types, which is why columns of such
types are seen as they are stored (``seen.py``).  Constants of such types become those of the stored types
here, so that a constant of a column's own type compares with it; and the field of a struct becomes the column
in which it is stored.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

import pyarrow as pa

from kudu_core.common.types.stored_arrays import dictionary_values
from kudu_core.common.types.types import ColumnType
from kudu_core.common.where import expressions
from kudu_core.common.where.meant import COMPARISONS, meant

Words: TypeAlias = list[tuple[str, str]]
NullTest: TypeAlias = Callable[[str], tuple[str, bool] | None]
TypeOf: TypeAlias = Callable[[str], ColumnType | None]

_t = pa.types
_OPTIONS = "_type_name"
"""A field that a function's options have beside their own."""


def _no_test(_: str) -> None:
    return None


def rewritten(
    batch: pa.RecordBatch, words: Words, null_test: NullTest = _no_test, type_of: TypeOf = _no_test
) -> pa.Buffer | None:
    """An expression, as ``expressions.read_serialised`` reads it, with other constants and references; None
    where all can stay.

    ``null_test``: of the name of a column that is stored as several, which of these says where it is NULL,
    and whether it does so by being true or by being NULL itself; None of any other column.  ``type_of``: the
    type of a column, for constants that are not of it; None: not known.  ``InvalidArgument`` for those that
    no cell can be.
    """
    flat = _null_tests(_fields(_flat_references(words), batch), null_test)
    given = batch.columns
    columns = [plain(column) for column in given]
    _mean(flat, columns, type_of)
    if flat is words and all(new is old for new, old in zip(columns, given, strict=True)):
        return None
    if columns:  # of none Arrow would not know that there is one row
        batch = pa.RecordBatch.from_arrays(columns, names=batch.schema.names)
    return expressions.written(batch, flat)


def _flat_references(words: Words) -> Words:
    """``pc.field("a", "b")`` as the column "a.b"; the same list where there is none."""
    if all(word != "nested_field_ref" for word, _ in words):
        return words
    flat: Words = []
    rest = iter(words)
    for word, value in rest:
        if word == "nested_field_ref":
            word, value = "field_ref", ".".join(next(rest)[1] for _ in range(int(value)))
        flat.append((word, value))
    return flat


def _fields(words: Words, batch: pa.RecordBatch) -> Words:
    """``pc.struct_field(pc.field("a"), "b")`` as the column "a.b"; the same list where there is none."""
    made: Words = []
    for word in words:
        made.append(word)
        if word != ("end", "struct_field") or len(made) < 4:
            continue
        call, (kind, name), (_, options), _ = made[-4:]
        if call != ("call", "struct_field") or kind != "field_ref":
            continue
        path = batch.column(int(options)).field("field_ref")[0].as_py()
        if path.startswith(".") and not {"[", "\\"} & set(path):  # by names, all of them plain
            made[-4:] = [("field_ref", name + path)]
    return words if len(made) == len(words) else made


def _null_tests(words: Words, null_test: NullTest) -> Words:
    """``is_null`` and ``is_valid`` of a column that is stored as several; the same list where none is."""
    made: Words = []
    at, changed = 0, False
    while at < len(words):
        word, value = words[at]
        inner = words[at + 1] if at + 1 < len(words) else ("", "")
        asks = (word, inner[0]) == ("call", "field_ref") and value in ("is_null", "is_valid")
        test = null_test(inner[1]) if asks else None
        if test is None:
            made.append(words[at])
            at += 1
            continue
        changed = True
        name, is_flag = test
        end = words.index(("end", value), at)
        if not is_flag:
            made += [words[at], ("field_ref", name), *words[at + 2 : end + 1]]
        elif value == "is_null":
            made.append(("field_ref", name))
        else:
            made += [("call", "invert"), ("field_ref", name), ("end", "invert")]
        at = end + 1
    return made if changed else words


def _mean(words: Words, constants: list[pa.Array], type_of: TypeOf) -> None:
    """Put in place of constants beside a column what they mean there."""
    for at, (word, function) in enumerate(words):
        if word != "call" or function not in COMPARISONS:
            continue
        beside = dict(words[at + 1 : at + 3])
        type_ = type_of(beside.get("field_ref", ""))
        if type_ is None or words[at + 3 : at + 4] != [("end", function)]:
            continue
        place, name = int(beside.get("literal", beside.get("options", -1))), beside["field_ref"]
        if place < 0:
            continue
        if function == "is_in":
            in_list = partial(meant, type_=type_, name=name, function=function)
            constants[place] = _listed_otherwise(constants[place], in_list)
        else:
            constants[place] = meant(constants[place], type_, name, function)


def plain(array: pa.Array) -> pa.Array:
    """Constants, or the options of a function, of types for which Arrow has functions."""
    type_ = array.type
    if isinstance(type_, pa.BaseExtensionType):
        return plain(array.storage)
    if _t.is_dictionary(type_):
        return plain(dictionary_values(array))
    if type_ == pa.string_view():
        return array.cast(pa.string())
    if type_ == pa.binary_view() or _t.is_fixed_size_binary(type_):
        return array.cast(pa.binary())
    if _t.is_float16(type_):
        return array.cast(pa.float32())
    if _t.is_decimal(type_) and type_.bit_width < 128:
        return array.cast(pa.decimal128(type_.precision, type_.scale))
    if _t.is_struct(type_) and type_.get_field_index(_OPTIONS) >= 0:
        return _plain_options(array)
    return array


def _plain_options(array: pa.StructArray) -> pa.StructArray:
    return _listed_otherwise(array, plain)


def _listed_otherwise(array: pa.StructArray, change: Callable[[pa.Array], pa.Array]) -> pa.StructArray:
    """Options of a function with other values in their lists; the same where all stay."""
    fields = [array.field(place) for place in range(array.type.num_fields)]
    made = [_changed_list(field, change) if _t.is_list(field.type) else field for field in fields]
    if all(new is old for new, old in zip(made, fields, strict=True)):
        return array
    return pa.StructArray.from_arrays(made, [field.name for field in array.type])


def _changed_list(array: pa.ListArray, change: Callable[[pa.Array], pa.Array]) -> pa.ListArray:
    values = array.values
    changed = change(values)
    return array if changed is values else pa.ListArray.from_arrays(array.offsets, changed)


__all__ = ["plain", "rewritten"]

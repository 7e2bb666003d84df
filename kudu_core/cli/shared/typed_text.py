"""Text of a command line as values of a table's types: keys, defaults, bounds, options."""

from __future__ import annotations

import json
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from kudu_core.cli.shared.failures import BadUsage

if TYPE_CHECKING:
    import pyarrow as pa

_TRUE, _FALSE = ("true", "t", "1"), ("false", "f", "0")


def value_of(text: Any, type_: pa.DataType, what: str) -> Any:
    """Text, or a value of JSON, as a value of a type: the same spellings as in the JSON of answers.

    Raises
    ------
    BadUsage
        It is none; ``what`` and the type are named.
    """
    import pyarrow as pa

    if text is None:
        return None
    given = text if isinstance(text, str) else json.dumps(text)
    try:
        if isinstance(type_, pa.BaseExtensionType):
            if type_.extension_name == "arrow.uuid":
                return UUID(given)
            type_ = pa.bool_() if type_.extension_name == "arrow.bool8" else type_.storage_type
        if pa.types.is_dictionary(type_):
            type_ = type_.value_type
        if pa.types.is_boolean(type_):
            if given.lower() not in _TRUE + _FALSE:
                raise ValueError
            return given.lower() in _TRUE
        if pa.types.is_nested(type_):
            return json.loads(given)
        if "binary" in str(type_):
            return b64decode(given, validate=True)
        if "string" in str(type_):
            return given
        if pa.types.is_timestamp(type_) and type_.tz is not None:
            moment = datetime.fromisoformat(given)
            if moment.tzinfo is None:
                raise ValueError
        if pa.types.is_time(type_):
            from kudu_core.cli.shared.arrays_of_json import array_of_json

            return array_of_json([given], type_)[0].as_py()
        return pa.array([given]).cast(type_)[0].as_py()
    except (ValueError, NotBase64, pa.ArrowException):
        hint = ""
        if pa.types.is_timestamp(type_):
            hint = "; write it as 2026-01-31T12:00:00" + ("Z, with its zone" if type_.tz else "")
        elif "binary" in str(type_):
            hint = "; write it in base64"
        raise BadUsage(f"{what}: {given!r} does not fit {type_}{hint}") from None


def key_of(words: Sequence[str], schema: pa.Schema, names: Sequence[str]) -> tuple[Any, ...]:
    """A key: as many words as it has columns, or one JSON array of them."""
    parts: Sequence[Any] = words
    if len(names) > 1 and len(words) == 1 and words[0].lstrip().startswith("["):
        try:
            parts = json.loads(words[0])
        except ValueError:
            raise BadUsage(f"the key {words[0]!r} is no JSON array") from None
    if len(parts) != len(names):
        wanted = " ".join(name.upper() for name in names)
        given = "value was" if len(parts) == 1 else "values were"
        raise BadUsage(
            f"the key is {wanted}: {len(names)} values, and {len(parts)} {given} given; "
            "give each as an argument, or all as one JSON array"
        )
    return tuple(
        value_of(part, schema.field(name).type, f"key column {name!r}")
        for part, name in zip(parts, names, strict=True)
    )


def moment_of(text: str | None, what: str) -> Any:
    """A moment: a timestamp of the table (a whole number), ISO 8601 with its zone, or the name of a tag."""
    if text is None:
        return None
    if text.isdecimal():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return text
    if moment.tzinfo is None:
        raise BadUsage(f"{what}: {text} has no time zone; write {text}Z for UTC")
    return moment


def pairs_of(words: Iterable[str], what: str) -> dict[str, str]:
    """Words ``name=value``."""
    pairs = {}
    for word in words:
        name, sign, value = word.partition("=")
        if not sign or not name:
            raise BadUsage(f"{what} is NAME=VALUE, not {word!r}")
        pairs[name] = value
    return pairs


def options_of(words: Iterable[str]) -> dict[str, Any]:
    """Options of a table: ``history_retention_s=86400``, ``durability=group``, ``null`` for None."""
    return {name: _loose(value) for name, value in pairs_of(words, "--option").items()}


def _loose(text: str) -> Any:
    try:
        number = json.loads(text)
    except ValueError:
        return text
    return number if number is None or isinstance(number, int | float) else text


def names_of(text: str | None) -> list[str] | None:
    """Names with commas between them; None where none are given.  A name with a comma is in JSON quotes."""
    if text is None:
        return None
    if text.lstrip().startswith("["):
        try:
            return [str(name) for name in json.loads(text)]
        except ValueError:
            raise BadUsage(f"{text!r} is no JSON array of names") from None
    return [name.strip() for name in text.split(",") if name.strip()]


def bounds_of(text: str, types: Sequence[pa.DataType], what: str) -> tuple[Any, Any]:
    """A range: a JSON array of a lower and an upper bound, each a value, an array of values, or null."""
    try:
        pair = json.loads(text)
    except ValueError:
        pair = None
    if not isinstance(pair, list) or len(pair) != 2:
        raise BadUsage(f'{what} is a JSON array of two bounds, like ["2026-01-01", null], not {text!r}')
    lower, upper = (_bound(side, types, what) for side in pair)
    return lower, upper


def _bound(side: Any, types: Sequence[pa.DataType], what: str) -> Any:
    if side is None:
        return None
    parts = side if isinstance(side, list) else [side]
    made = tuple(value_of(part, type_, what) for part, type_ in zip(parts, types, strict=False))
    return made[0] if len(types) == 1 else made


def storage_of(words: Iterable[str]) -> Mapping[str, Any] | None:
    """``storage_options`` of what was given, or None."""
    return pairs_of(words, "--storage-option") or None

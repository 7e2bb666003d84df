"""One key at a time: values to encoded bytes and back.

The encoding keeps order: comparing encoded keys as bytes compares the tuples of their values.

* integers, dates, timestamps, decimals: big-endian in their own width, sign bit flipped;
* unsigned integers: big-endian;
* strings and binary: as they are in the last key column; elsewhere every byte 00 becomes 00 01,
  and 00 00 ends the cell.

So the encoding of fewer columns is a prefix of that of more.  Source: Kudu common/key_encoder.h.
Whole columns of keys are encoded by ``_ext.keys.keys`` to the same bytes: ``common/rows/keys.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kudu_core._ext.base.status import PageError
from kudu_core.common.types import values
from kudu_core.common.types.types import TYPE_BINARY, TYPE_UNSIGNED, ColumnType
from kudu_core.common.types.values import Physical
from kudu_core.errors import InvalidArgument

MAX_KEY_BYTES = 16 * 1024

# What a key of more than one value comes in; also any other mapping, told by its ``keys``.
_CONTAINERS = (tuple, list, dict)


class KeyCodec:
    """Encodes and decodes keys of these columns, in this order."""

    __slots__ = ("_biases", "_converters", "_known", "_last", "_whats", "names", "types")

    def __init__(self, columns: Sequence[tuple[str, ColumnType]]) -> None:
        assert columns, "a key has at least one column"
        self.names = tuple(name for name, _ in columns)
        self.types = tuple(type_ for _, type_ in columns)
        self._last = len(columns) - 1
        self._known = frozenset(self.names)
        self._converters = tuple(values.converter(type_) for type_ in self.types)
        self._whats = tuple(f"key column {name!r}" for name in self.names)
        self._biases = tuple(
            0 if t.kind in (TYPE_UNSIGNED, TYPE_BINARY) else 1 << 8 * t.width - 1 for t in self.types
        )

    def encode(self, key: Any) -> bytes:
        """One whole key: a scalar (one column), a tuple or list in key order, or a dict by name.

        ``InvalidArgument`` names the column of a value that is missing, None or of a wrong type.
        """
        if self._last == 0 and not isinstance(key, _CONTAINERS) and not hasattr(key, "keys"):
            return self._cell(0, key)
        given = self._in_order(key)
        if len(given) <= self._last:
            missing = self.names[len(given)]
            raise InvalidArgument(f"key column {missing!r} is missing; a key is {', '.join(self.names)}")
        return b"".join([self._cell(i, value) for i, value in enumerate(given)])

    def encode_prefix(self, key: Any) -> bytes:
        """The first columns of a key, at least one: a lower bound of all keys that begin with it."""
        if not isinstance(key, _CONTAINERS) and not hasattr(key, "keys"):
            key = (key,)
        given = self._in_order(key)
        if not given:
            raise InvalidArgument(f"a bound has at least the first key column, {self.names[0]!r}")
        return b"".join([self._cell(i, value) for i, value in enumerate(given)])

    def encode_physical(self, cells: Sequence[Physical]) -> bytes:
        """Physical values, already checked, of the first ``len(cells)`` columns."""
        return b"".join([self._bytes(i, cell) for i, cell in enumerate(cells)])

    def decode(self, encoded: bytes) -> tuple[Any, ...]:
        """The exact Python values of one whole key.  ``PageError`` when the bytes are no key."""
        return tuple(
            values.python(type_, cell)
            for type_, cell in zip(self.types, self.decode_physical(encoded), strict=True)
        )

    def decode_physical(self, encoded: bytes) -> list[Physical]:
        """The physical values of one whole key.  ``PageError`` when the bytes are no key."""
        cells: list[Physical] = []
        at = 0
        for i, type_ in enumerate(self.types):
            if type_.kind != TYPE_BINARY:
                if at + type_.width > len(encoded):
                    raise PageError("bytes end inside a key", at)
                number = int.from_bytes(encoded[at : at + type_.width], "big")
                cells.append(number - self._biases[i])
                at += type_.width
            elif i == self._last:
                cells.append(encoded[at:])
                at = len(encoded)
            else:
                end = _terminator(encoded, at)
                cells.append(encoded[at:end].replace(b"\0\1", b"\0"))
                at = end + 2
        if at != len(encoded):
            raise PageError("bytes after the last key column", at)
        return cells

    def split(self, encoded: bytes) -> tuple[list[Physical], list[int]]:
        """The leading cells that are whole, and where each ends; what follows them may be anything.

        For bounds, which may be cut or raised anywhere.
        """
        cells: list[Physical] = []
        ends: list[int] = []
        at = 0
        for i, type_ in enumerate(self.types):
            if at == len(encoded):
                break
            if type_.kind != TYPE_BINARY:
                if at + type_.width > len(encoded):
                    break
                cells.append(int.from_bytes(encoded[at : at + type_.width], "big") - self._biases[i])
                at += type_.width
            elif i == self._last:
                cells.append(encoded[at:])
                at = len(encoded)
            else:
                try:
                    end = _terminator(encoded, at)
                except PageError:
                    break
                cells.append(encoded[at:end].replace(b"\0\1", b"\0"))
                at = end + 2
            ends.append(at)
        return cells, ends

    def decode_prefix(self, encoded: bytes) -> tuple[Any, ...]:
        """Exact Python values of the leading columns that are whole in a bound."""
        cells, _ = self.split(encoded)
        return tuple(values.python(t, cell) for t, cell in zip(self.types, cells, strict=False))

    def show(self, encoded: bytes | None) -> str:
        """A key or a bound for people; hex follows where the bytes are not whole cells."""
        if encoded is None:
            return "open"
        cells, ends = self.split(encoded)
        shown = []
        for type_, cell in zip(self.types, cells, strict=False):
            try:
                shown.append(repr(values.python(type_, cell)))
            except InvalidArgument:
                shown.append(repr(cell))
        rest = encoded[ends[-1] if ends else 0 :]
        return f"({', '.join(shown)})" + (f"+0x{rest.hex()}" if rest else "")

    def _in_order(self, key: Any) -> Sequence[Any]:
        """The values given, in key order, as far as they go without a gap."""
        if type(key) is tuple and len(key) <= self._last + 1:
            return key
        if not isinstance(key, _CONTAINERS) and not hasattr(key, "keys"):
            raise InvalidArgument(f"{key!r} is no key; a key is ({', '.join(self.names)})")
        if isinstance(key, Mapping):
            unknown = [name for name in key if name not in self._known]
            if unknown:
                raise InvalidArgument(f"{unknown[0]!r} is not a key column; a key is {', '.join(self.names)}")
            given = [key[name] for name in self.names if name in key]
            for name, later in zip(self.names, self.names[1:], strict=False):
                if name not in key and later in key:
                    raise InvalidArgument(f"key column {name!r} is missing before {later!r}")
            return given
        if len(key) > self._last + 1:
            raise InvalidArgument(f"{len(key)} values for a key of {', '.join(self.names)}")
        return key  # type: ignore[no-any-return]

    def _cell(self, i: int, value: Any) -> bytes:
        if value is None:
            raise InvalidArgument(f"{self._whats[i]} is None; key columns are never null")
        return self._bytes(i, self._converters[i](value, self._whats[i]))

    def _bytes(self, i: int, cell: Physical) -> bytes:
        type_ = self.types[i]
        if type_.kind == TYPE_BINARY:
            assert isinstance(cell, bytes)
            return cell if i == self._last else cell.replace(b"\0", b"\0\1") + b"\0\0"
        return (int(cell) + self._biases[i]).to_bytes(type_.width, "big")


def successor(encoded: bytes) -> bytes:
    """The smallest byte string greater than this one."""
    return encoded + b"\0"


def prefix_successor(encoded: bytes) -> bytes | None:
    """The smallest byte string greater than all that begin with this one; None when there is none."""
    head = encoded.rstrip(b"\xff")
    return head[:-1] + bytes((head[-1] + 1,)) if head else None


def _terminator(encoded: bytes, start: int) -> int:
    """Where the 00 00 is that ends a cell."""
    at = start
    while True:
        at = encoded.find(b"\0", at)
        if at < 0 or at + 1 >= len(encoded):
            raise PageError("bytes end inside a key", start)
        if encoded[at + 1] == 0:
            return at
        if encoded[at + 1] != 1:
            raise PageError("a byte 00 in a key is neither escaped nor an end", at)
        at += 2

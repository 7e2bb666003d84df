"""The fingerprint of a write's rows: their number, and sums of a hash of each.

It says whether two writes gave the same rows, whatever their order, their batches, their layout in Arrow
and the tasks they came through.  What is hashed is fixed for ever: docs/format-log.md, "Row fingerprint".
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from kudu_core._ext.columns import row_hash
from kudu_core._ext.keys import hashing
from kudu_core.common.format.members import integer
from kudu_core.common.rows.recast.recast_columns import cells_fit, recast_column
from kudu_core.common.rows.rowblock import ColumnBuffers
from kudu_core.common.types.types import ColumnType
from kudu_core.common.where import expressions

U64Array = npt.NDArray[np.uint64]

CHUNK_ROWS = 1 << 14
"""Rows that are hashed together: their hashes stay in a core's cache from one column to the next."""
OVERWRITING = 1 << 8
"""Added to the operation of a row that takes part in an overwrite of the table."""
IGNORING_NULL = 1 << 9
"""Added to the operation of a row whose NULLs say nothing of their columns."""
MAX_ROWS = 1 << 62
_WORD = (1 << 64) - 1


def _begun() -> U64Array:
    """XXH64 of every operation as 8 bytes: what the hash of a row begins with."""
    operations = np.arange(1 << 10, dtype=np.int64)
    hashes = np.zeros(len(operations), np.uint64)
    hashing.xxh64_column(hashing.SIGNED, 8, operations.view(np.uint8), None, hashes)
    return hashes


_BEGUN = _begun()


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Of some rows.  Those of two parts of a write add up to that of both.  Picklable."""

    rows: int
    first: int
    """Sum of the rows' hashes, modulo 2**64."""
    second: int
    """Sum of the hashes of their hashes, modulo 2**64."""

    def __add__(self, other: Fingerprint) -> Fingerprint:
        return Fingerprint(
            self.rows + other.rows, (self.first + other.first) & _WORD, (self.second + other.second) & _WORD
        )

    def to_json(self) -> list[Any]:
        return [self.rows, f"{self.first:016x}{self.second:016x}"]

    @staticmethod
    def from_json(value: Any) -> Fingerprint:
        """Raises one of ``stored.BROKEN`` for what ``to_json`` never writes."""
        rows, digits = value
        if len(digits) != 32 or not set(digits) <= set("0123456789abcdef"):
            raise ValueError(f"a fingerprint has 32 hex digits, not {digits!r:.60}")
        return Fingerprint(integer(rows, 0, MAX_ROWS), int(digits[:16], 16), int(digits[16:], 16))


NO_ROWS = Fingerprint(0, 0, 0)


def total(parts: Iterable[Fingerprint]) -> Fingerprint:
    return sum(parts, NO_ROWS)


def row_hashes(
    ops: int | np.ndarray,
    columns: Mapping[int, ColumnBuffers],
    rows: int,
    forms: Mapping[int, Sequence[ColumnType]] = MappingProxyType({}),
) -> U64Array:
    """(rows,) uint64, a hash of each row.

    ``ops``: the operation of all rows or of each, a code of ``_ext.rules.decide`` with what is added to it.
    ``columns``: those that the rows give, by id.  ``forms``: by id, of those that have changed their cells,
    the types they had, the oldest first, and that of now: a cell is hashed as one of the first that has its
    value, so that its hash is what it was then.
    """
    begun = _BEGUN[ops]
    hashes = np.full(rows, begun, np.uint64) if isinstance(ops, int) else np.ascontiguousarray(begun)
    in_order = sorted(columns.items())
    for lower in range(0, rows, CHUNK_ROWS):
        upper = min(lower + CHUNK_ROWS, rows)
        part = hashes[lower:upper]
        for column_id, column in in_order:
            cells = column.slice(lower, upper)
            if column_id in forms:
                part[:] = _chained_as_first(column_id, cells, forms[column_id], part)
                continue
            row_hash.chain_column(column_id, cells.width, cells.values, cells.offsets, cells.validity, part)
    return hashes


def _chained_as_first(
    column_id: int, cells: ColumnBuffers, forms: Sequence[ColumnType], begun: U64Array
) -> U64Array:
    """The hashes of rows with a column that has changed its cells; see ``row_hashes``."""
    now = forms[-1]
    left = np.ones(cells.length, np.bool_)
    result = begun.copy()
    for type_ in forms:
        if not left.any():
            break
        made = cells if type_ == now else recast_column(cells, now, type_)
        hashes = begun.copy()
        row_hash.chain_column(column_id, made.width, made.values, None, made.validity, hashes)
        mine = left & (cells_fit(cells, now, type_) if type_ != now else left)
        result[mine] = hashes[mine]
        left &= ~mine
    return result


def of_hashes(hashes: U64Array) -> Fingerprint:
    return Fingerprint(len(hashes), *row_hash.sums(hashes))


# ---- writes that are no list of rows ----


def of_predicate(where: pc.Expression, set_: Mapping[str, pc.Expression] | None) -> Fingerprint:
    """Of a write by predicate: of what it says, as ``set_`` None deletes.  It has no rows of its own."""
    told = {
        "where": _spelled_expression(where),
        "set": None if set_ is None else {n: _spelled_expression(e) for n, e in set_.items()},
    }
    text = json.dumps(told, sort_keys=True, separators=(",", ":")).encode()
    hashes = np.zeros(1, np.uint64)
    row_hash.chain_column(
        0, 0, np.frombuffer(text, np.uint8), np.array([0, len(text)], np.int32), None, hashes
    )
    return Fingerprint(0, *row_hash.sums(hashes))


def _spelled_expression(expression: pc.Expression) -> Any:
    node = expressions.parse(expression)
    if node is None:  # a spelling of pyarrow's that nobody understands: its bytes, then
        return ["serialised", expressions.serialised(expression).to_pybytes().hex()]
    return _spelled(node)


def _spelled(node: expressions.Node) -> Any:
    if isinstance(node, expressions.Ref):
        return ["field", node.name]
    if isinstance(node, expressions.Literal):
        return ["literal", str(node.scalar.type), _spelled_value(node.scalar)]
    options = None
    if node.options is not None:
        # Without the name of their class, which the function says already.
        options = {n: _spelled_value(value) for n, value in node.options.items() if not n.startswith("_")}
    return ["call", node.function, [_spelled(argument) for argument in node.arguments], options]


def _spelled_value(value: pa.Scalar) -> Any:
    """A value in JSON, exactly."""
    if not value.is_valid:
        return None
    type_ = value.type
    if pat.is_list(type_) or pat.is_large_list(type_):
        return [_spelled_value(item) for item in value.values]
    if pat.is_interval(type_):
        return list(value.as_py())  # months, days, nanoseconds
    if pat.is_temporal(type_):
        wide = type_.bit_width == 64
        return value.cast(pa.int64() if wide else pa.int32()).as_py()
    plain = value.as_py()
    if isinstance(plain, bool | int | str):
        return plain
    if isinstance(plain, float):
        return plain.hex()
    if isinstance(plain, bytes):
        return plain.hex()
    return str(plain)


__all__ = [
    "IGNORING_NULL",
    "NO_ROWS",
    "OVERWRITING",
    "Fingerprint",
    "of_hashes",
    "of_predicate",
    "row_hashes",
    "total",
]

"""Rows that are refused: why, and how callers learn of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from kudu_core._ext.rules import decide as rules
from kudu_core.common.rows.rowblock import RowBlock
from kudu_core.common.rows.shown import Shown
from kudu_core.common.schema.schema import Schema
from kudu_core.errors import InvalidArgument, RowErrors

# The codes of the row rules, and those of what the rules are not asked about.
OK = rules.OK
ALREADY_PRESENT = rules.ALREADY_PRESENT
NOT_FOUND = rules.NOT_FOUND
NULL_IN_REQUIRED = rules.NULL_IN_REQUIRED
NO_PARTITION = 16
TOO_LARGE = 17
DUPLICATE_IN_BATCH = 18
CONDITION_FAILED = 19
CODE_NAMES = {
    ALREADY_PRESENT: "already_present",
    NOT_FOUND: "not_found",
    NULL_IN_REQUIRED: "null_in_required",
    NO_PARTITION: "no_partition",
    TOO_LARGE: "too_large",
    DUPLICATE_IN_BATCH: "duplicate_in_batch",
    CONDITION_FAILED: "condition_failed",
}
ERRORS_SHOWN = 5
ON_ERROR_HINT = 'Pass on_error="return" to apply the others.'
SHOWN_CHARACTERS = 100


@dataclass(slots=True)
class Refused:
    """Rows that were refused."""

    rows: np.ndarray
    """(n,) int64, numbered over all calls."""
    codes: np.ndarray
    """(n,) uint8"""
    keys: RowBlock

    def slice(self, lower: int, upper: int) -> Refused:
        return Refused(self.rows[lower:upper], self.codes[lower:upper], self.keys.slice(lower, upper))

    @staticmethod
    def concat(parts: Sequence[Refused]) -> Refused:
        """All of them, in the order of the calls."""
        rows = np.concatenate([part.rows for part in parts])
        order = np.argsort(rows, kind="stable")
        codes = np.concatenate([part.codes for part in parts])
        return Refused(rows[order], codes[order], RowBlock.concat([part.keys for part in parts]).take(order))


def error_table(schema: Schema, refused: Refused, starts: np.ndarray) -> pa.Table:
    """The refused rows as users see them: row, code, key.

    ``starts``: number of the first row of each call; rows are shown as counted from there.
    """
    columns, shown = _error_columns(schema), Shown(schema.key_columns)
    arrays = [refused.keys.columns[c.id].to_arrow(c.type) for c in schema.key_columns]
    rows = refused.rows - starts[np.searchsorted(starts, refused.rows, side="right") - 1]
    known, place = np.unique(refused.codes, return_inverse=True)
    names = pa.array([CODE_NAMES[c] for c in known.tolist()], pa.string())
    keys = pa.StructArray.from_arrays(shown.arrays(arrays), fields=list(columns.field("key").type))
    return pa.table([pa.array(rows, pa.int64()), names.take(pa.array(place)), keys], schema=columns)


def _error_columns(schema: Schema) -> pa.Schema:
    fields = Shown(schema.key_columns).arrow
    keys = pa.struct([field.with_nullable(True).remove_metadata() for field in fields])
    return pa.schema([("row", pa.int64()), ("code", pa.string()), ("key", keys)])


def returned(
    schema: Schema,
    refused: Refused | None,
    starts: np.ndarray,
    on_error: str,
    by_code: Mapping[int, int] | None = None,
) -> pa.Table | None:
    """The refused rows as the call's answer has them; ``RowErrors`` where ``on_error`` says so.

    ``by_code``: as of ``row_errors``.
    """
    if refused is None:
        return none_refused(schema, on_error)
    table = error_table(schema, refused, starts)
    if on_error == "raise":
        raise row_errors(table, by_code)
    return table


def none_refused(schema: Schema, on_error: str) -> pa.Table | None:
    """What an answer has where no row was refused: by ``on_error="return"`` a table all the same."""
    return None if on_error == "raise" else _error_columns(schema).empty_table()


def row_errors(table: pa.Table, by_code: Mapping[int, int] | None = None) -> RowErrors:
    """The exception for refused rows, with counts and a few examples.

    ``by_code``: how many there are by code, where the table does not have all of them.
    """
    if by_code is None:
        counts = table["code"].value_counts().to_pylist()
        by_name = {c["values"]: c["counts"] for c in counts}
    else:
        by_name = {CODE_NAMES[code]: count for code, count in by_code.items()}
    total = sum(by_name.values())
    summary = ", ".join(f"{count} {name}" for name, count in by_name.items())
    shown = table.slice(0, ERRORS_SHOWN)
    rows, codes = shown["row"].to_pylist(), shown["code"].to_pylist()
    examples = "; ".join(
        f"row {row} {code} {_key_text(key)}" for row, code, key in zip(rows, codes, shown["key"], strict=True)
    )
    told = f"{total} rows were refused ({summary}); nothing was applied. First: {examples}. {ON_ERROR_HINT}"
    return RowErrors(told, table)


def _key_text(key: pa.StructScalar) -> str:
    """A key for people: long cells cut, dates that Python does not have as numbers."""
    cells = {}
    for name, cell in key.items():
        try:
            text = repr(cell.as_py())
        except (OverflowError, ValueError):
            text = str(cell.value)
        cells[name] = text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}..."
    return "{" + ", ".join(f"{name!r}: {cell}" for name, cell in cells.items()) + "}"


def check_on_error(on_error: str) -> None:
    if on_error not in ("raise", "return"):
        raise InvalidArgument(f'on_error is "raise" or "return", not {on_error!r}')


__all__ = [
    "CONDITION_FAILED",
    "DUPLICATE_IN_BATCH",
    "NO_PARTITION",
    "NULL_IN_REQUIRED",
    "OK",
    "ON_ERROR_HINT",
    "TOO_LARGE",
    "Refused",
    "check_on_error",
    "error_table",
    "none_refused",
    "returned",
    "row_errors",
]

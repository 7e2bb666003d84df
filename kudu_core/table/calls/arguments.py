"""What the arguments of the public calls may be, as type checkers see it.

The calls themselves check more, and refuse with a sentence what a checker cannot see.  pyarrow has no types
of its own: where one of its objects is meant there is a protocol with methods of it, since a union with what
a checker does not know takes everything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, Protocol, TypeAlias

from kudu_core.events import WorkEvent
from kudu_core.sql.sql_text import SqlExpression

Mode: TypeAlias = Literal["r", "rw", "auto"]
Order: TypeAlias = Literal["any", "key"]
Images: TypeAlias = Literal["after", "both"]
StatsBy: TypeAlias = Literal["table", "tablet", "rowset", "column"]
OnConflict: TypeAlias = Literal["error", "ignore"]
OnMissing: TypeAlias = Literal["error", "ignore"]
OnDuplicate: TypeAlias = Literal["error", "last"]
OnError: TypeAlias = Literal["raise", "return"]
OnRepeat: TypeAlias = Literal["check", "skip"]


class ArrowStreamExportable(Protocol):
    """Speaks Arrow's C stream protocol: tables, readers, frames, results."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any: ...


class ArrowArrayExportable(Protocol):
    """Speaks Arrow's C array protocol: a record batch."""

    def __arrow_c_array__(self, requested_schema: Any = None) -> Any: ...


class WithColumns(Protocol):
    """A frame."""

    @property
    def columns(self) -> Any: ...


class WithBatches(Protocol):
    """A dataset of Arrow, or what scans one."""

    def to_batches(self) -> Any: ...


class ExpressionLike(Protocol):
    """A ``pyarrow.compute`` expression."""

    def is_valid(self) -> Any: ...
    def isin(self, values: Any) -> Any: ...


Rows: TypeAlias = (
    ArrowStreamExportable
    | ArrowArrayExportable
    | Mapping[str, Any]
    | Iterable[Any]
    | WithColumns
    | WithBatches
)
"""Rows to write.  Text is an iterable for a checker; the call refuses it."""

Where: TypeAlias = ExpressionLike | list[Any] | tuple[Any, ...] | bool | str | SqlExpression
"""A predicate: an expression, filter lists, or SQL text."""

ProgressLike: TypeAlias = bool | Callable[[WorkEvent], object] | None
"""Who is shown how far a long work is: True, a line on standard error."""


__all__ = [
    "ArrowArrayExportable",
    "ArrowStreamExportable",
    "ExpressionLike",
    "Images",
    "Mode",
    "OnConflict",
    "OnDuplicate",
    "OnError",
    "OnMissing",
    "OnRepeat",
    "Order",
    "ProgressLike",
    "Rows",
    "StatsBy",
    "Where",
]

"""What most commands take, and the table that they open."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kudu_core.cli.shared.typed_text import storage_of

if TYPE_CHECKING:
    from kudu_core.table.table import Table

FORMATS = ("parquet", "csv", "jsonl", "arrow", "delta", "lance")
"""Of files that are read and written."""

Function = TypeVar("Function", bound=Callable[..., Any])


def takes_path(function: Function) -> Function:
    """The table, and how to reach its object store."""
    return _applied(
        function,
        click.argument("path"),
        _STORAGE,
        DEBUG,
    )


def answers(function: Function) -> Function:
    """``--json``, for programs."""
    return click.option("--json", "as_json", is_flag=True, help="For programs: JSON.")(function)


def waits(function: Function) -> Function:
    """``--timeout``, of commands that write."""
    return click.option(
        "--timeout", "timeout_s", type=click.FloatRange(0), default=0.0, metavar="SECONDS",
        help="Wait so long for another writer to let go.",
    )(function)  # fmt: skip


def takes_moment(function: Function) -> Function:
    """``--at``, of commands that read rows."""
    return click.option(
        "--at", metavar="MOMENT", help="A timestamp of the table, a time like 2026-01-31T12:00Z, or a tag."
    )(function)


DEBUG = click.option(
    "--debug", is_flag=True, help="Show Python's traceback of an error.", expose_value=False
)
_STORAGE = click.option(
    "--storage-option", "storage", multiple=True, metavar="NAME=VALUE", help="Of an object store's client."
)


def _applied(function: Function, *decorators: Callable[[Any], Any]) -> Function:
    for decorator in reversed(decorators):
        function = decorator(function)
    return function


def reader(path: str, storage: Sequence[str] = (), **others: Any) -> Table:
    """The table, open for reading beside whoever writes."""
    from kudu_core.table.entry import open_table

    return open_table(path, "r", storage_options=storage_of(storage), **others)


def writer(path: str, storage: Sequence[str] = (), timeout_s: float = 0.0, **others: Any) -> Table:
    """The table, open for writing; ``Locked`` says who else has it."""
    from kudu_core.table.entry import open_table

    return open_table(path, "rw", timeout_s=timeout_s, storage_options=storage_of(storage), **others)

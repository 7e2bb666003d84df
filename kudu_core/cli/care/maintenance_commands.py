"""``flush``, ``compact``, ``gc``: maintenance, now."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from kudu_core.cli.shared.meter import Meter
from kudu_core.cli.shared.showing import show_document
from kudu_core.cli.shared.tables import answers, takes_path, waits, writer

if TYPE_CHECKING:
    from kudu_core.table.table import Table

SHOWN = ("rowsets", "rows_stored", "memory_rows", "disk_bytes", "log_bytes")


@click.command()
@takes_path
@waits
@answers
def flush_command(path: str, storage: tuple[str, ...], timeout_s: float, as_json: bool) -> None:
    """Write everything that only memory and the log hold into rowsets."""
    _do("flushing", lambda table: table.flush(), path, storage, timeout_s, as_json)


@click.command()
@takes_path
@click.option("--full", is_flag=True, help="All of it, not only what pays.")
@waits
@answers
def compact_command(path: str, storage: tuple[str, ...], full: bool, timeout_s: float, as_json: bool) -> None:
    """Flush, and merge what makes reading slow, as background maintenance would."""

    def compact(table: Table) -> None:
        table.flush()
        table.compact(full=full)

    _do("merging", compact, path, storage, timeout_s, as_json)


@click.command()
@takes_path
@waits
@answers
def gc_command(path: str, storage: tuple[str, ...], timeout_s: float, as_json: bool) -> None:
    """Drop the history that is no longer kept, and files that nobody can be reading any more."""
    _do("collecting", lambda table: table.gc(), path, storage, timeout_s, as_json)


def _do(
    what: str, work: Callable[[Table], None], path: str, storage: tuple[str, ...], timeout_s: float,
    as_json: bool,
) -> None:  # fmt: skip
    """Do it, and say what was there before and is there now."""
    with writer(path, storage, timeout_s) as table:
        [before] = table.stats().to_pylist()
        with Meter(what, unit=""):
            work(table)
        [after] = table.stats().to_pylist()
    changed = {name: {"before": before[name], "after": after[name]} for name in SHOWN}
    if as_json:
        show_document(changed, as_json)
    else:
        shown = {name: f"{each['before']:,} -> {each['after']:,}" for name, each in changed.items()}
        show_document(shown, as_json)

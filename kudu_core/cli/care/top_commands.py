"""``top``: what goes on in a table, live."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kudu_core.cli.shared.interrupts import look_again
from kudu_core.cli.shared.showing import show_records
from kudu_core.cli.shared.tables import answers, reader, takes_path

if TYPE_CHECKING:
    from kudu_core.table.table import Table


@click.command()
@takes_path
@click.option("--interval", "interval_s", type=click.FloatRange(0.01), default=1.0, show_default=True,
              metavar="SECONDS", help="How often it looks.")  # fmt: skip
@click.option("--times", type=click.IntRange(1), help="Look so often, and end; else until Ctrl-C.")
@answers
def top_command(
    path: str, storage: tuple[str, ...], interval_s: float, times: int | None, as_json: bool
) -> None:
    """What goes on in a table: writes per second, memory, log, rowsets, changes that wait to be merged.

    It reads beside the writer, so it shows what is durable: rows in memory are those that the log still
    holds.
    With --json a line for each look.
    """
    from kudu_core.common.run.clock import Clock

    clock = Clock()
    with reader(path, storage) as table:
        before = look(table, clock)
        _show(before, before, as_json, first=True)
        looks = 1
        while times is None or looks < times:
            look_again(table, interval_s)
            now = look(table, clock)
            _show(before, now, as_json)
            before, looks = now, looks + 1


def look(table: Table, clock: Any) -> dict[str, Any]:
    """Numbers of one moment.  ``records``: of the log, ever; None in an object store."""
    [numbers] = table.stats().to_pylist()
    rowsets = table.stats("rowset").to_pylist()
    base = sum(each["base_bytes"] for each in rowsets)
    deltas = sum(each["redo_bytes"] for each in rowsets)
    return {
        "time_us": clock.now_us(),
        "timestamp": numbers["newest_ts"],
        "records": _records(table.path),
        "memory_rows": numbers["memory_rows"],
        "memory_bytes": numbers["memory_bytes"],
        "log_bytes": _log_bytes(table.path),
        "disk_bytes": numbers["disk_bytes"],
        "rowsets": numbers["rowsets"],
        "delta_bytes": deltas,
        "delta_share": round(deltas / base, 4) if base else 0.0,
        "history_bytes": sum(each["undo_bytes"] for each in rowsets),
    }


def _records(path: str) -> int | None:
    """The number of the last durable record of the log."""
    from kudu_core.cli.inside.log_spans import committed_spans
    from kudu_core.fs.posix import PosixFileSystem

    place = Path(path) / "wal" / "COMMITTED"
    if "://" in path or not place.exists():
        return None
    slots = committed_spans(PosixFileSystem().read_bytes(str(place), 4096))
    return max((slot.fields["lsn"] for slot in slots), default=0)


def _log_bytes(path: str) -> int | None:
    if "://" in path:
        return None
    return sum(file.stat().st_size for file in (Path(path) / "wal").glob("*.log"))


def _show(before: dict[str, Any], now: dict[str, Any], as_json: bool, first: bool = False) -> None:
    elapsed = (now["time_us"] - before["time_us"]) / 1e6
    writes = None
    if elapsed > 0 and now["records"] is not None:
        writes = round((now["records"] - (before["records"] or 0)) / elapsed, 1)
    record = {"writes_per_s": writes, **now}
    if as_json:
        show_records([record], as_json)
        return
    from kudu_core.common.run.clock import hybrid, time_of

    shown = {
        "time": time_of(hybrid(now["time_us"]))[11:19],
        "writes/s": "" if writes is None else f"{writes:,.1f}",
        "memory rows": f"{now['memory_rows']:,}", "memory": _size(now["memory_bytes"]),
        "log": _size(now["log_bytes"]), "disk": _size(now["disk_bytes"]), "rowsets": f"{now['rowsets']:,}",
        "changes": _size(now["delta_bytes"]), "share": f"{now['delta_share']:.1%}",
        "history": _size(now["history_bytes"]),
    }  # fmt: skip
    if first:
        print("".join(f"{name:>13}" for name in shown))
    print("".join(f"{value:>13}" for value in shown.values()))


def _size(count: int | None) -> str:
    if count is None:
        return "-"
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:,.0f} {unit}" if unit == "B" else f"{size:,.1f} {unit}"
        size /= 1024
    return f"{size:,.1f} TiB"

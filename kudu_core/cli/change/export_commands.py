"""``export``: rows to a file, a folder of files, or another kind of table."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kudu_core.cli.shared.meter import Meter
from kudu_core.cli.shared.showing import show_document
from kudu_core.cli.shared.tables import FORMATS, answers, reader, takes_moment, takes_path
from kudu_core.cli.shared.typed_text import moment_of, names_of
from kudu_core.errors import InvalidArgument, NotSupported

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_PER_FILE = 1_000_000


@click.command()
@takes_path
@click.argument("target")
@click.option("--format", "kind", type=click.Choice(FORMATS),
              help="Where the name of TARGET does not tell.")  # fmt: skip
@click.option("--columns", metavar="NAMES", help="These columns, with commas between them.")
@click.option("--where", metavar="SQL", help="Only rows for which this is true: docs/sql.md.")
@click.option("--order", type=click.Choice(["any", "key"]), default="any", show_default=True)
@takes_moment
@click.option("--rows-per-file", type=click.IntRange(1), default=ROWS_PER_FILE, show_default=True,
              help="Of a folder.")  # fmt: skip
@click.option("--replace", is_flag=True, help="Write over a file that is there.")
@answers
def export_command(
    path: str, storage: tuple[str, ...], target: str, kind: str | None, columns: str | None,
    where: str | None, order: Any, at: str | None, rows_per_file: int, replace: bool, as_json: bool,
) -> None:  # fmt: skip
    """Write the rows of the table at PATH to TARGET, all of one moment.

    TARGET is a file (.parquet, .csv, .jsonl, .arrow; with .gz or .zst after it packed), - for stdout with
    --format, or a folder, with / at its end, of files with --rows-per-file rows each.
    """
    from kudu_core.cli.shared.files_read import format_of

    in_folder = target.endswith("/") and kind not in ("delta", "lance")
    if in_folder and kind is None:
        kind = "parquet"
    kind = format_of(target, kind)
    with reader(path, storage) as table, Meter("exporting") as meter:
        scan = table.scan(names_of(columns), where, at=moment_of(at, "--at"), order=order)
        batches = meter.counted(scan)
        if kind in ("delta", "lance"):
            _to_table(target, kind, batches, scan.schema, replace)
            files = 1
        elif in_folder:
            files = _to_folder(target, kind, batches, scan.schema, rows_per_file, replace)
        else:
            files = _to_file(target, kind, batches, scan.schema, replace)
    if target != "-":
        show_document({"target": target, "format": kind, "files": files, "rows": meter.count}, as_json)


def _to_file(
    target: str, kind: str, batches: Iterator[pa.RecordBatch], schema: pa.Schema, replace: bool
) -> int:
    from kudu_core.cli.shared.files_written import rows_to, written_whole

    with written_whole(target, replace) as stream, rows_to(stream, schema, kind) as write:
        for batch in batches:
            write(batch)
    return 1


def _to_folder(
    target: str, kind: str, batches: Iterator[pa.RecordBatch], schema: pa.Schema, most: int, replace: bool
) -> int:
    """Files ``part-00000`` and so on; at least one, so that the schema is kept."""
    from kudu_core.cli.shared.files_written import SUFFIXES

    folder = Path(target)
    if folder.exists() and any(folder.iterdir()) and not replace:
        raise InvalidArgument(f"{target} holds something; --replace writes over files of the same names")
    folder.mkdir(parents=True, exist_ok=True)
    pieces = _Pieces(batches, most)
    files = 0
    while pieces.more or not files:
        _to_file(str(folder / f"part-{files:05}{SUFFIXES[kind]}"), kind, pieces.of_one(), schema, replace)
        files += 1
    return files


class _Pieces:
    """Batches, cut so that each file gets as many rows as it may have."""

    def __init__(self, batches: Iterator[pa.RecordBatch], most: int) -> None:
        self._batches = batches
        self._most = most
        self._next: Any = next(batches, None)

    @property
    def more(self) -> bool:
        return self._next is not None

    def of_one(self) -> Iterator[pa.RecordBatch]:
        room = self._most
        while self._next is not None and room:
            batch = self._next
            yield batch.slice(0, room)
            rest = batch.slice(room) if batch.num_rows > room else None
            room -= min(room, batch.num_rows)
            self._next = rest if rest is not None else next(self._batches, None)


def _to_table(
    target: str, kind: str, batches: Iterator[pa.RecordBatch], schema: pa.Schema, replace: bool
) -> None:
    import pyarrow as pa

    rows = pa.RecordBatchReader.from_batches(schema, batches)
    try:
        if kind == "delta":
            from deltalake import write_deltalake

            write_deltalake(target, rows, mode="overwrite" if replace else "error")
        else:
            import lance

            lance.write_dataset(rows, target, mode="overwrite" if replace else "create")
    except ImportError:
        package = {"delta": "deltalake", "lance": "pylance"}[kind]
        raise NotSupported(f"{kind} needs the package {package}: pip install {package}") from None

"""``import``: the rows of files as one write."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from kudu_core.cli.shared.failures import BadUsage
from kudu_core.cli.shared.meter import Meter
from kudu_core.cli.shared.showing import show_document
from kudu_core.cli.shared.tables import FORMATS, answers, takes_path, waits, writer
from kudu_core.errors import InvalidArgument

if TYPE_CHECKING:
    import pyarrow as pa

    from kudu_core.cli.shared.files_read import FileRows
    from kudu_core.table.calls.result import WriteResult
    from kudu_core.table.table import Table

OPERATIONS = ("insert", "insert-ignore", "upsert", "update", "update-ignore", "delete", "delete-ignore")
REFUSED_SHOWN = 10


@click.command()
@takes_path
@click.argument("files", nargs=-1, required=True)
@click.option("--operation", type=click.Choice(OPERATIONS), default="insert", show_default=True)
@click.option("--format", "kind", type=click.Choice(FORMATS), help="Where the name does not tell.")
@click.option("--skip-refused", is_flag=True, help="Apply what can be; exit code 1 if rows were refused.")
@click.option("--txn", metavar="NAME:NUMBER", help="Name the write: a repetition of it does nothing.")
@waits
@answers
@click.pass_context
def import_command(
    ctx: click.Context, path: str, storage: tuple[str, ...], files: tuple[str, ...], operation: str,
    kind: str | None, skip_refused: bool, txn: str | None, timeout_s: float, as_json: bool,
) -> None:  # fmt: skip
    """Write the rows of FILES into the table at PATH, all of them as one call: all or nothing.

    A file is Parquet, CSV, JSON lines or Arrow, a folder of such, a Delta or a Lance table; - is stdin, with
    --format.  Columns are found by their names; those that are left out take their defaults.
    """
    from kudu_core.cli.shared.files_read import source_of

    named = _txn_of(txn)
    with writer(path, storage, timeout_s) as table, Meter(operation) as meter:
        sources = [source_of(file, kind, table.schema) for file in files]
        rows = _one_stream(sources, table.schema, meter)
        result = _write(table, operation, rows, "return" if skip_refused else "raise", named)
    answer: dict[str, Any] = {
        "rows": meter.count, "inserted": result.inserted, "updated": result.updated,
        "deleted": result.deleted, "ignored": result.ignored, "refused": result.refused,
        "deduplicated": result.deduplicated, "timestamp": result.timestamp,
    }  # fmt: skip
    if result.errors is not None and result.errors.num_rows:
        from kudu_core.cli.shared.json_values import json_rows

        answer["first_refused"] = list(json_rows(result.errors.slice(0, REFUSED_SHOWN)))
    show_document(answer, as_json)
    if result.errors is not None and result.errors.num_rows:
        ctx.exit(1)


def _txn_of(text: str | None) -> tuple[str, int] | None:
    if text is None:
        return None
    name, _, number = text.rpartition(":")
    if not name or not number.isdecimal():
        raise BadUsage(f"--txn is NAME:NUMBER, like daily-load:20260131, not {text!r}")
    return name, int(number)


def _one_stream(sources: list[FileRows], target: pa.Schema, meter: Meter) -> pa.RecordBatchReader:
    """The rows of all sources, with the columns of the first."""
    import pyarrow as pa

    first = sources[0]
    for source in sources:
        unknown = [name for name in source.schema.names if target.get_field_index(name) < 0]
        if unknown:
            raise InvalidArgument(f"{source.path}: the table has no column {unknown[0]!r}")
        if set(source.schema.names) != set(first.schema.names):
            raise InvalidArgument(
                f"{source.path} has other columns than {first.path}: import them one after the other"
            )
    # Lines of JSON say only as they come which columns they have.
    return pa.RecordBatchReader.from_batches(first.schema, _fitted(sources, first.schema, meter))


def _fitted(sources: list[FileRows], schema: pa.Schema, meter: Meter) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    for source in sources:
        for batch in meter.counted(source.batches()):
            columns = []
            for field in schema:
                place = batch.schema.get_field_index(field.name)
                column = pa.nulls(batch.num_rows, field.type) if place < 0 else batch.column(place)
                columns.append(column if column.type == field.type else column.cast(field.type))
            yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _write(table: Table, operation: str, rows: Any, on_error: Any, txn: Any) -> WriteResult:
    verb, _, ignores = operation.partition("-")
    word: Any = "ignore" if ignores else "error"
    if verb == "insert":
        return table.insert(rows, on_conflict=word, on_error=on_error, txn=txn)
    if verb == "upsert":
        return table.upsert(rows, on_error=on_error, txn=txn)
    if verb == "update":
        return table.update(rows, on_missing=word, on_error=on_error, txn=txn)
    keys = _keys_alone(rows, table.primary_key)
    return table.delete(keys, on_missing=word, on_error=on_error, txn=txn)


def _keys_alone(rows: pa.RecordBatchReader, names: tuple[str, ...]) -> pa.RecordBatchReader:
    import pyarrow as pa

    missing = [name for name in names if rows.schema.get_field_index(name) < 0]
    if missing:
        raise InvalidArgument(f"the rows have no column {missing[0]!r}, which is of the key")
    schema = pa.schema([rows.schema.field(name) for name in names])
    return pa.RecordBatchReader.from_batches(schema, (batch.select(list(names)) for batch in rows))

"""``head``, ``get``, ``scan``, ``count``: rows."""

from __future__ import annotations

from typing import Any

import click

from kudu_core.cli.shared.meter import Meter
from kudu_core.cli.shared.showing import show_document, show_records, show_rows, write_line
from kudu_core.cli.shared.tables import answers, reader, takes_moment, takes_path
from kudu_core.cli.shared.typed_text import bounds_of, key_of, moment_of, names_of

SHOWN = 100
"""Rows that people are shown of a scan without ``--limit``."""

_columns = click.option("--columns", metavar="NAMES", help="These columns, with commas between them.")
_where = click.option("--where", metavar="SQL", help="Only rows for which this is true: docs/sql.md.")


@click.command()
@takes_path
@click.option("-n", "--rows", type=click.IntRange(0), default=10, show_default=True, help="How many.")
@_columns
@takes_moment
@answers
def head_command(
    path: str, storage: tuple[str, ...], rows: int, columns: str | None, at: str | None, as_json: bool
) -> None:
    """The first rows, in the order of keys."""
    with reader(path, storage) as table:
        scan = table.scan(names_of(columns), at=moment_of(at, "--at"), order="key", limit=rows)
        show_rows(scan, scan.schema, as_json)


@click.command()
@takes_path
@click.argument("key", nargs=-1, required=True)
@_columns
@takes_moment
@answers
@click.pass_context
def get_command(
    ctx: click.Context, path: str, storage: tuple[str, ...], key: tuple[str, ...], columns: str | None,
    at: str | None, as_json: bool,
) -> None:  # fmt: skip
    """One row by its KEY: a value for each column of the key, or one JSON array of them.

    Exit code 1 where it is not there; with --json `null` is printed then.
    """
    import pyarrow as pa

    with reader(path, storage) as table:
        of_key = key_of(key, table.schema, table.primary_key)
        names = names_of(columns)
        row = table.get(of_key, names, moment_of(at, "--at"))
        schema = table.schema if names is None else pa.schema([table.schema.field(name) for name in names])
    if row is None:
        if as_json:
            write_line("null")
        else:
            click.echo(f"kudu_core: there is no row {' '.join(key)}", err=True)
        ctx.exit(1)
    shown = _json_row(row, schema)
    show_document(shown, as_json)


def _json_row(row: dict[str, Any], schema: Any) -> dict[str, Any]:
    import pyarrow as pa

    from kudu_core.cli.shared.json_values import json_cells

    return {
        field.name: json_cells(pa.array([row[field.name]], field.type))[0] for field in schema
    }


@click.command()
@takes_path
@_columns
@_where
@click.option("--key-range", metavar="JSON", help='Keys from ["lower", "upper"): docs/cli.md.')
@click.option("--order", type=click.Choice(["any", "key"]), default="any", show_default=True)
@click.option("--limit", type=click.IntRange(0), help="At most so many rows.")
@takes_moment
@click.option("--explain", is_flag=True, help="What would be read, and no rows.")
@answers
def scan_command(
    path: str, storage: tuple[str, ...], columns: str | None, where: str | None, key_range: str | None,
    order: Any, limit: int | None, at: str | None, explain: bool, as_json: bool,
) -> None:  # fmt: skip
    """Rows and columns, with a condition.  With --json a line of JSON for each row, all of them."""
    with reader(path, storage) as table:
        bounds = None
        if key_range is not None:
            types = [table.schema.field(name).type for name in table.primary_key]
            bounds = bounds_of(key_range, types, "--key-range")
        shown = None if as_json or limit is not None else SHOWN
        most = limit if shown is None else shown + 1
        scan = table.scan(
            names_of(columns), where, at=moment_of(at, "--at"), key_range=bounds, order=order, limit=most
        )
        if explain:
            write_line(str(scan.explain()))
            return
        show_rows(scan, scan.schema, as_json, shown)


@click.command()
@takes_path
@_where
@takes_moment
@answers
def count_command(
    path: str, storage: tuple[str, ...], where: str | None, at: str | None, as_json: bool
) -> None:
    """How many rows there are, of those for which --where is true."""
    with reader(path, storage) as table, Meter("counting", unit=""):
        count = table.count(where, moment_of(at, "--at"))
    if as_json:
        show_records([{"rows": count}], as_json)
    else:
        write_line(str(count))

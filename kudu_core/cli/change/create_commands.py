"""``create``: a new table, of a file's schema or of columns that are named."""

from __future__ import annotations

from typing import Any

import click

from kudu_core.cli.shared.failures import BadUsage
from kudu_core.cli.shared.showing import show_document
from kudu_core.cli.shared.tables import FORMATS, answers, takes_path
from kudu_core.cli.shared.typed_text import bounds_of, names_of, options_of, pairs_of, storage_of


@click.command()
@takes_path
@click.option("--like", metavar="FILE", help="Take the schema of this file or folder, and no rows.")
@click.option("--format", "kind", type=click.Choice(FORMATS), help="Where its name does not tell.")
@click.option("--column", "columns", multiple=True, metavar="NAME:TYPE", help="A column; repeat it.")
@click.option("--key", required=True, metavar="NAMES", help="Columns of the primary key, with commas.")
@click.option("--hash", "hashes", multiple=True, metavar="NAMES=N", help="Tablets by hash: day,host=8.")
@click.option("--range", "ranges", multiple=True, metavar="NAMES=JSON",
              help='Tablets by range: day=["2026-01-01","2026-02-01"], as often as need be.')  # fmt: skip
@click.option("--option", "options", multiple=True, metavar="NAME=VALUE", help="Of the table's options.")
@answers
def create_command(
    path: str, storage: tuple[str, ...], like: str | None, kind: str | None, columns: tuple[str, ...],
    key: str, hashes: tuple[str, ...], ranges: tuple[str, ...], options: tuple[str, ...], as_json: bool,
) -> None:  # fmt: skip
    """Make a table at PATH, with the schema of a file or of --column."""
    from kudu_core.cli.shared.files_read import source_of
    from kudu_core.common.schema.declare import Column
    from kudu_core.table.entry import create_table

    schema: Any
    if (like is None) == (not columns):
        raise BadUsage("give --like FILE, or --column for each column")
    if like is not None:
        schema = source_of(like, kind).schema
        types = {field.name: field.type for field in schema}
    else:
        named = [word.partition(":") for word in columns]
        if any(not sign for _, sign, _ in named):
            raise BadUsage("--column is NAME:TYPE, like day:date32 or price:decimal128(10,2)")
        schema = [Column(name, type_) for name, _, type_ in named]
        types = {name: arrow_type(type_) for name, _, type_ in named}
    made = create_table(
        path, schema, names_of(key) or [],
        partition_by=partitions_of(hashes, ranges, types), options=options_of(options),
        storage_options=storage_of(storage),
    )  # fmt: skip
    with made:
        show_document({"path": made.path, "columns": len(made.schema), "tablets": _tablets(made)}, as_json)


def _tablets(table: Any) -> int:
    return int(table.stats()["tablets"][0].as_py())


def arrow_type(name: str) -> Any:
    """The Arrow type of a type's name, as ``kudu_core.Column`` takes it."""
    from kudu_core.common.types.types import ColumnType

    return ColumnType.parse(name).arrow


def partitions_of(hashes: tuple[str, ...], ranges: tuple[str, ...], types: dict[str, Any]) -> list[Any]:
    """What ``partition_by`` takes."""
    from kudu_core.common.partition.declared import HashPartition, RangePartition

    made: list[Any] = []
    for names, count in pairs_of(hashes, "--hash").items():
        if not count.isdecimal():
            raise BadUsage(f"--hash is NAMES=N, with N buckets, not {names}={count}")
        made.append(HashPartition(names_of(names) or [], int(count)))
    bounds: dict[str, list[Any]] = {}
    for word in ranges:
        [(names, text)] = pairs_of([word], "--range").items()
        columns = names_of(names) or []
        unknown = [name for name in columns if name not in types]
        if unknown:
            raise BadUsage(f"--range: there is no column {unknown[0]!r}")
        bounds.setdefault(names, []).append(bounds_of(text, [types[name] for name in columns], "--range"))
    made += [RangePartition(names_of(names) or [], pairs) for names, pairs in bounds.items()]
    return made

"""``info``, ``schema``, ``layout``, ``stats``, ``list``: what a table is made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kudu_core.cli.shared.showing import show_document, show_records, write_line
from kudu_core.cli.shared.tables import answers, reader, takes_path
from kudu_core.cli.shared.typed_text import storage_of

if TYPE_CHECKING:
    from kudu_core.table.table import Table

BYS = ("table", "tablet", "rowset", "column")


@click.command()
@takes_path
@answers
def info_command(path: str, storage: tuple[str, ...], as_json: bool) -> None:
    """What a table is: key, columns, rows, sizes, options, tags.

    With --json one document; `partitions` is text, `options` and `tags` are objects, times are timestamps of
    the table.
    """
    with reader(path, storage) as table:
        show_document(_facts(table, as_json), as_json)


def _facts(table: Table, as_json: bool) -> dict[str, Any]:
    from kudu_core.common.run.clock import time_of

    [numbers] = table.stats().to_pylist()
    given = table.options.to_json()
    facts: dict[str, Any] = {
        "path": table.path,
        "primary_key": list(table.primary_key),
        "columns": len(table.schema),
        "rows": table.count(),
        "partitions": str(table.partitions).removeprefix("<PartitionSchema ").removesuffix(">"),
        **{name: numbers[name] for name in ("tablets", "rowsets", "disk_bytes", "memory_rows", "log_bytes")},
        "oldest_timestamp": numbers["oldest_ts"],
        "newest_timestamp": numbers["newest_ts"],
        "options": given,
        "tags": table.tags(),
    }
    if not as_json:
        for name in ("oldest_timestamp", "newest_timestamp"):
            facts[name] = f"{facts[name]} ({time_of(facts[name])})" if facts[name] else "none"
        facts["primary_key"] = ", ".join(facts["primary_key"])
        facts["tags"] = ", ".join(facts["tags"]) or "none"
        del facts["options"]
        facts.update(given)
    return facts


@click.command()
@takes_path
@answers
def schema_command(path: str, storage: tuple[str, ...], as_json: bool) -> None:
    """The columns of a table: name, type, whether it may be NULL, its place in the key."""
    with reader(path, storage) as table:
        key = list(table.primary_key)
        records = [
            {
                "column": field.name,
                "type": str(field.type),
                "nullable": field.nullable,
                "key": key.index(field.name) + 1 if field.name in key else None,
            }
            for field in table.schema
        ]
    show_records(records, as_json)


@click.command()
@takes_path
@answers
def layout_command(path: str, storage: tuple[str, ...], as_json: bool) -> None:
    """The rowsets of every tablet, as text."""
    with reader(path, storage) as table:
        text = table.layout()
    if as_json:
        show_document({"layout": text}, as_json)
    else:
        write_line(text)


@click.command()
@takes_path
@click.option("--by", type=click.Choice(BYS), default="table", show_default=True, help="One record for each.")
@answers
def stats_command(path: str, storage: tuple[str, ...], by: Any, as_json: bool) -> None:
    """Sizes and counts by table, tablet, rowset or column."""
    with reader(path, storage) as table:
        records = table.stats(by).to_pylist()
    if by == "table" and not as_json:
        show_document(records[0], as_json)
    else:
        show_records(records, as_json)


@click.command()
@takes_path
@answers
def list_command(path: str, storage: tuple[str, ...], as_json: bool) -> None:
    """The tables directly below a folder or a URL; none of them is opened."""
    from kudu_core.table.lifecycle.manage.list_tables import list_tables

    names = ("name", "path", "uuid", "schema_version", "problem")
    found = list_tables(path, storage_of(storage))
    show_records([{name: getattr(one, name) for name in names} for one in found], as_json, names)

"""``alter``: columns, ranges and options, all of it or nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kudu_core.cli.change.create_commands import arrow_type
from kudu_core.cli.shared.failures import BadUsage
from kudu_core.cli.shared.showing import show_document
from kudu_core.cli.shared.tables import answers, takes_path, waits, writer
from kudu_core.cli.shared.typed_text import bounds_of, names_of, options_of, pairs_of, value_of

if TYPE_CHECKING:
    from kudu_core.table.table import Table


@click.command()
@takes_path
@click.option("--add", multiple=True, metavar="NAME:TYPE", help="A new column.")
@click.option("--drop", multiple=True, metavar="NAME", help="A column that goes.")
@click.option("--rename", multiple=True, metavar="OLD=NEW", help="Another name of a column.")
@click.option("--type", "types", multiple=True, metavar="NAME=TYPE", help="Another type: docs/alter.md.")
@click.option("--default", "defaults", multiple=True, metavar="NAME=VALUE", help="Of rows that give none.")
@click.option("--no-default", "no_defaults", multiple=True, metavar="NAME", help="No default any more.")
@click.option("--not-null", "not_null", multiple=True, metavar="NAME", help="NULL is refused from now on.")
@click.option("--nullable", multiple=True, metavar="NAME", help="NULL is taken from now on.")
@click.option("--comment", "comments", multiple=True, metavar="NAME=TEXT")
@click.option("--order", metavar="NAMES", help="Columns that come first.")
@click.option("--add-range", "add_ranges", multiple=True, metavar="JSON", help='Like ["2026-02-01", null].')
@click.option("--drop-range", "drop_ranges", multiple=True, metavar="JSON", help="With its rows.")
@click.option("--option", "options", multiple=True, metavar="NAME=VALUE", help="Stored with the table.")
@waits
@answers
def alter_command(path: str, storage: tuple[str, ...], timeout_s: float, as_json: bool, **given: Any) -> None:
    """Change columns, ranges and options of a table, all of it or nothing.  docs/alter.md has the rules."""
    with writer(path, storage, timeout_s) as table:
        asked = _asked(table, given)
        if not any(asked.values()):
            raise BadUsage("nothing to change is given; --help lists what can be")
        timestamp = table.alter(**asked)
    show_document({"timestamp": timestamp}, as_json)


def _asked(table: Table, given: dict[str, Any]) -> dict[str, Any]:
    """The arguments of ``Table.alter``."""
    from kudu_core.common.schema.declare import Column

    added = {}
    for word in given["add"]:
        name, sign, type_ = word.partition(":")
        if not sign:
            raise BadUsage(f"--add is NAME:TYPE, not {word!r}")
        added[name] = type_
    renamed = pairs_of(given["rename"], "--rename")
    types = {renamed.get(field.name, field.name): field.type for field in table.schema}
    types |= {name: arrow_type(type_) for name, type_ in added.items()}
    types |= {name: arrow_type(type_) for name, type_ in pairs_of(given["types"], "--type").items()}
    changes: dict[str, dict[str, Any]] = {}
    for name, type_ in pairs_of(given["types"], "--type").items():
        changes.setdefault(name, {})["type"] = arrow_type(type_)
    for name, text in pairs_of(given["defaults"], "--default").items():
        if name not in types:
            raise BadUsage(f"--default: there is no column {name!r}")
        changes.setdefault(name, {})["default"] = value_of(text, types[name], f"--default of {name!r}")
    for name in given["no_defaults"]:
        changes.setdefault(name, {})["default"] = None
    for name in given["not_null"]:
        changes.setdefault(name, {})["nullable"] = False
    for name in given["nullable"]:
        changes.setdefault(name, {})["nullable"] = True
    for name, text in pairs_of(given["comments"], "--comment").items():
        changes.setdefault(name, {})["comment"] = text
    columns = [Column(name, type_, **changes.pop(name, {})) for name, type_ in added.items()]
    bounds = _range_types(table)
    return {
        "add": columns,
        "drop": list(given["drop"]),
        "rename": renamed or None,
        "change": changes or None,
        "order": names_of(given["order"]) or (),
        "add_range": [bounds_of(text, bounds, "--add-range") for text in given["add_ranges"]] or None,
        "drop_range": [bounds_of(text, bounds, "--drop-range") for text in given["drop_ranges"]] or None,
        "options": options_of(given["options"]) or None,
    }


def _range_types(table: Table) -> list[Any]:
    """Types of the columns by which the table is cut into ranges; none where it is not."""
    partitions = table.partitions
    names = dict(zip(partitions.key_ids, table.primary_key, strict=True))
    return [table.schema.field(names[column_id]).type for column_id in partitions.range_ids]

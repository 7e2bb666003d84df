"""``repartition`` and ``index``: other partitions, and orders by which scans find rows."""

from __future__ import annotations

import click

from kudu_core.cli.change.create_commands import partitions_of
from kudu_core.cli.shared.failures import BadUsage
from kudu_core.cli.shared.meter import Meter
from kudu_core.cli.shared.showing import show_document
from kudu_core.cli.shared.tables import answers, takes_path, waits, writer
from kudu_core.cli.shared.typed_text import names_of


@click.command()
@takes_path
@click.option("--hash", "hashes", multiple=True, metavar="NAMES=N", help="Tablets by hash: day,host=8.")
@click.option("--range", "ranges", multiple=True, metavar="NAMES=JSON",
              help='Like day=["2026-01-01", "2026-02-01"]; of neither there is one tablet.')  # fmt: skip
@waits
@answers
def repartition_command(
    path: str, storage: tuple[str, ...], hashes: tuple[str, ...], ranges: tuple[str, ...],
    timeout_s: float, as_json: bool,
) -> None:  # fmt: skip
    """Give a table other partitions, as one change.  docs/repartition.md has the rules."""
    with writer(path, storage, timeout_s) as table, Meter("copying", unit=""):
        types = {field.name: field.type for field in table.schema}
        timestamp = table.repartition(partitions_of(hashes, ranges, types))
    show_document({"timestamp": timestamp}, as_json)


@click.command()
@takes_path
@click.argument("name", required=False)
@click.option("--columns", metavar="NAMES", help="Make it, of these columns.")
@click.option("--drop", is_flag=True, help="Drop it.")
@waits
@answers
def index_command(
    path: str, storage: tuple[str, ...], name: str | None, columns: str | None, drop: bool,
    timeout_s: float, as_json: bool,
) -> None:  # fmt: skip
    """Make the index NAME by --columns, or --drop it; without NAME, say which there are.  docs/indexes.md."""
    chosen = names_of(columns)
    if name is not None and (chosen is None) != drop:
        raise BadUsage("an index is made by --columns, or dropped by --drop")
    with writer(path, storage, timeout_s) as table:
        if name is not None and drop:
            table.drop_index(name)
        elif name is not None:
            table.create_index(name, list(chosen or ()))
        found = {one.name: list(one.columns) for one in table.indexes.values()}
    show_document(found, as_json)

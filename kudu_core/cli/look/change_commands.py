"""``history`` and ``changes``: what rows were, and what became of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import click

from kudu_core.cli.shared.interrupts import look_again
from kudu_core.cli.shared.showing import show_records, show_rows
from kudu_core.cli.shared.tables import answers, reader, takes_path
from kudu_core.cli.shared.typed_text import key_of, moment_of, names_of

if TYPE_CHECKING:
    import pyarrow as pa

    from kudu_core.table.table import Table

TIMES = ("_timestamp", "_valid_from", "_valid_to")

_since = click.option("--since", metavar="MOMENT", help="From then on: as --at of scan.")
_until = click.option("--until", metavar="MOMENT", help="Up to then; without it, up to now.")


@click.command()
@takes_path
@click.argument("key", nargs=-1, required=True)
@click.option("--columns", metavar="NAMES", help="These columns, with commas between them.")
@_since
@_until
@answers
def history_command(
    path: str, storage: tuple[str, ...], key: tuple[str, ...], columns: str | None, since: str | None,
    until: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Every version of the row of KEY that history still has, oldest first.

    Times of a version (`_valid_from`, `_valid_to`) are timestamps of the table with --json.
    """
    with reader(path, storage) as table:
        versions = table.history_of(
            key_of(key, table.schema, table.primary_key), names_of(columns),
            moment_of(since, "--since"), moment_of(until, "--until"),
        )  # fmt: skip
    _show(versions.to_batches(), versions.schema, as_json)


@click.command()
@takes_path
@_since
@_until
@click.option("--columns", metavar="NAMES", help="These columns, with commas between them.")
@click.option("--where", metavar="SQL", help="Only changes of rows for which this is true.")
@click.option("--net", is_flag=True, help="One record for each key whose row differs.")
@click.option("--images", type=click.Choice(["after", "both"]), default="after", show_default=True,
              help="Also the row before.")  # fmt: skip
@click.option("--follow", is_flag=True, help="Go on with what is written from now on, until Ctrl-C.")
@click.option("--interval", "interval_s", type=click.FloatRange(0.01), default=1.0, show_default=True,
              metavar="SECONDS", help="How often --follow looks.")  # fmt: skip
@answers
def changes_command(
    path: str, storage: tuple[str, ...], since: str | None, until: str | None, columns: str | None,
    where: str | None, net: bool, images: Any, follow: bool, interval_s: float, as_json: bool,
) -> None:  # fmt: skip
    """What changed after --since, or ever, in the order of time; with --follow, and from now on.

    With --follow and without --since only what comes from now on.
    """
    with reader(path, storage) as table:
        begin, end = moment_of(since, "--since"), moment_of(until, "--until")
        if follow:
            begin = table.timestamp if begin is None else begin
        names = names_of(columns)
        feed = table.changes(begin, end, columns=names, where=where, net=net, images=images)
        _show(feed, feed.schema, as_json)
        if not follow:
            return
        for news in _feeds(table, feed.until, interval_s, names, where, net, images):
            _show(news, news.schema, as_json, only_rows=True)


def _feeds(
    table: Table, since: int, interval_s: float, names: Any, where: str | None, net: bool, images: Any
) -> Iterator[Any]:
    """Changes after ``since``, for ever."""
    while True:
        look_again(table, interval_s)
        if table.timestamp > since:
            feed = table.changes(since, columns=names, where=where, net=net, images=images)
            yield feed
            since = feed.until


def _show(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, as_json: bool, only_rows: bool = False
) -> None:
    """As the rows of a scan; people are shown times."""
    if as_json:
        show_rows(batches, schema, as_json)
        return
    from kudu_core.cli.shared.json_values import json_rows
    from kudu_core.common.run.clock import time_of

    records = []
    for batch in batches:
        for row in json_rows(batch):
            records.append({
                name: time_of(value) if name in TIMES and value is not None else value
                for name, value in row.items()
            })  # fmt: skip
    if records or not only_rows:
        show_records(records, as_json, schema.names)

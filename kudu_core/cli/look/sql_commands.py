"""``sql``: one statement over a table."""

from __future__ import annotations

import sys

import click

from kudu_core.cli.shared.meter import Meter
from kudu_core.cli.shared.showing import show_document, show_rows
from kudu_core.cli.shared.tables import answers, reader, takes_path, waits, writer
from kudu_core.cli.shared.typed_text import pairs_of

WRITES = ("update", "delete", "insert", "merge")
SHOWN = 100


@click.command()
@takes_path
@click.argument("text")
@click.option("--set", "parameters", multiple=True, metavar="NAME=VALUE",
              help="What $NAME stands for: a number, or text.")  # fmt: skip
@waits
@answers
def sql_command(
    path: str, storage: tuple[str, ...], text: str, parameters: tuple[str, ...], timeout_s: float,
    as_json: bool,
) -> None:  # fmt: skip
    """Run the SQL statement TEXT (- reads it from stdin) over the table, which it calls `this`.

    SELECT reads beside a running writer; INSERT, UPDATE, DELETE and MERGE open the table for writing.
    docs/sql.md has the language.
    """
    import pyarrow as pa

    if text == "-":
        text = sys.stdin.read()
    values = {name: _value(word) for name, word in pairs_of(parameters, "--set").items()}
    if begins_with_write(text):
        table = writer(path, storage, timeout_s)
    else:
        table = reader(path, storage)
    with table, Meter("running", unit=""):
        done = table.sql(text, **values)
    if isinstance(done, pa.Table):
        show_rows(done.to_batches(), done.schema, as_json, SHOWN)
    else:
        show_document(counts_of(done), as_json)


def begins_with_write(text: str) -> bool:
    """Whether the first word is of a statement that writes; comments before it do not count."""
    for line in text.splitlines():
        words = line.partition("--")[0].split()
        if words:
            return words[0].lower().startswith(WRITES)
    return False


def _value(word: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    return word


def counts_of(result: object) -> dict[str, int]:
    """What a write did."""
    names = ("inserted", "updated", "deleted", "ignored", "timestamp")
    return {name: int(getattr(result, name)) for name in names if getattr(result, name, None) is not None}

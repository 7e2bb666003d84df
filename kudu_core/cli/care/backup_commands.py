"""``backup`` and ``restore``."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from kudu_core.cli.shared.meter import Meter
from kudu_core.cli.shared.showing import show_document
from kudu_core.cli.shared.tables import answers, reader, takes_path
from kudu_core.cli.shared.typed_text import storage_of


@click.command()
@takes_path
@click.argument("folder")
@click.option("--since", metavar="LAST",
              help='Only what changed since "last", the last backup there, or a timestamp.')  # fmt: skip
@answers
def backup_command(
    path: str, storage: tuple[str, ...], folder: str, since: str | None, as_json: bool
) -> None:
    """Write a backup of the table to FOLDER (a folder or URL of its backups alone), while others write."""
    with reader(path, storage) as table, Meter("backing up", unit=""):
        done = table.backup(folder, _since(since), storage_options=storage_of(storage))
    show_document({name: value for name, value in asdict(done).items() if name != "_"}, as_json)


def _since(text: str | None) -> Any:
    return int(text) if text is not None and text.isdecimal() else text


@click.command()
@click.argument("folder")
@takes_path
@click.option("--at", type=int, metavar="TIMESTAMP", help="Which backup; else the newest.")
@answers
def restore_command(folder: str, path: str, storage: tuple[str, ...], at: int | None, as_json: bool) -> None:
    """Make a table at PATH of a backup in FOLDER."""
    from kudu_core.table.entry import restore

    with Meter("restoring", unit=""), restore(folder, path, at, storage_options=storage_of(storage)) as table:
        rows = table.count()
    show_document({"path": path, "rows": rows}, as_json)

"""``tag``, ``truncate``, ``restore-to``, ``clone``, ``rename``, ``drop``: tables as wholes."""

from __future__ import annotations

import sys
from typing import Any

import click

from kudu_core.cli.look.sql_commands import counts_of
from kudu_core.cli.shared.failures import BadUsage
from kudu_core.cli.shared.meter import Meter
from kudu_core.cli.shared.showing import show_document, show_records
from kudu_core.cli.shared.tables import answers, reader, takes_moment, takes_path, waits, writer
from kudu_core.cli.shared.typed_text import moment_of, storage_of

_yes = click.option("--yes", is_flag=True, help="Do it without asking.")


def confirm(question: str, yes: bool) -> None:
    """Ask before what cannot be undone, at a terminal; elsewhere ``--yes`` is needed."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise BadUsage(f"{question} Say so with --yes.")
    click.confirm(question, abort=True, err=True)


@click.command()
@takes_path
@click.argument("name", required=False)
@takes_moment
@click.option("--delete", is_flag=True, help="Take the tag away; its history goes as that of other times.")
@waits
@answers
def tag_command(
    path: str, storage: tuple[str, ...], name: str | None, at: str | None, delete: bool, timeout_s: float,
    as_json: bool,
) -> None:  # fmt: skip
    """Give a moment the name NAME, and keep its history for ever; without NAME list the tags."""
    if name is None:
        if delete or at is not None:
            raise BadUsage("--delete and --at are of a tag: give its NAME")
        with reader(path, storage) as table:
            tags = [{"name": tag, "timestamp": timestamp} for tag, timestamp in table.tags().items()]
        show_records(tags, as_json, ("name", "timestamp"))
        return
    with writer(path, storage, timeout_s) as table:
        timestamp = table.untag(name) if delete else table.tag(name, moment_of(at, "--at"))
    show_document({"name": name, "timestamp": timestamp}, as_json)


@click.command()
@takes_path
@_yes
@waits
@answers
def truncate_command(path: str, storage: tuple[str, ...], yes: bool, timeout_s: float, as_json: bool) -> None:
    """Delete all rows, as one change; history has them for as long as it is kept."""
    confirm(f"Delete all rows of {path}?", yes)
    with writer(path, storage, timeout_s) as table:
        timestamp = table.truncate()
    show_document({"timestamp": timestamp}, as_json)


@click.command()
@takes_path
@click.argument("moment")
@waits
@answers
def restore_to_command(
    path: str, storage: tuple[str, ...], moment: str, timeout_s: float, as_json: bool
) -> None:
    """Make the rows of MOMENT (a timestamp, a time or a tag) those of now, as one change."""
    with writer(path, storage, timeout_s) as table, Meter("restoring", unit=""):
        result = table.restore_to(moment_of(moment, "MOMENT"))
    show_document(counts_of(result), as_json)


@click.command()
@takes_path
@click.argument("target")
@takes_moment
@answers
def clone_command(path: str, storage: tuple[str, ...], target: str, at: str | None, as_json: bool) -> None:
    """Make another table with the same rows at TARGET, while others write: by links, where that can be."""
    with reader(path, storage) as table, Meter("cloning", unit=""):
        table.clone(target, moment_of(at, "--at"), storage_options=storage_of(storage))
    show_document({"path": target}, as_json)


@click.command()
@takes_path
@click.argument("target")
@answers
def rename_command(path: str, storage: tuple[str, ...], target: str, as_json: bool) -> None:
    """Move the table at PATH to TARGET, on the same file system."""
    from kudu_core.table.lifecycle.manage.rename_table import rename_table

    rename_table(path, target)
    show_document({"path": target}, as_json)


@click.command()
@takes_path
@_yes
@answers
def drop_command(path: str, storage: tuple[str, ...], yes: bool, as_json: bool) -> None:
    """Remove a table, with all its history.  What is not its own stays in its folder, and is named."""
    from kudu_core.table.lifecycle.manage.drop_table import drop_table

    confirm(f"Remove the table {path} and all its history?", yes)
    left: Any = drop_table(path, storage_options=storage_of(storage))
    show_document({"path": path, "left": list(left)}, as_json)

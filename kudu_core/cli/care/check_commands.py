"""``verify`` and ``repair``: whether a table is sound, and what to make of one that is not."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from kudu_core.cli.shared.exit_codes import DAMAGED
from kudu_core.cli.shared.failures import line_of
from kudu_core.cli.shared.meter import Meter
from kudu_core.cli.shared.showing import show_document, write_line
from kudu_core.cli.shared.tables import answers, reader, takes_path
from kudu_core.errors import Corruption


@click.command()
@takes_path
@answers
@click.pass_context
def verify_command(ctx: click.Context, path: str, storage: tuple[str, ...], as_json: bool) -> None:
    """Read and check every byte of a table: TABLE, manifests, log, files.  Exit code 3: it is damaged."""
    try:
        with reader(path, storage) as table, Meter("verifying", unit=""):
            found = table.verify()
    except Corruption as damage:
        if as_json:
            where = {"file": damage.path, "offset": damage.offset, "reason": damage.reason}
            show_document({"sound": False, **where}, True)
        click.echo(f"kudu_core: damaged: {line_of(damage)}; docs/repair.md says what to do", err=True)
        ctx.exit(DAMAGED)
    facts: dict[str, Any] = {"sound": True, **asdict(found)}
    show_document({name: list(v) if isinstance(v, tuple) else v for name, v in facts.items()}, as_json)


@click.command()
@takes_path
@click.option("--target", metavar="PATH", help="Where the new table is to be; else PATH.repaired.")
@click.option("--write", is_flag=True, help="Make the new table; else only what it would hold is told.")
@answers
@click.pass_context
def repair_command(
    ctx: click.Context, path: str, storage: tuple[str, ...], target: str | None, write: bool, as_json: bool
) -> None:
    """Tell what can be read of a damaged table, and with --write make a new one of it beside it.

    The damaged table is never changed.  Exit code 3 where something is damaged, though all was done.
    """
    from kudu_core.table.repair.repair import repair

    with Meter("reading what can be read", unit=""):
        report = repair(path, target, dry_run=not write)
    if as_json:
        facts = asdict(report)
        sums = ("rows_kept", "rows_doubtful", "rows_lost", "changes_aside", "is_sound")
        show_document({**{name: getattr(report, name) for name in sums}, **facts}, True)
    else:
        write_line(report.text())
    if not report.is_sound:
        ctx.exit(DAMAGED)

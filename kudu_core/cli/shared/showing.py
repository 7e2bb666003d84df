"""How answers come out: tables for people, JSON for programs."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kudu_core.cli.shared.failures import say

if TYPE_CHECKING:
    import pyarrow as pa
    from rich.console import Console
    from rich.table import Table

WIDEST = 60
"""Characters of a cell that people are shown."""


def write_line(text: str) -> None:
    """One line on stdout."""
    sys.stdout.write(text + "\n")


def console(*, err: bool = False) -> Console:
    """A terminal's own width; elsewhere lines are as long as what they say."""
    from rich.console import Console

    class PipedConsole(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    return PipedConsole(stderr=err, highlight=False, soft_wrap=not sys.stdout.isatty())


def show_document(document: Mapping[str, Any], as_json: bool) -> None:
    """One answer of named values.  For people: a name and its value in each line."""
    if as_json:
        from kudu_core.cli.shared.json_values import json_line

        write_line(json_line(document))
        return
    table = _plain_table(("", ""), header=False)
    for name, value in document.items():
        table.add_row(_text(name), _text(_shown(value)))
    _show(table)


def show_records(records: Iterable[Mapping[str, Any]], as_json: bool, names: Sequence[str] = ()) -> None:
    """Values as ``json.dumps`` takes them, a record each: a table, or a line of JSON each."""
    if as_json:
        from kudu_core.cli.shared.json_values import json_line

        for record in records:
            write_line(json_line(record))
        return
    records = list(records)
    names = list(names or (records[0] if records else ()))
    table = _plain_table(names, numbers=_numeric(records, names))
    for record in records:
        table.add_row(*(_text(_shown(record[name])) for name in names))
    _show(table)


def show_rows(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, as_json: bool, shown: int | None = None
) -> int:
    """Rows of Arrow, as they come; how many.  People are shown the first ``shown`` and told of it."""
    from kudu_core.cli.shared.json_values import json_line, json_rows

    count = 0
    if as_json:
        for batch in batches:
            lines = [json_line(row) for row in json_rows(batch)]
            count += len(lines)
            if lines:
                write_line("\n".join(lines))
        return count
    records: list[dict[str, Any]] = []
    for batch in batches:
        room = batch.num_rows if shown is None else shown - len(records)
        records += json_rows(batch.slice(0, room))
        count += batch.num_rows
        if shown is not None and count > shown:
            break
    show_records(records, False, schema.names)
    if shown is not None and count > shown:
        say(f"only the first {shown:,} rows are shown: --limit tells how many, --json gives all")
    return len(records)


def _numeric(records: Sequence[Mapping[str, Any]], names: Iterable[str]) -> set[str]:
    number = (int, float)
    return {
        name
        for name in names
        if any(record[name] is not None for record in records)
        and all(
            record[name] is None or (isinstance(record[name], number) and not isinstance(record[name], bool))
            for record in records
        )
    }


def _plain_table(names: Iterable[str], header: bool = True, numbers: Iterable[str] = ()) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD if header else None, show_header=header, pad_edge=False)
    right = set(numbers)
    for name in names:
        table.add_column(_text(name), justify="right" if name in right else "left", overflow="fold")
    return table


def _show(table: Table) -> None:
    out = console()
    if not sys.stdout.isatty():
        out.width = 100_000  # no terminal, so nothing is cut
        out.width = max(20, out.measure(table).maximum)
    out.print(table)


def _text(text: str) -> Any:
    from rich.text import Text

    return Text(text)


def _shown(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, dict | list | tuple):
        from kudu_core.cli.shared.json_values import json_line

        text = json_line(value)
    else:
        text = str(value)
    # What would move a terminal's cursor is shown as what it is.
    text = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
    return text if len(text) <= WIDEST else f"{text[: WIDEST - 3]}..."


__all__ = ["console", "show_document", "show_records", "show_rows", "write_line"]

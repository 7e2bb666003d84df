"""A small table of HTML, as notebooks show what is not text: all in it is escaped, and nothing is long."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from itertools import islice

MOST_ROWS = 100
MOST_CHARACTERS = 200


def html_table(title: str, header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """``header`` may be empty.  Of more than 100 rows the others are left out."""
    found = list(islice(rows, MOST_ROWS + 1))
    lines = [f"<p><b>{_cell(title)}</b></p>", "<table>"]
    if header:
        lines.append(f"<tr>{''.join(f'<th>{_cell(name)}</th>' for name in header)}</tr>")
    lines += [f"<tr>{''.join(f'<td>{_cell(cell)}</td>' for cell in row)}</tr>" for row in found[:MOST_ROWS]]
    if len(found) > MOST_ROWS:
        lines.append("<tr><td>...</td></tr>")
    return "\n".join([*lines, "</table>"])


def _cell(value: object) -> str:
    text = str(value)
    return escape(text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}...")


__all__ = ["MOST_CHARACTERS", "html_table"]

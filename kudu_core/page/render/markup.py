"""Pieces of HTML: elements whose texts are escaped, tables, cards, bars."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape


def text(value: object) -> str:
    """A text for HTML, also inside of an attribute.

    What does not print is written out: no control character gets in, and none that turns the direction of
    what stands around it.
    """
    told = str(value)
    if not told.isprintable():
        told = "".join(c if c.isprintable() else f"\\u{{{ord(c):x}}}" for c in told)
    return escape(told)


def name(value: object) -> str:
    """A name or a key out of a table: it keeps its own direction."""
    return f"<bdi>{text(value)}</bdi>"


def element(tag: str, content: str, **attributes: object) -> str:
    """``content`` is HTML, attributes are texts; in their names ``_`` is ``-``, at the end nothing."""
    told = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{text(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return f"<{tag}{told}>{content}</{tag}>"


def section(id_: str, title: str, *parts: str) -> str:
    heading = element("h2", text(title), id=f"{id_}-title")
    return element("section", "".join([heading, *parts]), id=id_, aria_labelledby=f"{id_}-title")


def paragraph(content: str, class_: str | None = None) -> str:
    return element("p", content, class_=class_)


def cards(facts: Iterable[tuple[str, str, str]]) -> str:
    """(label, value, note) of each, as a list of terms."""
    found = [
        f'<div class="card"><dt>{text(label)}</dt><dd>{text(value)}</dd>'
        + (f'<dd class="note">{text(note)}</dd>' if note else "")
        + "</div>"
        for label, value, note in facts
    ]
    return f'<dl class="cards">{"".join(found)}</dl>'


def bar(share: float, label: str, kind: str = "fill") -> str:
    """A length from 0 to 1, with its number beside."""
    width = min(1.0, max(0.0, share)) * 100
    return (
        f'<span class="bar" aria-hidden="true"><i class="{kind}" style="width:{width:.2f}%"></i></span>'
        f'<span class="num">{text(label)}</span>'
    )


class TableCell:
    """A cell of a table: what is shown, and by what it is sorted."""

    __slots__ = ("content", "order")

    def __init__(self, content: str, order: float | str | None = None) -> None:
        """``content`` is HTML; ``order`` None: it is sorted by its text."""
        self.content = content
        self.order = order


def number(value: float | None, shown: str | None = None) -> TableCell:
    if value is None:
        return TableCell('<span class="muted">-</span>', -1)
    return TableCell(text(f"{value:,}" if shown is None else shown), value)


def words(value: object) -> TableCell:
    return TableCell(text(value))


def table(
    caption: str,
    header: Sequence[tuple[str, str]],
    rows: Iterable[tuple[str | None, Sequence[TableCell]]],
    class_: str = "",
) -> str:
    """A table that can be sorted, in a box that scrolls.

    ``header``: (title, kind) of each column, of which "n" are numbers; ``rows``: (id, cells).
    """
    heads = "".join(
        f'<th scope="col"{_kind(kind)}><button type="button" class="sort">{text(title)}</button></th>'
        for title, kind in header
    )
    body = "".join(
        f"<tr{f' id={chr(34)}{text(id_)}{chr(34)}' if id_ else ''}>"
        + "".join(_cell(cell, kind) for cell, (_, kind) in zip(cells, header, strict=True))
        + "</tr>"
        for id_, cells in rows
    )
    whole = (
        f'<table class="{text(class_)}"><caption>{text(caption)}</caption>'
        f"<thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"
    )
    return element("div", whole, class_="scroll", role="region", tabindex=0, aria_label=caption)


def _kind(kind: str) -> str:
    return f' class="{kind}"' if kind else ""


def _cell(cell: TableCell, kind: str) -> str:
    order = "" if cell.order is None else f' data-v="{text(cell.order)}"'
    return f"<td{_kind(kind)}{order}>{cell.content}</td>"


def expandable(summary: str, content: str, *, id_: str | None = None, is_open: bool = False) -> str:
    """``summary`` and ``content`` are HTML."""
    attributes = (f' id="{text(id_)}"' if id_ else "") + (" open" if is_open else "")
    return f"<details{attributes}><summary>{summary}</summary>{content}</details>"


def legend(entries: Iterable[tuple[str, str]]) -> str:
    """(class of the swatch, what it stands for)."""
    found = (f'<li><i class="{kind}" aria-hidden="true"></i>{text(label)}</li>' for kind, label in entries)
    return f'<ul class="legend">{"".join(found)}</ul>'


__all__ = [
    "TableCell",
    "bar",
    "cards",
    "element",
    "expandable",
    "legend",
    "name",
    "number",
    "paragraph",
    "section",
    "table",
    "text",
    "words",
]

"""The section of columns: what each takes, and how it is stored."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kudu_core.page.figures import in_bytes, in_share
from kudu_core.page.render.markup import TableCell, bar, name, number, paragraph, section, table, text, words

if TYPE_CHECKING:
    from kudu_core.page.report_data import ColumnFacts, ReportData

LISTED = 500
"""Of more columns the largest are listed."""


def columns_section(data: ReportData) -> str:
    columns = data.columns
    total = sum(c.bytes for c in columns)
    shown = columns
    if len(columns) > LISTED:
        largest = {c.name for c in sorted(columns, key=lambda c: -c.bytes)[:LISTED]}
        shown = [c for c in columns if c.name in largest]
    header = [
        ("column", ""), ("type", ""), ("key", "n"), ("bytes", "n"), ("share", "wide"), ("plain", "n"),
        ("ratio", "n"), ("NULL", "n"), ("encoding", ""), ("compression", ""), ("default", ""),
        ("comment", ""),
    ]  # fmt: skip
    return section(
        "columns",
        "Columns: bytes and encodings",
        paragraph(
            "Bytes of the pages, page indexes and dictionaries in base files; changes beside the base, "
            "blooms and key indexes are not in them. Plain is what the same cells take side by side; the "
            "ratio is plain by stored. Encodings are those of the mini-blocks of sampled pages.",
            "lead",
        ),
        _stack(shown, total),
        table("Columns", header, ((None, _row(c, total)) for c in shown)),
        ""
        if len(shown) == len(columns)
        else paragraph(f"The {len(shown)} largest of {len(columns):,} columns.", "muted"),
    )


def _stack(columns: list[ColumnFacts], total: int) -> str:
    """One bar of all columns."""
    if not total:
        return ""
    parts = "".join(
        f'<i class="part p{n % 6}" style="width:{c.bytes / total * 100:.3f}%" '
        f'title="{text(f"{c.name}: {in_bytes(c.bytes)}, {in_share(c.bytes / total)}")}"></i>'
        for n, c in enumerate(sorted(columns, key=lambda c: -c.bytes))
        if c.bytes
    )
    told = "Shares of the columns; the table has them"
    return f'<div class="stack" role="img" aria-label="{told}">{parts}</div>'


def _row(column: ColumnFacts, total: int) -> list[TableCell]:
    share = column.bytes / total if total else 0.0
    ratio = column.plain_bytes / column.bytes if column.plain_bytes is not None and column.bytes else None
    about = "about " if column.plain_sampled else ""
    kinds = sum(column.blocks.values())
    encoded = ", ".join(f"{kind} {in_share(n / kinds)}" for kind, n in column.blocks.items())
    if column.words is not None:
        encoded = f"dictionary of {column.words:,} words; codes: {encoded}"
    asked = "" if column.encoding == "auto" else f"asked: {column.encoding}. "
    plain = column.plain_bytes
    return [
        TableCell(f"<b>{name(column.name)}</b>", column.name),
        words(column.type if not column.nullable else f"{column.type} NULL"),
        number(column.key),
        number(column.bytes, in_bytes(column.bytes)),
        TableCell(bar(share, in_share(share)), share),
        number(plain, None if plain is None else f"{about}{in_bytes(plain)}"),
        number(ratio, None if ratio is None else f"{about}{ratio:.1f}"),
        number(column.nulls),
        words(f"{asked}{encoded or 'not looked at'}"),
        words(column.compression),
        TableCell(name(column.default) if column.default is not None else ""),
        TableCell(name(column.comment)),
    ]


__all__ = ["columns_section"]

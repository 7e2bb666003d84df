"""What ``_ext.row.scattered`` means: cells of rows of several files, one after the other."""

from __future__ import annotations

from collections.abc import Sequence


def gather(
    files: Sequence[Sequence[bytes | None]], sources: Sequence[int], rows: Sequence[int]
) -> list[bytes | None]:
    return [files[source][row] for source, row in zip(sources, rows, strict=True)]

"""What goes on meanwhile: a line on stderr with counts and rates, where that is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    import pyarrow as pa


class Meter:
    """Shows how far a piece of work is; a context manager.  Where stderr is no terminal it is silent."""

    def __init__(self, what: str, unit: str = "rows", total: int | None = None) -> None:
        self.count = 0
        self._bar: Any = None
        self._task: Any = None
        if sys.stderr.isatty():
            self._bar, self._task = _bar(what, unit, total)

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def add(self, count: int) -> None:
        """So many more are done."""
        self.count += count
        if self._bar is not None:
            self._bar.update(self._task, advance=count, rate=self._rate())

    def _rate(self) -> str:
        elapsed = self._bar.tasks[0].elapsed
        return f"{self.count / elapsed:,.0f}" if elapsed else ""

    def counted(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The same batches; their rows are counted."""
        for batch in batches:
            yield batch
            self.add(batch.num_rows)


def _bar(what: str, unit: str, total: int | None) -> tuple[Any, Any]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    counts = [TextColumn("{task.completed:,.0f} " + unit), TextColumn("{task.fields[rate]}/s")]
    if not unit:
        counts = []
    ends = [BarColumn(bar_width=20)] if total is not None else []
    bar = Progress(
        SpinnerColumn(), TextColumn("{task.description}"), *ends, *counts, TimeElapsedColumn(),
        console=Console(stderr=True), transient=True,
    )  # fmt: skip
    return bar, bar.add_task(what, total=total, rate="")

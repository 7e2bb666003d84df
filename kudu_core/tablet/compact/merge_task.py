"""A merging compaction as a task: what all its outputs share, where they go, and what each came to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from kudu_core.common.schema.schema import Schema
from kudu_core.rowset.history.merging import MergeInput
from kudu_core.rowset.rows.meta import RowSetMeta

if TYPE_CHECKING:
    from kudu_core.fs.api import FileSystem
    from kudu_core.options import Options
    from kudu_core.tablet.store.tablet import Tablet

DROPPED = 0xFFFFFFFF
"""In place of a row of the output: nothing of this one is left, or a younger copy took its place."""


@dataclass(frozen=True, slots=True)
class OutputPlace:
    """Where outputs are written, and what they are called there."""

    fs: FileSystem
    options: Options
    directory: str
    new_file: Callable[[str], str]
    """A name of that kind never used before in the directory."""
    new_rowset_id: Callable[[], int]

    @staticmethod
    def of(tablet: Tablet) -> OutputPlace:
        """Among the tablet's files."""
        fs, options = tablet.context.fs, tablet.context.options
        return OutputPlace(fs, options, tablet.directory, tablet.new_file, tablet.new_rowset_id)


@dataclass(slots=True, eq=False)
class MergeTask:
    """What all outputs of one merge share."""

    place: OutputPlace
    schema: Schema
    """At the cut."""
    sources: list[MergeInput]
    cut: int
    horizon: int
    check: Callable[[], None]
    """Raises when the merge is to end."""
    homes: list[np.ndarray]
    """By source: the row of its output that takes the changes of each row from the cut on, uint32, or
    ``DROPPED``."""
    written: list[str] = field(default_factory=list)
    """Paths of the files so far."""


@dataclass(frozen=True, slots=True, eq=False)
class MergeOutput:
    """What a range of keys came to."""

    lower: np.ndarray
    """(sources,) int64: the first row of each source that lies in the range."""
    rows: int
    """Of the sources."""
    meta: RowSetMeta | None
    """None: nothing is left."""


def rows_of_outputs(outputs: Sequence[MergeOutput]) -> int:
    """Of the sources."""
    return sum(output.rows for output in outputs)


__all__ = ["DROPPED", "MergeOutput", "MergeTask", "OutputPlace", "rows_of_outputs"]

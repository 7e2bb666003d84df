"""Outputs of a merge that another process builds, from the same rowsets, at the same cut.

    Order -> (there: build_ranges -> BuiltRange) -> (here: adopt -> MergeOutput)

The files lie in a folder of the attempt that has made them, until the merge links those of the attempts
that won; in an object store they stay there, and the tablet names them by that path.  What else the merge
needs, the map from rows of the inputs to rows of the outputs, is a file too.
Layout: docs/format-table.md, "staging/".
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np

from kudu_core.cfile.pages.container import CONTAINER_DELTA, CONTAINER_ROWS, FileReader
from kudu_core.common.format.members import BROKEN, integer
from kudu_core.common.format.names import file_path, staged_file
from kudu_core.common.schema.schema import Schema
from kudu_core.errors import Corruption
from kudu_core.fs.checked import read_checked, write_checked
from kudu_core.options import Options
from kudu_core.rowset.disk.diskrowset import DiskRowSet
from kudu_core.rowset.history.merging import MergeInput
from kudu_core.rowset.rows.meta import DeltaRef, FileRef, RowSetMeta
from kudu_core.tablet.compact.merge_output import build
from kudu_core.tablet.compact.merge_task import DROPPED, MergeOutput, MergeTask, OutputPlace

if TYPE_CHECKING:
    from kudu_core.fs.api import FileSystem
    from kudu_core.tablet.store.tablet import Tablet

HOMES = "homes"
"""The kind of a file that holds rows of the outputs, uint32, for the rows of a range, source after source."""


@dataclass(frozen=True, slots=True)
class Order:
    """What is to be built of one merge.  Picklable."""

    tablet_id: int
    inputs: tuple[RowSetMeta, ...]
    """As they were at the cut, without statistics."""
    schema: Schema
    options: Options
    cut: int
    horizon: int
    seen: int
    """The newest change of the inputs at the cut that only memory holds; 0: there is none."""
    directory: str
    """The merge's: in staging, in an object store beside those of jobs."""
    ranges: tuple[tuple[int, tuple[int, ...], tuple[int, ...]], ...]
    """(number, first row of each input, where they end)."""

    @staticmethod
    def of(
        tablet: Tablet, task: MergeTask, edges: np.ndarray, numbers: Sequence[int], directory: str
    ) -> Order:
        """For these of the ranges between ``edges``, (ranges + 1, sources) int64."""
        return Order(
            tablet_id=tablet.id,
            inputs=tuple(source.rowset.meta.without_statistics() for source in task.sources),
            schema=task.schema,
            options=task.place.options,
            cut=task.cut,
            horizon=task.horizon,
            seen=newest_in_memory(task),
            directory=directory,
            ranges=tuple(
                (number, tuple(edges[number].tolist()), tuple(edges[number + 1].tolist()))
                for number in numbers
            ),
        )


def newest_in_memory(task: MergeTask) -> int:
    """The newest change of the sources at the cut that no file holds; 0: there is none."""
    newest = 0
    for source in task.sources:
        for log in source.rowset.memory_stores:
            limit = log.limit(task.cut)
            if limit:
                newest = max(newest, int(log.changes(limit - 1, limit)[0][0]))
    return newest


@dataclass(frozen=True, slots=True)
class BuiltRange:
    """What came of one range, in files of the attempt's folder."""

    number: int
    folder: str
    """Of the attempt, in the merge's."""
    outputs: tuple[tuple[tuple[int, ...], int, RowSetMeta | None], ...]
    """As ``MergeOutput``: (first row of each source, rows, entry); names and ids are given when it is
    adopted."""
    homes: tuple[str, int, int]
    """(file, bytes, CRC-32C)."""

    def to_bytes(self) -> bytes:
        outputs = [
            [lower, rows, None if meta is None else meta.to_json()] for lower, rows, meta in self.outputs
        ]
        told = {"number": self.number, "folder": self.folder, "outputs": outputs, "homes": self.homes}
        return json.dumps(told, separators=(",", ":")).encode()

    @staticmethod
    def from_bytes(data: bytes) -> BuiltRange:
        try:
            value = json.loads(data)
            name, size, crc = value["homes"]
            return BuiltRange(
                number=integer(value["number"]),
                folder=staged_file(value["folder"]),
                outputs=tuple(_output(*output) for output in value["outputs"]),
                homes=(staged_file(name), integer(size), integer(crc)),
            )
        except BROKEN as exc:
            raise Corruption("a task's answer", 0, f"{exc!r:.200}") from exc


def _output(lower: Any, rows: Any, meta: Any) -> tuple[tuple[int, ...], int, RowSetMeta | None]:
    known = None if meta is None else RowSetMeta.from_json(meta)
    return tuple(map(integer, lower)), integer(rows), known


# ---- there ----


def build_ranges(tablet: Tablet, order: Order, name: str) -> list[BuiltRange] | None:
    """Build what is ordered, from a tablet that is open for reading and has seen ``order.seen``.

    None where the rowsets are not those of the order.  ``name``: the attempt's, as no other attempt's.
    """
    rowsets = _inputs(tablet, order)
    if rowsets is None:
        return None
    fs = tablet.context.fs
    directory = f"{order.directory}/{name}"
    fs.mkdir(directory)
    numbers = count()

    def new_file(kind: str) -> str:
        return f"000000-{next(numbers):08d}.{kind}"

    place = OutputPlace(fs, order.options, directory, new_file, new_rowset_id=lambda: 0)
    task = MergeTask(
        place=place,
        schema=order.schema,
        sources=[MergeInput.of(rowset, order.cut, order.horizon) for rowset in rowsets],
        cut=order.cut,
        horizon=order.horizon,
        check=lambda: None,
        homes=[np.full(rowset.meta.rows, DROPPED, np.uint32) for rowset in rowsets],
    )
    built = []
    for number, first, end in order.ranges:
        lower, upper = np.array(first, np.int64), np.array(end, np.int64)
        outputs = tuple(
            (tuple(output.lower.tolist()), output.rows, output.meta) for output in build(task, lower, upper)
        )
        built.append(BuiltRange(number, name, outputs, _write_homes(task, lower, upper)))
    fs.sync_dir(directory)
    return built


def _inputs(tablet: Tablet, order: Order) -> list[DiskRowSet] | None:
    """The rowsets that are to be merged; files that came to their changes since are no hindrance."""
    if tablet.context.schema().cells != order.schema.cells:
        return None  # its columns have other types here
    found = []
    for meta in order.inputs:
        rowset = tablet.view.rowset(meta.id)
        if rowset is None:
            return None
        now = rowset.meta
        known = [delta.file for delta in now.redo[: len(meta.redo)]] == [delta.file for delta in meta.redo]
        if not known or (now.base, now.replaced, now.undo) != (meta.base, meta.replaced, meta.undo):
            return None
        found.append(rowset)
    return found


def _write_homes(task: MergeTask, lower: np.ndarray, upper: np.ndarray) -> tuple[str, int, int]:
    place = task.place
    name = place.new_file(HOMES)
    ranges = zip(task.homes, lower.tolist(), upper.tolist(), strict=True)
    cells = (homes[first:end].astype("<u4", copy=False).view(np.uint8) for homes, first, end in ranges)
    size, crc = write_checked(place.fs, f"{place.directory}/{name}", cells)
    return name, size, crc


# ---- here ----


def adopt(
    tablet: Tablet, task: MergeTask, edges: np.ndarray, directory: str, built: Sequence[BuiltRange]
) -> list[MergeOutput]:
    """Make the files of all ranges the tablet's, and fill in ``MergeTask.homes``.

    Raises
    ------
    Corruption
        A file is missing, or not the one that was told of.
    """
    found: list[MergeOutput] = []
    for one in sorted(built, key=lambda built: built.number):
        _read_homes(tablet.context.fs, f"{directory}/{one.folder}", one, edges, task.homes)
        for lower, rows, meta in one.outputs:
            if meta is not None:
                meta = _taken_in(tablet, task, f"{directory}/{one.folder}", meta)
            found.append(MergeOutput(np.array(lower, np.int64), rows, meta))
    return found


def _read_homes(
    fs: FileSystem, folder: str, one: BuiltRange, edges: np.ndarray, homes: list[np.ndarray]
) -> None:
    name, size, crc = one.homes
    path = f"{folder}/{name}"
    lower, upper = edges[one.number], edges[one.number + 1]
    wanted = int((upper - lower).sum()) * 4
    data = read_checked(fs, path, size, crc, wanted)
    if size != wanted:
        raise Corruption(path, 0, f"the staged file has {size} bytes; the rows of its range have {wanted}")
    cells = np.frombuffer(data, "<u4")
    at = 0
    for mine, first, end in zip(homes, lower.tolist(), upper.tolist(), strict=True):
        mine[first:end] = cells[at : at + end - first]
        at += end - first


def _taken_in(tablet: Tablet, task: MergeTask, folder: str, meta: RowSetMeta) -> RowSetMeta:
    def taken(file: FileRef, kind: str, container: int) -> FileRef:
        staged = f"{folder}/{file.name}"
        name, link = tablet.taken_in(staged, kind)
        path = file_path(tablet.directory, name)
        fs = task.place.fs
        FileReader(fs, staged, container, size=file.size, footer_crc=file.footer_crc).close()
        task.written.append(path)
        if link is not None:
            fs.link(staged, path)
        return replace(file, name=name)

    def deltas(refs: Sequence[DeltaRef]) -> Iterator[DeltaRef]:
        for ref in refs:
            yield replace(ref, file=taken(ref.file, "delta", CONTAINER_DELTA))

    return replace(
        meta,
        id=tablet.new_rowset_id(),
        base=taken(meta.base, "rows", CONTAINER_ROWS),
        redo=tuple(deltas(meta.redo)),
        undo=tuple(deltas(meta.undo)),
    )


__all__ = ["BuiltRange", "Order", "adopt", "build_ranges", "newest_in_memory"]

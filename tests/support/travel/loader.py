"""A loader of rows with workers, as PyTorch's ``DataLoader`` has them; PyTorch itself is not needed.

A map-style dataset is made in the parent.  Each worker gets it with its fork, or by pickle, and then indices
from a queue of its own; the parent puts batches of indices there in turns, and takes rows from one queue.
"""

from __future__ import annotations

import queue
import traceback
from collections.abc import Iterator, Sequence
from multiprocessing.context import BaseContext
from typing import Any

import kudu_core as kc

LATE_S = 60.0
Row = dict[str, Any]


class RowsByIndex:
    """A map-style dataset: ``__len__`` and ``__getitem__``; ``__getitems__`` is what PyTorch asks for a batch
    where there is one."""

    def __init__(self, rows: kc.Table | kc.Snapshot, keys: Sequence[int]) -> None:
        self.rows, self.keys = rows, keys

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, index: int) -> Row:
        row = self.rows.get(self.keys[index])
        assert row is not None
        return row

    def __getitems__(self, indices: Sequence[int]) -> list[Row]:
        found = self.rows.get_many([self.keys[index] for index in indices])
        assert all(found["_found"].to_pylist())
        return found.drop_columns(["_found"]).to_pylist()


def _work(dataset: RowsByIndex, asked: Any, answers: Any) -> None:
    """What a worker does, until it is given None."""
    try:
        while (indices := asked.get()) is not None:
            answers.put((indices, dataset.__getitems__(indices), dataset[indices[0]]))
    except BaseException:  # noqa: BLE001  the parent judges
        answers.put(traceback.format_exc())


def loaded(dataset: RowsByIndex, context: BaseContext, *, workers: int, batch: int) -> Iterator[Row]:
    """All rows of a dataset, read by workers, in no order."""
    answers = context.Queue()
    queues = [context.Queue() for _ in range(workers)]
    start: Any = context  # ``BaseContext`` has no ``Process``; each context that there is has one
    processes = [start.Process(target=_work, args=(dataset, asked, answers)) for asked in queues]
    for process in processes:
        process.start()
    try:
        starts = range(0, len(dataset), batch)
        for number, start in enumerate(starts):
            indices = list(range(start, min(start + batch, len(dataset))))
            queues[number % workers].put(indices)
        for asked in queues:
            asked.put(None)
        for _ in starts:
            answer = _next(answers, processes)
            assert not isinstance(answer, str), answer
            _, rows, first = answer
            assert rows[0] == first
            yield from rows
    finally:
        for process in processes:
            process.join(LATE_S)
            assert process.exitcode == 0, process.exitcode


def _next(answers: Any, processes: Sequence[Any]) -> Any:
    """The next answer; at once an error where a worker has died without one."""
    for _ in range(int(LATE_S / 0.5)):
        try:
            return answers.get(timeout=0.5)
        except queue.Empty:
            died = [process.exitcode for process in processes if process.exitcode]
            assert not died, f"workers died: {died}"
    raise AssertionError("no answer")

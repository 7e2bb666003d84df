"""What both lanes of maintenance are: threads that look after the tablets of one table.

A thread looks now and then what could be done, does what comes first, and tells what fails.  A store or
rowset whose operation failed is left alone for some seconds.  When the table can be written no more, the
threads end and readers go on.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from kudu_core.common.run.gates import Flag
from kudu_core.common.run.locks import mutex
from kudu_core.common.run.workers import Worker
from kudu_core.errors import Cancelled, Closed, Fenced, Poisoned
from kudu_core.events import Event, MaintenanceError
from kudu_core.tablet.maintain.scoring import Operation
from kudu_core.tablet.store.tablet import Tablet

if TYPE_CHECKING:
    from kudu_core.common.run.clock import Clock

POLL_S = 0.5
"""How long a thread that nobody wakes waits before it looks again."""

RETRY_S = 5.0
"""How long a store or rowset is left alone whose operation failed."""


class Lane(ABC):
    """Looks after the tablets of one table open for writing.  Manual tables start no thread and call the same
    methods."""

    def __init__(
        self,
        names: Iterable[str],
        does: str,
        tablets: Sequence[Tablet],
        clock: Clock,
        tell: Callable[[Event], None],
    ) -> None:
        """``names``: of the threads.  ``does``: what they do, in a word, for what fails beside operations."""
        self._names = tuple(names)
        self._does = does
        self.tablets = tablets
        """Those that it looks after; the table puts others here when they change."""
        self._clock = clock
        self._tell = tell
        self._threads: list[Worker] = []
        self._stop = Flag()
        self.beside: Callable[[], object] | None = None
        """What its threads do before they look, from outside this room: it knows itself when it is due."""
        self._failed: dict[tuple[int, int | str], float] = {}
        """Until when a rowset, or a kind of operation, of a tablet is left alone.  Never changed, but
        replaced under ``_failed_mutex``: threads of the lane look at it, and writers that need memory."""
        self._failed_mutex = mutex()
        """No lock is taken under it."""

    def start(self) -> None:
        for name in self._names:
            thread = Worker(self._run, name)
            self._threads.append(thread)
            thread.start()

    def close(self) -> None:
        """Stop the threads and wait for them.  Whoever is interrupted may call it again."""
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            self._wait(POLL_S)
            if self._stop.is_set():
                return
            try:
                if self.beside is not None:
                    self.beside()
                self._work_through()
            except (Poisoned, Fenced):
                return  # nothing is written any more; readers go on
            except Exception as exc:  # noqa: BLE001  a thread has nobody to raise to: it tells
                if isinstance(exc, Closed) and self._stop.is_set():
                    return
                self._tell(MaintenanceError(error=repr(exc), tablet_id="", operation=self._does))

    def _wait(self, timeout_s: float) -> None:
        """Until it is time to look again, or the lane is closed."""
        self._stop.wait(timeout_s)

    @abstractmethod
    def _work_through(self) -> None:
        """Do what is due, on a thread of the lane."""

    # ---- operations ----

    @abstractmethod
    def _possible(self, tablets: Sequence[Tablet]) -> list[Operation]:
        """What could be done to these tablets now."""

    def _operations(self, tablets: Sequence[Tablet] | None = None) -> list[Operation]:
        """What could be done now, but for what is left alone; to all tablets or to these."""
        now_s = self._clock.monotonic_s()
        if self._failed:
            with self._failed_mutex:
                self._failed = {key: until for key, until in self._failed.items() if until > now_s}
        failed = self._failed
        possible = self._possible(self.tablets if tablets is None else tablets)
        return [op for op in possible if not failed.keys() & set(_left_alone_by(op))]

    def candidates(self) -> list[Operation]:
        """What could be done now, for who wants to see it; nothing is begun."""
        return self._operations()

    def _rowsets_left_alone(self, tablet: Tablet) -> set[int]:
        return {key for tablet_id, key in self._failed if tablet_id == tablet.id and isinstance(key, int)}

    def _leave_alone(self, op: Operation) -> None:
        until = self._clock.monotonic_s() + RETRY_S
        with self._failed_mutex:
            self._failed = {**self._failed, **dict.fromkeys(_left_alone_by(op), until)}

    def _tablet_of(self, op: Operation) -> Tablet | None:
        """None: it was purged."""
        return next((tablet for tablet in self.tablets if tablet.id == op.tablet_id), None)

    def _perform(self, op: Operation, work: Callable[[Tablet], bool], *, patient: bool) -> bool:
        """Do an operation to its tablet; false when there was nothing to do.

        Where it fails it is told, and left alone for a while.  Not ``patient``: then it raises as well.
        ``Poisoned``, ``Fenced`` and a ``Closed`` of the lane's own end are raised in any case.
        """
        tablet = self._tablet_of(op)
        if tablet is None:
            return False
        try:
            return work(tablet)
        except (Poisoned, Fenced):
            raise
        except Cancelled:
            self._leave_alone(op)
            if not patient:
                raise
            return False
        except Exception as exc:  # told, and no reason to leave the others alone
            if isinstance(exc, Closed) and self._stop.is_set():
                raise
            self._leave_alone(op)
            self._tell(MaintenanceError(error=repr(exc), tablet_id=str(op.tablet_id), operation=op.name))
            if not patient:
                raise
            return False


def _left_alone_by(op: Operation) -> list[tuple[int, int | str]]:
    """What an operation that failed leaves alone: its rowsets, or its kind in the tablet."""
    return [(op.tablet_id, key) for key in op.rowsets or (op.kind,)]


__all__ = ["POLL_S", "RETRY_S", "Lane"]

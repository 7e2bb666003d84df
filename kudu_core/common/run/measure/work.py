"""Long work that tells how far it is, and that can be asked to end.

``with LongWork("backup", engine.tell) as work:`` tells ``Started`` and ``Ended``; ``work.advance(rows)``
where something is done tells ``Progress`` now and then, and raises ``Cancelled`` where a listener has asked
for that.  Each thread knows what it has under way (``under_way``), so that what runs deep inside a work can
count for it.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, TypeVar

from kudu_core.common.run.clock import Clock
from kudu_core.common.run.locks import mutex
from kudu_core.errors import Cancelled, InvalidArgument
from kudu_core.events import Ended, Event, Progress, Started, WorkEvent, tell

PROGRESS_S = 0.1
"""A work tells so often at most how far it is."""
JOINED = frozenset(("ingest", "restore", "repair"))
"""What the ingest of its rows is part of, and not a work beside it."""
WHOLES = frozenset(("compact",))
"""What its parts do counts for it too."""

T = TypeVar("T")
_now_s = Clock.monotonic_s
_ids = count(1)


class _Here(threading.local):
    """What this thread has under way.  It is not held here: where an interrupt comes before its end is noted,
    it goes with the call that it was."""

    _work: weakref.ref[LongWork] | None = None

    @property
    def work(self) -> LongWork | None:
        return None if self._work is None else self._work()

    @work.setter
    def work(self, work: LongWork | None) -> None:
        self._work = None if work is None else weakref.ref(work)


_here = _Here()


class Token:
    """What events have of a work: they may be kept, and what does the work is not to stay with them."""

    __slots__ = ("is_cancelled",)

    def __init__(self) -> None:
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class LongWork:
    """One long work.  Its methods may be called by any thread, but for ``with`` and ``over``."""

    def __init__(
        self,
        operation: str,
        told: Callable[[Event], None] | None,
        *,
        unit: str = "rows",
        total: int | None = None,
        tablet_id: str = "",
        progress: Any = None,
    ) -> None:
        """``told`` hears of all events, and raises nothing.  ``progress``: as of the methods of ``Table``."""
        shown = progress_listener(progress)
        self._tellers = [] if told is None else [told]
        if shown is not None:
            self._tellers.append(shown)
        self.operation = operation
        self.parent = _here.work
        is_part = self.parent is not None and self.parent.operation in WHOLES
        self._counts_for = self.parent if is_part else None
        self._token = Token()
        self._known: dict[str, Any] = {
            "operation": operation,
            "work_id": next(_ids),
            "parent_id": None if self.parent is None else self.parent.id,
            "tablet_id": tablet_id,
            "token": self._token,
        }
        self._unit, self._total, self._phase, self._done = unit, total, "", 0
        self._reached = 0
        self._is_telling = False
        self._began_s = self._phase_began_s = _now_s()
        self._next_s = self._began_s + PROGRESS_S
        self._mutex = mutex()
        """Held for a moment; nobody is told under it."""

    @property
    def is_load(self) -> bool:
        """Whether rows that are written meanwhile are what it does."""
        return self.operation in JOINED

    @property
    def total(self) -> int | None:
        return self._total

    @property
    def id(self) -> int:
        return int(self._known["work_id"])

    def __enter__(self) -> LongWork:
        self._told(self._event(Started))
        _here.work = self
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        _here.work = self.parent
        self._told(self._event(Ended, error=None if error is None else repr(error)))

    # ---- how far it is ----

    def begin(self, phase: str, total: int | None = None) -> None:
        """Another part of the work."""
        with self._mutex:
            self._phase, self._total, self._done, self._phase_began_s = phase, total, 0, _now_s()
        self.check()

    def advance(self, amount: int, *, quiet: bool = False) -> None:
        """So much more is done; ``Cancelled`` where the work is to end.  ``quiet``: nobody is told now."""
        if self._counts_for is not None:
            self._counts_for.advance(amount, quiet=quiet)
        event = None
        with self._mutex:
            self._done += amount
            if not quiet and not self._is_telling and _now_s() >= self._next_s:
                event, self._is_telling = self._event(Progress), True
        if event is not None:
            try:
                self._told(event)
            finally:
                self._next_s, self._is_telling = _now_s() + PROGRESS_S, False
        self.check()

    def count(self, amount: int) -> None:
        """So much was done, and it cannot be given up any more: nobody is told now."""
        with self._mutex:
            self._done += amount

    def reach(self, amount: int) -> None:
        """A part of so much is done, whatever was counted of it before."""
        with self._mutex:
            self._reached += amount
            self._done = max(self._done, self._reached)

    def over(self, things: Iterator[T], amount: Callable[[T], int]) -> Iterator[T]:
        """The things, each counted when the next one is asked for."""
        for thing in things:
            yield thing
            self.advance(amount(thing))

    def _event(self, kind: type[WorkEvent], error: str | None = None) -> WorkEvent:
        now_s = _now_s()
        took_s = now_s - self._phase_began_s
        return kind(
            elapsed_s=now_s - self._began_s,
            error=error,
            phase=self._phase,
            done=self._done,
            total=self._total,
            unit=self._unit,
            rate=self._done / took_s if took_s > 0 else 0.0,
            **self._known,
        )

    def _told(self, event: WorkEvent) -> None:
        before, _here.work = _here.work, None  # what a listener does is no part of the work
        try:
            for teller in self._tellers:
                teller(event)
        finally:
            _here.work = before

    # ---- its end ----

    def cancel(self) -> None:
        """Ask it to end."""
        self._token.cancel()

    def check(self) -> None:
        """``Cancelled`` if it, or what it is a part of, is to end."""
        work: LongWork | None = self
        while work is not None:
            if work._token.is_cancelled:
                raise Cancelled(f"the {work.operation} was cancelled while it was under way")
            work = work.parent

    def on_this_thread(self, act: Callable[[], T]) -> T:
        """Do a part of the work on a thread that helps."""
        before, _here.work = _here.work, self
        try:
            return act()
        finally:
            _here.work = before


def under_way() -> LongWork | None:
    """What this thread is at."""
    return _here.work


def counted_here(things: Iterator[T], amount: Callable[[T], int]) -> Iterator[T]:
    """The things, each counted for what this thread is at when the next one is asked for."""
    return things if _here.work is None else _here.work.over(things, amount)


class load_of:
    """``with`` it as the work of a bulk load: that under way, if the load is what it does, or a new one."""

    def __init__(self, told: Callable[[Event], None]) -> None:
        now = _here.work
        self.is_new = now is None or not now.is_load
        self._work = LongWork("ingest", told) if self.is_new or now is None else now

    def __enter__(self) -> LongWork:
        return self._work.__enter__() if self.is_new else self._work

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self.is_new:
            self._work.__exit__(kind, error, trace)


def progress_listener(progress: Any) -> Callable[[Event], None] | None:
    """Who is told of a work because of its ``progress=``; ``InvalidArgument`` for what nobody can be."""
    if progress is None or progress is False:
        return None
    if progress is True:
        from kudu_core.common.run.measure.bar import Bar

        return Bar()
    if not callable(progress):
        raise InvalidArgument(f"progress is True, or called with each event of the work; not {progress!r}")
    return lambda event: tell(progress, event)


__all__ = ["LongWork", "counted_here", "load_of", "progress_listener", "under_way"]

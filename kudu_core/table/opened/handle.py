"""An open table as one process holds it: the engine of now and, for a reader, the way to a newer one.

Everything that reads or writes an open table takes a ``Handle``.  A writer's handle has one engine from its
opening to its end.  A reader's engine is a picture of one moment: ``refresh`` puts a newer one in its place.

A table whose handle nobody holds any more, or that is open when the interpreter ends, is closed cleanly.  A
forked child closes its copies of log, lease and manifests without unlocking or writing (protocol P1).

A handle travels as its ``Origin``: how the table was opened.  What arrives, by pickle, or with a fork of who
reads, is a handle for reading that opens the table at its first use.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple, cast

from kudu_core.common.run.clock import Clock
from kudu_core.common.run.locks import mutex
from kudu_core.common.run.measure.call_times import sampling
from kudu_core.errors import ChangesLost, Closed, KuduError, ReadOnly, SnapshotTooOld
from kudu_core.fs.missing import FileMissing
from kudu_core.table.opened.engine import Engine
from kudu_core.table.opened.read_end import warn_of_unreplayed
from kudu_core.table.opened.travel.origin import Unopened, replaced
from kudu_core.table.opened.travel.unheld import close_unheld, open_engines, open_handles

if TYPE_CHECKING:
    from kudu_core.table.opened.travel.origin import Origin, Reopen

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

STATE_TRIES = 20
"""States of a reader that one call tries, beside a writer that replaces their files."""


class Handle:
    """An open table, and for a reader the way to a newer state of it.  A context manager.

    Safe for any number of threads.  The table is closed when nobody holds its handle any more.
    """

    engine: Engine
    """The state of now; whether it was closed meanwhile is not asked."""

    def __init__(
        self,
        engine: Engine | None,
        reopen: Reopen | None = None,
        origin: Origin | None = None,
        began_s: float = 0.0,
    ) -> None:
        """``reopen`` of a reader.  ``engine`` None: what ``origin`` opens for reading at the first use;
        ``origin`` None: the handle does not travel.  ``began_s``: when the look at the table began."""
        if engine is None:
            assert origin is not None
            self.path, self.engine = origin.path, cast("Engine", Unopened(self.opened))
        else:
            self.path, self.engine = engine.path, engine
            open_engines.add(engine)
        self.writes = engine is not None and engine.writer
        self.refresh_s = None if origin is None or self.writes else origin.refresh_s
        """A read through a ``Table`` refreshes first what is older; None: whoever wants that calls it."""
        self.now_s = Clock().monotonic_s if engine is None else engine.clock.monotonic_s
        self.refreshed_s = began_s
        """When the look began by which a reader has its state."""
        self.gets_due = sampling()
        """Asked before each read of one row: for how many its time stands, 0: it is not measured."""
        self._reopen = reopen
        self._origin = origin
        self._held = [] if engine is None else [engine]
        """The state of now once more, for what closes it when nobody holds the handle."""
        open_handles.add(self)
        self._watch = weakref.finalize(self, close_unheld, self._held)
        self._refresh_mutex = mutex()
        self._exchange_mutex = mutex()
        """Of the moment at which a newer state takes its place, or a close forbids that."""
        self._is_closed = False
        """``close`` was called: no other state takes the place of the one that it closes."""

    @property
    def is_unopened(self) -> bool:
        """It has arrived here, and nothing was asked of it yet."""
        return isinstance(self.engine, Unopened) and not self._is_closed

    def opened(self) -> Engine:
        """The state of now; ``Closed`` where there is none."""
        engine = self.engine
        while True:
            try:
                engine.check_open()
            except Closed:
                if engine is self.engine:
                    if not isinstance(engine, Unopened):
                        raise
                    self._open_first()
                engine = self.engine  # a refresh beside this call has put it there
            else:
                return engine

    def for_writing(self) -> Engine:
        """The state of now; ``ReadOnly``, or what has poisoned it, where it cannot be written."""
        engine = self.opened()
        if not engine.writer:
            raise ReadOnly(f'{engine.path} is open for reading; open it with mode="rw" to write')
        engine.check_writable()
        return engine

    # ---- where the state moves under who reads it ----

    # A call answers with a state of between its begin and its end.  That a newer one took its place
    # meanwhile, that files of it were replaced, that history was dropped since a look at the time: none of it
    # is told.

    def retrying(self, work: Callable[[Engine, *Ts], T], *arguments: *Ts) -> T:
        """``work`` with the state of now and ``arguments``, which it gets more than once: again with a newer
        state, where the writer has replaced a file under it (protocol R4)."""
        engine = self.opened()
        lost: str | None = None
        problem: FileMissing | None = None
        for _ in range(STATE_TRIES):
            try:
                return work(engine, *arguments)
            except FileMissing as missing:
                # Nobody takes files from a writer, and no state names one that went before it was read.
                if self._reopen is None or missing.path == lost:
                    raise
                problem = missing
            if engine is self.engine:
                self.refresh()
                lost = problem.path
            engine = self.opened()
        raise KuduError(f"{self.path} changed {STATE_TRIES} times while it was being read") from problem

    def again_where_lost(self, work: Callable[[], T]) -> T:
        """What ``work`` says, which reads files that it has opened: once more, where one vanishes under it
        (protocol B14)."""
        lost: str | None = None
        while True:
            try:
                return work()
            except FileMissing as missing:
                lost = self._begin_again(missing, lost, begun=False)

    def begun_again_where_lost(self, read: Callable[[], Iterator[T]]) -> Iterator[T]:
        """What ``read`` gives out, likewise; ``SnapshotTooOld`` where some of it was given out before."""
        lost: str | None = None
        while True:
            begun = False
            try:
                for some in read():
                    begun = True
                    yield some
                return
            except FileMissing as missing:
                lost = self._begin_again(missing, lost, begun=begun)

    def _begin_again(self, missing: FileMissing, lost: str | None, *, begun: bool) -> str:
        """After a file vanished that was open: refresh, and answer with its path, for who read it to begin
        again.  In a folder files stay readable while they are open, so there it is damage.

        ``lost``: the path that was missing before; ``begun``: rows were given out, so that it cannot.
        """
        if not self.engine.in_store or self._reopen is None or missing.path == lost:
            raise missing
        if begun:
            grace_s = self.engine.options.file_grace_s
            raise SnapshotTooOld(
                f"{missing.path} was deleted while it was being read, which took longer than file_grace_s, "
                f"{grace_s:g} s, for which files stay that were replaced; give the table more, or read less"
            ) from missing
        self.refresh()
        return missing.path

    def of_now(self, at: object, read: Callable[[], T]) -> T:
        """What ``read`` says, which takes the newest snapshot where ``at`` is None: then once more, where the
        history of that is dropped before it is pinned, or by a refresh."""
        while True:
            engine = self.opened()
            seen = engine.visible_ts, engine.oldest_ts
            try:
                return read()
            except ChangesLost:
                raise  # of an earlier time, which the caller has named
            except SnapshotTooOld:
                # A task reads what is durable, whose newest moment goes on behind that of who reads here.
                engine = self.opened()
                if at is not None or (engine.visible_ts, engine.oldest_ts) <= seen:
                    raise

    def steady(self, make: Callable[[Engine], T]) -> T:
        """What ``make`` makes of one schema; again where an ALTER came between.

        Else a file might have been written already without what it asks for.
        """
        while True:
            engine = self.opened()
            schema = engine.schema
            made = make(engine)
            if engine.schema is schema:
                return made

    def refresh_to(self, timestamp: int, schema_version: int) -> None:
        """Refresh a reader that does not see a timestamp yet, or columns of that version."""
        engine = self.opened()
        if timestamp > engine.visible_ts or schema_version > engine.schema.version:
            self.refresh()

    def refresh(self) -> None:
        """Read the newest state; of a writer, whose state is the newest, nothing.

        Warns of a record of the log that cannot be replayed, where it is met for the first time.
        """
        self._refresh(0.0)

    def current(self) -> Handle:
        """This handle, for a read that begins: refreshed before, where it is to be (``refresh_s``)."""
        if self.refresh_s is not None:
            self.refresh_older(self.refresh_s)
        return self

    def refresh_older(self, seconds: float) -> None:
        """Refresh a reader whose last look at the table began ``seconds`` ago, or more."""
        if self.now_s() - self.refreshed_s >= seconds:
            self._refresh(seconds)

    def _refresh(self, seconds: float) -> None:
        """Likewise, where nobody else has done so since."""
        self.opened()
        if self._reopen is None:
            return
        with self._refresh_mutex:  # two at once would leave one engine behind, or go back in time
            engine = self.opened()
            began_s = self.now_s()
            if began_s - self.refreshed_s < seconds:
                return
            newest = self._reopen()
            if newest is None:
                self.refreshed_s = began_s
                return
            fresh, event = newest
            if fresh.uuid != engine.uuid:
                fresh.discard()
                raise replaced(self.path)
            if _is_behind(fresh, engine):
                fresh.discard()
                self.refreshed_s = began_s
                return
            open_engines.add(fresh)
            floor = max(engine.pins.floor, fresh.oldest_ts)
            met = fresh.unreplayed if fresh.unreplayed != engine.unreplayed else None
            with self._exchange_mutex:
                closed = self._is_closed
                if not closed:
                    # Plain stores: an interrupt comes before all of them or after.
                    engine.pins.floor = floor
                    fresh.pool, engine.pool = engine.pool, fresh.pool
                    fresh.pins = engine.pins
                    engine.call_times.slow_s = fresh.call_times.slow_s
                    fresh.call_times = engine.call_times
                    self.engine = self._held[0] = fresh
                    self.refreshed_s = began_s
            if closed:
                fresh.close()
                raise Closed(f"{self.path} was closed")
            engine.retire()
        fresh.tell(event)  # a listener may read, refresh and close
        warn_of_unreplayed(met)

    # ---- in another process ----

    def _open_first(self) -> None:
        """Open what has arrived here, unless another thread has."""
        assert self._origin is not None
        with self._refresh_mutex:
            if not isinstance(self.engine, Unopened):
                return
            if self._is_closed:
                raise Closed(f"{self.path} was closed")
            began_s = self.now_s()
            engine, event, reopen = self._origin.open()
            open_engines.add(engine)
            with self._exchange_mutex:
                closed = self._is_closed
                if not closed:
                    self._held[:] = [engine]
                    self.now_s = engine.clock.monotonic_s
                    self._reopen, self.refreshed_s, self.engine = reopen, began_s, engine
            if closed:
                engine.close()
                raise Closed(f"{self.path} was closed")
        engine.tell(event)
        warn_of_unreplayed(engine.unreplayed)

    def __reduce__(self) -> Any:
        """As a reader of the same table.  What a writer has written is durable before it has gone."""
        if self._origin is None:
            raise TypeError(f"this handle of {self.path} does not travel to another process")
        origin = self._origin.sent()
        if not isinstance(self.engine, Unopened):
            engine = self.opened()
            origin = origin.of(engine.uuid)
            if engine.writer:
                engine.log.wait_committed(engine.visible_ts)
        return arrived, (origin,)

    def moment_for_others(self, timestamp: int) -> int:
        """A timestamp at which another process sees the rows that are here at ``timestamp``."""
        if not self.writes:
            return timestamp
        log = self.opened().log
        log.wait_committed(timestamp)
        return min(timestamp, log.committed_ts)  # nothing lies, or will, between the two

    def forked(self) -> None:
        """In the child of a fork, whose only thread this is."""
        self._refresh_mutex, self._exchange_mutex = mutex(), mutex()
        if self._origin is None or self._reopen is None or self._is_closed:
            return
        with self._refresh_mutex:
            self._origin = self._origin.of(self.engine.uuid)
            self._held.clear()
            self.engine, self._reopen = cast("Engine", Unopened(self.opened)), None

    # ---- the end ----

    def close(self) -> None:
        """Make everything durable and let go of the table.  Idempotent.

        It does not wait for a refresh beside it, which lets go of what it has opened.
        """
        with self._exchange_mutex:
            self._is_closed = True
            held = list(self._held)
        for engine in held:
            engine.close()
        self._watch.detach()  # last: after an interrupt the end of the handle or of Python closes it

    def leave_to_caller(self) -> None:
        """Nobody closes the table but its caller, who will remove it where that fails."""
        self._watch.detach()

    def __enter__(self) -> Handle:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class HandleOwner:
    """What users hold in place of a handle: a ``Table``."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle


def _is_behind(fresh: Engine, engine: Engine) -> bool:
    """Whether a reader would go back in time.

    Where nobody writes, it reads the log to its end.  Whoever takes the lease then makes all of that durable
    with the epoch that it begins; until it has, COMMITTED is that of the writer before it (protocol R2).
    """
    assert fresh.read_end is not None and engine.read_end is not None
    is_same_life = fresh.read_end.epoch == engine.read_end.epoch
    return is_same_life and fresh.unreplayed is None and fresh.visible_ts < engine.visible_ts


def arrived(origin: Origin) -> Handle:
    """What a handle is in the process to which it was sent: one for reading."""
    return Handle(None, origin=origin)


def handle_of(owner: HandleOwner) -> Handle:
    """The handle behind what a user holds, for the rooms above."""
    return owner._handle


__all__ = ["Handle", "HandleOwner", "arrived", "handle_of"]

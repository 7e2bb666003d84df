"""The pool of worker threads that scans and writes share.

Workers are daemon threads, started when there is work.  A pool belongs to the process that made it:
after a fork the child makes its own.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from queue import SimpleQueue
from typing import Generic, Self, TypeVar

from kudu_core.common.run.gates import Gates
from kudu_core.common.run.locks import mutex
from kudu_core.common.run.workers import Worker
from kudu_core.errors import Closed

T = TypeVar("T")
R = TypeVar("R")

ONE_BY_ONE = 8
"""So many items of ``Pool.each``, or fewer, are done on the caller's thread."""


def available_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Task(Generic[R]):
    """A call that a worker makes: its result, or what it raised."""

    __slots__ = ("_calls", "_error", "_finished", "_gates", "_result")

    def __init__(self, call: Callable[[], R]) -> None:
        self._calls = [call]
        """The call until somebody begins or cancels it: one of them gets it."""
        self._finished = False
        self._gates = Gates()
        self._result: R | None = None
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            call = self._calls.pop()
        except IndexError:
            return  # it was cancelled
        try:
            self._result = call()
        except BaseException as error:  # noqa: BLE001  handed to whoever waits, whatever it is
            self._error = error
        finally:
            del call
            self._finished = True
            self._gates.open()

    def cancel(self) -> bool:
        """Whether it had not begun, and never will."""
        try:
            self._calls.pop()
        except IndexError:
            return False
        return True

    @property
    def done(self) -> bool:
        """Whether it has come to its end."""
        return self._finished

    def wait(self) -> None:
        """Until it has come to its end."""
        if not self._finished:
            self._gates.wait_while(lambda: not self._finished)

    def result(self) -> R:
        """Wait; raises what the call raised."""
        self.wait()
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]


class Pool:
    """``threads`` workers (None: one for each core) for short tasks that wait for no other task."""

    def __init__(self, threads: int | None = None, name: str = "kudu-core") -> None:
        self.threads = available_cores() if threads is None else threads
        self._name = name
        self._pid = os.getpid()
        self._queue: SimpleQueue[Task[object] | None] = SimpleQueue()
        self._lock = mutex()
        """Guards the list of workers and ``_closed``; held for no longer than a thread's start."""
        self._workers: list[Worker] = []
        self._open: set[Task[object]] = set()
        """Tasks that have not come to their end."""
        self._closed = False

    def submit(self, call: Callable[[], R]) -> Task[R]:
        """Have a worker make the call.  ``Closed`` after ``close`` and after a fork."""
        task = Task(call)
        self._submit(task)
        return task

    def _submit(self, task: Task[R]) -> None:
        self._check()  # before the lock, which another thread may have held at a fork
        with self._lock:
            self._check()
            try:
                self._open.add(task)  # type: ignore[arg-type]
                self._start_worker()
                self._queue.put(task)  # type: ignore[arg-type]
            except BaseException:
                self._open.discard(task)
                raise

    def map(
        self, function: Callable[[T], R], items: Iterable[T], *, window: int | None = None
    ) -> Iterator[R]:
        """``function`` of each item, in order, at most ``window`` items ahead of the caller.

        ``items`` is read by the calling thread.  The first exception comes at its place in the
        order, and what has not begun then never does; so too when the iterator is closed early,
        which waits for what is running: so hold it in no variable, which a traceback would keep.  A pool of
        one thread works on the caller's, and so does one that was closed: what had begun before comes to its
        end.
        """
        if self.threads == 1:
            self.check_process()
            yield from map(function, items)
            return
        ahead = max(1, 2 * self.threads if window is None else window)
        tasks: deque[Task[R]] = deque()
        try:
            for item in items:
                task = Task(_bound(function, item))
                tasks.append(task)  # first: what an interrupt leaves submitted is waited for
                self._submit_or_run(task)
                if len(tasks) >= ahead:
                    yield tasks[0].result()
                    tasks.popleft()
            while tasks:
                self.check_process()
                yield tasks[0].result()
                tasks.popleft()
        finally:
            if self._pid != os.getpid():
                tasks.clear()  # in the child of a fork nobody works on them
            _settle(tasks)

    def each(self, function: Callable[[T], object], items: Sequence[T]) -> None:
        """``function`` of each item, which waits for the disk; a few are not worth the threads."""
        for _ in self.map(function, items) if len(items) > ONE_BY_ONE else map(function, items):
            pass

    def _submit_or_run(self, task: Task[R]) -> None:
        try:
            self._submit(task)
        except Closed:
            self.check_process()
            task.run()

    def close(self) -> None:
        """Let workers finish what was submitted, and wait for them.

        A worker may call it (it may hold the last reference to a table): it does not wait for itself.
        Whoever is interrupted may call it again.
        """
        if self._pid != os.getpid():
            return
        with self._lock:
            self._closed = True
            self._queue.put(None)  # one for all: each passes it on
        for worker in self._workers:
            worker.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def is_of_this_process(self) -> bool:
        """Whether it was made here, and not before a fork."""
        return self._pid == os.getpid()

    def check_process(self) -> None:
        """``Closed`` in the child of a fork."""
        if self._pid != os.getpid():
            raise Closed("a pool of threads does not survive a fork; make a new one in the child")

    def _check(self) -> None:
        self.check_process()
        if self._closed:
            raise Closed("the pool of threads is closed")

    def _start_worker(self) -> None:
        """Under the lock: one more, if there are more tasks than workers."""
        if len(self._open) <= len(self._workers) or len(self._workers) == self.threads:
            if all(worker.is_alive for worker in self._workers):
                return
            self._workers[:] = [worker for worker in self._workers if worker.is_alive]  # its start failed
        worker = Worker(self._work, f"{self._name}-{len(self._workers) + 1}")
        self._workers.append(worker)
        worker.start()

    def _work(self) -> None:
        while True:
            task = self._queue.get()
            if task is None:
                break
            try:
                task.run()
            except MemoryError:  # not of the call: while it told those who wait, and they look again
                continue
            finally:
                self._open.discard(task)
                del task  # its result is the caller's to keep
        self._queue.put(None)


def _settle(tasks: deque[Task[R]]) -> None:
    """What has not begun never does, and what has comes to its end, also where the wait is interrupted:
    what it works on is the caller's, who takes it away next."""
    interrupt: BaseException | None = None
    running = [task for task in tasks if not task.cancel()]
    while running:
        try:
            running[-1].wait()
            running.pop()
        except BaseException as error:  # noqa: BLE001  raised below, when nothing runs any more
            interrupt = error
    if interrupt is not None:
        raise interrupt


def _bound(function: Callable[[T], R], item: T) -> Callable[[], R]:
    return lambda: function(item)

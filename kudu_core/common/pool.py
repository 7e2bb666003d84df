"""The pool of worker threads that scans and writes share.

Workers are daemon threads, started when there is work.  A pool belongs to the process that made it:
after a fork the child makes its own.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from queue import SimpleQueue
from typing import Generic, Self, TypeVar

from kudu_core.errors import Closed

T = TypeVar("T")
R = TypeVar("R")


def available_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Task(Generic[R]):
    """A call that a worker makes: its result, or what it raised."""

    __slots__ = ("_call", "_done", "_error", "_result")

    def __init__(self, call: Callable[[], R]) -> None:
        self._call: Callable[[], R] | None = call
        self._done = threading.Event()
        self._result: R | None = None
        self._error: BaseException | None = None

    def run(self) -> None:
        call, self._call = self._call, None
        try:
            if call is not None:
                self._result = call()
        except BaseException as error:  # noqa: BLE001  handed to whoever waits, whatever it is
            self._error = error
        finally:
            self._done.set()

    def cancel(self) -> None:
        """A task that has not begun does nothing."""
        self._call = None

    def result(self) -> R:
        """Wait; raises what the call raised."""
        self._done.wait()
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
        self._lock = threading.Lock()
        """Guards the list of workers and ``_closed``; held for no longer than a thread's start."""
        self._workers: list[threading.Thread] = []
        self._waiting = 0
        self._closed = False

    def submit(self, call: Callable[[], R]) -> Task[R]:
        """Have a worker make the call.  ``Closed`` after ``close`` and after a fork."""
        task = Task(call)
        self._check()  # before the lock, which another thread may have held at a fork
        with self._lock:
            self._check()
            self._waiting += 1
            if self._waiting > len(self._workers) < self.threads:
                self._start_worker()
            self._queue.put(task)  # type: ignore[arg-type]
        return task

    def map(
        self, function: Callable[[T], R], items: Iterable[T], *, window: int | None = None
    ) -> Iterator[R]:
        """``function`` of each item, in order, at most ``window`` items ahead of the caller.

        ``items`` is read by the calling thread.  The first exception comes at its place in the
        order, and what has not begun then never does; so too when the iterator is closed early,
        which waits for what is running.  A pool of one thread works on the caller's, and so does
        one that was closed: what had begun before comes to its end.
        """
        if self.threads == 1:
            self.check_process()
            yield from map(function, items)
            return
        ahead = max(1, 2 * self.threads if window is None else window)
        tasks: deque[Task[R]] = deque()
        try:
            for item in items:
                tasks.append(self._submit_or_run(_bound(function, item)))
                if len(tasks) >= ahead:
                    yield tasks.popleft().result()
            while tasks:
                self.check_process()
                yield tasks.popleft().result()
        finally:
            if self._pid != os.getpid():
                tasks.clear()  # in the child of a fork nobody works on them
            for task in tasks:
                task.cancel()
            for task in tasks:
                task._done.wait()

    def _submit_or_run(self, call: Callable[[], R]) -> Task[R]:
        try:
            return self.submit(call)
        except Closed:
            self.check_process()
        task = Task(call)
        task.run()
        return task

    def close(self) -> None:
        """Let workers finish what was submitted, and wait for them.

        A worker may call it (it may hold the last reference to a table): it does not wait for itself.
        """
        if self._pid != os.getpid():
            return
        with self._lock:
            self._closed = True
            workers, self._workers = self._workers, []
            for _ in workers:
                self._queue.put(None)
        for worker in workers:
            if worker is not threading.current_thread():
                worker.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def check_process(self) -> None:
        """``Closed`` in the child of a fork."""
        if self._pid != os.getpid():
            raise Closed("a pool of threads does not survive a fork; make a new one in the child")

    def _check(self) -> None:
        self.check_process()
        if self._closed:
            raise Closed("the pool of threads is closed")

    def _start_worker(self) -> None:
        number = len(self._workers) + 1
        worker = threading.Thread(target=self._work, name=f"{self._name}-{number}", daemon=True)
        self._workers.append(worker)
        worker.start()

    def _work(self) -> None:
        while (task := self._queue.get()) is not None:
            task.run()
            with self._lock:
                self._waiting -= 1
            del task  # its result is the caller's to keep


def _bound(function: Callable[[T], R], item: T) -> Callable[[], R]:
    return lambda: function(item)

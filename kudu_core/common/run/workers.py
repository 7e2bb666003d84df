"""Threads that an interrupt cannot leave half started.

``Thread.start`` is Python and waits at an ``Event``: a signal handler that raises in it may leave a thread
that nobody knows of, one that is known and never runs, or one that hangs for ever because the event's lock is
held.  So a ``Worker`` has another thread, which no handler runs in, start its own.
"""

from __future__ import annotations

import threading
from _thread import start_new_thread
from collections.abc import Callable

from kudu_core.common.run.gates import Gates
from kudu_core.common.run.locks import Claim

_idents: set[int] = set()
"""Of the workers' threads of this process, while they run."""


def is_worker() -> bool:
    """Whether this thread is a worker's."""
    return threading.get_ident() in _idents


def forget_workers() -> None:
    """In the child of a fork, which has none of them."""
    _idents.clear()


class Worker:
    """A daemon thread that makes one call; started once.  Thread safe.

    It is alive from the moment ``start`` has had the system make a thread, also where an interrupt follows
    at once: ``_alive`` is emptied by a ``Claim`` that travels with the thread and goes with it.
    """

    def __init__(self, call: Callable[[], object], name: str) -> None:
        self.name = name
        self._call = call
        self._alive: set[Worker] = set()
        self._begun = False
        self._failure: BaseException | None = None
        self._ident: int | None = None
        self._changed = Gates()

    @property
    def is_alive(self) -> bool:
        return bool(self._alive)

    def start(self) -> None:
        """``RuntimeError`` when the system has no thread for it."""
        start_new_thread(self._bring_up, (Claim(self._alive, self),))
        self._changed.wait_while(lambda: not self._begun and self._failure is None)
        if self._failure is not None:
            raise self._failure

    def join(self) -> None:
        """Wait for its end; at once where it was never started, and in the thread itself.

        Whoever is interrupted may call it again.
        """
        if self._ident != threading.get_ident():
            self._changed.wait_while(lambda: bool(self._alive))

    def _bring_up(self, claim: Claim) -> None:
        try:
            threading.Thread(target=self._run, args=(claim,), name=self.name, daemon=True).start()
        except BaseException as error:  # noqa: BLE001  handed to whoever starts it
            claim.release()
            self._failure = error
        finally:
            self._changed.open()

    def _run(self, claim: Claim) -> None:
        self._ident = threading.get_ident()
        self._begun = True
        self._changed.open()
        _idents.add(self._ident)
        try:
            self._call()
        finally:
            _idents.discard(self._ident)
            claim.release()
            self._changed.open()


__all__ = ["Worker", "forget_workers", "is_worker"]

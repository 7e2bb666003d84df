"""A table is closed once, whoever asks: one thread does it, and the others wait for its end."""

from __future__ import annotations

import threading
from collections.abc import Callable

from kudu_core.common.run.gates import Gates
from kudu_core.common.run.locks import Claim, mutex
from kudu_core.common.run.workers import is_worker


class Closing:
    """The closing of one table.  Thread safe."""

    def __init__(self) -> None:
        self.ended = False
        """Nothing is held any more: a close has come to its end."""
        self.threads: set[int] = set()
        """The thread that closes the table, by number.  Added to under the mutex."""
        self._mutex = mutex()
        self._released = Gates()

    def run(self, close: Callable[[], None], is_awaited: Callable[[], bool]) -> None:
        """``close``, unless another thread is at it: then wait for that, and go on where it was interrupted.

        ``close`` sets ``ended``; while it does not, it is called again.  ``is_awaited``: whether a close
        waits for what this thread has under way.  Such a thread, a worker, and the thread that closes return
        at once.
        """
        me = threading.get_ident()
        with Claim(self.threads) as mine:
            while not self.ended:
                with self._mutex:
                    if not self.threads:
                        mine.take((me,))
                if mine.held:
                    close()
                elif me in self.threads or is_worker() or is_awaited():
                    return
                else:
                    self._released.wait(lambda: bool(self.threads))
        self._released.open()


__all__ = ["Closing"]

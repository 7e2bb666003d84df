"""The answer of a write that did not wait for it: ``wait=False`` (protocol W9).

The write is decided, logged and applied when its ticket exists; what is missing is that it be visible, which
with ``durability="sync"`` is the fsync.  The log's own thread runs that soon, for all that was appended by
then, so one caller shares an fsync with its next calls as several callers do.  Whoever waits for a ticket
waits like a call that waits, and runs the fsync itself where nobody does.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kudu_core.table.calls.result import WriteResult
    from kudu_core.table.opened.engine import Engine
    from kudu_core.wal.appending import AppendingLog


class WriteTicket:
    """What a write with ``wait=False`` returns.  Thread safe; may be asked again and again, or never.

    The write is made durable whether its ticket is asked for or not: soon, and by ``Table.flush`` and
    ``Table.close`` before they return.  Until then a crash may take it back, with all writes after it, and
    reads do not see it; writes do.

    >>> tickets = [stock.upsert([{"id": i, "price": 1.0}], wait=False) for i in range(4, 8)]
    >>> sum(ticket.result().inserted for ticket in tickets), tickets[0].done()
    (4, True)
    """

    __slots__ = ("_log", "_result")

    def __init__(self, log: AppendingLog, result: WriteResult) -> None:
        """``result``: what the write answers once its timestamp is visible."""
        self._log = log
        self._result = result

    def done(self) -> bool:
        """Whether ``result`` has an answer, or an error.  Never blocks.

        >>> ticket = stock.delete([1], wait=False)
        >>> stock.flush()
        >>> ticket.done()
        True
        """
        log = self._log
        return log.visible_ts >= self._result.timestamp or log.failure is not None or log.closed

    def result(self, timeout: float | None = None) -> WriteResult:
        """What the write answers; waits until it is what the call would have returned.

        Ctrl-C while it waits changes nothing: the ticket may be asked again.

        >>> stock.delete([1], wait=False).result(timeout=60).deleted
        1

        Parameters
        ----------
        timeout
            Seconds to wait at most; None: until there is an answer.

        Raises
        ------
        TimeoutError
            There is none yet.
        Poisoned, Fenced
            The log has failed before.  The write is applied wholly or not at all: reopen the table and look.
        Closed
            In the child of a fork, of a write that was not done before.
        """
        ts = self._result.timestamp
        if timeout is None:
            self._log.wait_visible(ts)
        elif not self._log.is_visible_within(ts, timeout):
            raise TimeoutError(
                f"the write is not durable after {timeout} s; it will be, and may be asked again"
            )
        return self._result

    def __await__(self) -> Generator[Any, None, WriteResult]:
        """In asyncio ``await ticket`` is ``ticket.result()``, for which a thread of the loop's waits."""
        if self.done():
            return self.result()
        import asyncio

        waiting = asyncio.get_running_loop().run_in_executor(None, self.result)
        return (yield from waiting.__await__())

    def __repr__(self) -> str:
        return f"<kudu_core.WriteTicket {'done' if self.done() else 'not done'}, {self._result!r}>"


def ticket_of(engine: Engine, result: WriteResult) -> WriteTicket:
    """The ticket of a write that was applied and has not waited; sees that it becomes durable."""
    log = engine.log
    if log.visible_ts < result.timestamp:
        try:
            log.ask_log_thread()
        except RuntimeError:  # the system gives no thread
            log.wait_visible(result.timestamp)
    return WriteTicket(log, result)


__all__ = ["WriteTicket", "ticket_of"]

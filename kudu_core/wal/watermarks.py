"""How far a log is: what is in it, applied, durable and visible.

Words: **A** (``applied_ts``) = every record <= A is applied; **W** (``committed_ts``) = min(A, durable);
**V** (``visible_ts``) = what readers in this process may see: W for ``sync``, A for ``group``, ``none``.

Nothing advances once the log has failed: the first failure is kept (``poison``), and whoever asks for more is
refused with it.  Not known here: segments, and what makes a record durable (``wal.sync``).
"""

from __future__ import annotations

from typing import NoReturn

from kudu_core._ext.base import holding
from kudu_core._ext.few.log_state import LogState
from kudu_core.common.run.gates import Gates
from kudu_core.common.run.locks import mutex
from kudu_core.errors import Closed, Fenced, Poisoned, without_frames
from kudu_core.wal.log_options import LogClock, LogOptions


class Watermarks(LogState):
    """The positions of a log and its failure, for ``wal.sync`` to build on.

    They are numbers of C, so that a write of one row need not ask Python for them
    (``_ext/few/log_state.pyx``), which has their meanings, the step that advances them, and their mutex.
    """

    def __init__(self, table_uuid: bytes, epoch: int, clock: LogClock, options: LogOptions) -> None:
        self.mutex = mutex()
        super().__init__(self.mutex, clock, Gates(), options.durability)
        self._uuid = table_uuid
        self._epoch = epoch
        self._options = options
        self._syncing = Gates()

    # Reading them -------------------------------------------------------------------------------

    def cut(self) -> int:
        """The timestamp of the last record.  Under a tablet's mutex: every record <= the cut that
        touches the tablet is applied, every later record has a larger timestamp.

        Never a timestamp that was only reserved: a watermark in a manifest must be one that
        the log can prove after a crash.
        """
        with self.mutex:
            return self.last_record_ts

    def raise_last_ts(self, ts: int) -> int:
        """Reserve the timestamps <= ``ts``: no later record gets one.  Returns the timestamp of the last
        record; when that is visible, so is every record <= ``ts``."""
        with self.mutex:
            if ts > self.last_ts:
                self.last_ts = ts
                self.advance()
            return self.last_record_ts

    # Advancing them -----------------------------------------------------------------------------

    def publish(self, watermark: int) -> None:
        """Under the mutex: take the new W, and tell it to other processes where that is the log's to do."""
        raise NotImplementedError

    # Failure ------------------------------------------------------------------------------------

    @property
    def poisoned(self) -> BaseException | None:
        """What poisoned the log, or None."""
        return self.failure

    def raise_if_poisoned(self) -> None:
        """``Fenced`` or ``Poisoned``, with what did it as the cause; nothing on a sound log."""
        if self.failure is not None:
            self._refuse()

    # Compiled: an ``except`` that begins with one of them has kept the failure before any handler can run.
    poison = holding.poison
    poison_if_owed = holding.poison_if_owed

    def tell_failure(self) -> None:
        """``failure`` is set: let go of the frames that it came through, and wake whoever waits."""
        if self.failure is not None:
            self.failure = without_frames(self.failure)
        self.advancing.open()
        self._syncing.open()

    def _refuse(self) -> NoReturn:
        cause = self.failure
        if cause is None:
            raise Closed("the log is closed")
        if isinstance(cause, Fenced):
            raise Fenced(*cause.args) from cause
        raise Poisoned(
            f"writing stopped after {type(cause).__name__}: {cause}; what was not acknowledged may or may "
            "not be there; reopen the table to write again"
        ) from cause


__all__ = ["Watermarks"]

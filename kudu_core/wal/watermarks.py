"""How far a log is: what is in it, applied, durable and visible, told to other processes in COMMITTED.

Words: **A** (``applied_ts``) = every record <= A is applied; **W** (``committed_ts``) = min(A, durable);
**V** (``visible_ts``) = what readers in this process may see: W for ``sync``, A for ``group``, ``none``.

Nothing advances once the log has failed: the first failure is kept (``poison``), and whoever asks for more is
refused with it.  Not known here: segments, and what makes a record durable (``wal.sync``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from kudu_core._ext.base import holding
from kudu_core.common.run.gates import Gates
from kudu_core.common.run.locks import mutex
from kudu_core.errors import Closed, Fenced, Poisoned, without_frames
from kudu_core.wal.format import COMMITTED_NAME, COMMITTED_STRIDE, Committed
from kudu_core.wal.log_options import LogOptions

if TYPE_CHECKING:
    from kudu_core.fs.api import FileSystem, WriteFile


class Watermarks:
    """The positions of a log and its failure, for ``wal.sync`` to build on.

    ``_mutex``, the log mutex, guards all of them, but for two that may be set without it: ``failure``, which
    is set once and never taken back, and ``_closed``.
    """

    def __init__(
        self, fs: FileSystem, directory: str, table_uuid: bytes, epoch: int, options: LogOptions
    ) -> None:
        self._fs = fs
        self._directory = directory
        self._uuid = table_uuid
        self._epoch = epoch
        self._options = options
        self._sync = options.durability == "sync"
        self._group = options.durability == "group"

        self._mutex = mutex()
        self._syncing = Gates()
        self._advancing = Gates()

        self._committed_file: WriteFile

        self._last_ts = 0
        self._last_record_ts = 0
        self._last_lsn = 0
        self._durable_ts = 0
        self._durable_lsn = 0
        self._applied_ts = 0
        self._committed = Committed(0, 0, 0, epoch)
        self.visible_ts = 0
        """V: what a read in this process may see.  An attribute: every read of a row asks for it."""
        # Timestamps appended and not yet applied, in the order of the log, and whose they are.
        self.in_flight: dict[int, int] = {}
        self.failure: BaseException | None = None
        self._closed = False

    # Reading them -------------------------------------------------------------------------------

    @property
    def last_ts(self) -> int:
        """The largest timestamp assigned, or reserved by ``raise_last_ts``."""
        return self._last_ts

    @property
    def last_lsn(self) -> int:
        return self._last_lsn

    @property
    def applied_ts(self) -> int:
        """A: every record <= A is applied, and none will be added."""
        return self._applied_ts

    @property
    def durable_ts(self) -> int:
        """The last record that a finished fsync covers."""
        return self._durable_ts

    @property
    def committed_ts(self) -> int:
        """W, as the other processes can read it."""
        return self._committed.ts

    def cut(self) -> int:
        """The timestamp of the last record.  Under a tablet's mutex: every record <= the cut that
        touches the tablet is applied, every later record has a larger timestamp.

        Never a timestamp that was only reserved: a watermark in a manifest must be one that
        the log can prove after a crash.
        """
        with self._mutex:
            return self._last_record_ts

    def raise_last_ts(self, ts: int) -> int:
        """Reserve the timestamps <= ``ts``: no later record gets one.  Returns the timestamp of the last
        record; when that is visible, so is every record <= ``ts``."""
        with self._mutex:
            if ts > self._last_ts:
                self._last_ts = ts
                self._advance()
            return self._last_record_ts

    # Advancing them -----------------------------------------------------------------------------

    def applied(self, ts: int) -> None:
        """The stores hold the record of ``ts``: it is no longer in flight."""
        with self._mutex:
            del self.in_flight[ts]
            self._advance()

    def _advance(self) -> None:
        """Under the mutex: A and W follow what is in flight and what is durable."""
        applied = next(iter(self.in_flight)) - 1 if self.in_flight else self._last_ts
        if applied > self._applied_ts:
            self._applied_ts = applied
            if not self._sync:
                self.visible_ts = applied
        watermark = self._applied_ts if self._applied_ts < self._durable_ts else self._durable_ts
        if watermark > self._committed.ts or self._durable_lsn > self._committed.lsn:
            self._publish(watermark)
        self._advancing.open()

    def _publish(self, watermark: int) -> None:
        """Under the mutex: tell the other processes, then take the new W."""
        if self.failure is not None:
            return
        slot = Committed(self._committed.counter + 1, watermark, self._durable_lsn, self._epoch)
        try:
            self._committed_file.pwrite(slot.pack(self._uuid), slot.offset())
        except OSError as error:
            self.poison(error)
            self._refuse()
        self._committed = slot
        if self._sync:
            self.visible_ts = watermark

    def _open_committed(self, counter: int) -> None:
        """COMMITTED exists with both slots' bytes, and says where the log begins."""
        path = f"{self._directory}/{COMMITTED_NAME}"
        exists = self._fs.exists(path)
        self._committed_file = file = self._fs.open_write(path) if exists else self._fs.create(path)
        try:
            if not exists:
                self._fs.sync_dir(self._directory)
            if file.size() < 2 * COMMITTED_STRIDE:
                file.pwrite(bytes(2 * COMMITTED_STRIDE), 0)
            self._committed = Committed(counter, 0, 0, self._epoch)
            self._publish(self._durable_ts)
            if not self._sync:
                self.visible_ts = self._applied_ts
        except BaseException:
            file.close()
            raise

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
        self._advancing.open()
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

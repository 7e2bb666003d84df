"""The edits of a tablet as records of the log: there is no file of them (protocol B7)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from kudu_core._ext.base.holding import InFlight
from kudu_core.tablet.store.edit_records import edit_payload
from kudu_core.tablet.store.edits import Edit, TabletState, with_edit
from kudu_core.wal import RECORD_KIND_EDIT

if TYPE_CHECKING:
    from kudu_core.tablet.store.manifest import OpenManifest
    from kudu_core.wal.appending import AppendingLog


class LoggedManifest:
    """The edits of one tablet, open for writing; see ``OpenManifest``.

    ``append`` is called under the tablet's mutex, in the order of installs, and the log keeps that order, so
    an edit is durable no sooner than the records that it rests on (protocol E1, E3).
    """

    in_log = True

    def __init__(self, log: AppendingLog, tablet_id: int, epoch: int, state: TabletState) -> None:
        """``state``: what the snapshot and the edits of the log add up to, all of them durable."""
        self.state = state
        self.durable_number = state.number
        self._log = log
        self._tablet_id = tablet_id
        self._epoch = epoch
        self._last_ts = 0
        """Of the record of the last edit."""

    def append(self, edit: Edit) -> None:
        """Durable after the next ``sync``.

        ``NotSupported``: an entry is larger than a reader takes; ``StoreError``: the store takes no more
        records now.  Nothing has changed in either case.
        """
        self._log.raise_if_poisoned()
        after = self._after(edit)
        payload = edit_payload(self._tablet_id, after.number, edit)
        with InFlight(self._log, RECORD_KIND_EDIT, 0, (payload,)) as ts:
            self.state, self._last_ts = after, ts

    def take(self, edit: Edit, ts: int) -> None:
        """The INGEST record of ``ts`` is durable, and says the edit."""
        after = self._after(edit)
        self.state, self._last_ts, self.durable_number = after, ts, after.number

    def _after(self, edit: Edit) -> TabletState:
        number = self.state.number + 1
        return replace(with_edit(self.state, edit), number=number, epoch=self._epoch)

    def sync(self) -> None:
        number, ts = self.state.number, self._last_ts
        if number > self.durable_number:
            self._log.wait_durable(ts)
            self.durable_number = max(number, self.durable_number)

    @property
    def proven_number(self) -> int:
        return self.durable_number

    def forget(self, names: Iterable[str]) -> None:
        """These retired files are gone: the next snapshot need not name them."""
        self.state = replace(self.state, retired=self.state.retired.difference(names))

    def close(self) -> None:
        """There is nothing to let go of."""

    def abandon(self) -> None:
        """There is nothing to let go of."""


if TYPE_CHECKING:

    def _checked(manifest: LoggedManifest) -> OpenManifest:
        return manifest


__all__ = ["LoggedManifest"]

"""What a table appends to its log, read from the log's own file.

Records are not seen where they are appended: a small one is written by compiled code (``_ext/few``).
"""

from __future__ import annotations

from typing import NamedTuple

import kudu_core as kc
from kudu_core.wal.format import RECORD_HEADER, SEGMENT_HEADER, padded
from tests.support.inside import log_of


class LoggedRecord(NamedTuple):
    ts: int
    kind: int
    payload: bytes


class Logged:
    """The records of a table from its making on; ``new`` is asked at least once for each segment."""

    def __init__(self, table: kc.Table) -> None:
        self._log = log_of(table)
        self._segment, self._end = self._log.active, self._log.active.end
        self.records: list[LoggedRecord] = []

    def new(self) -> list[LoggedRecord]:
        """Those since the last time."""
        active = self._log.active
        first = self._end if active is self._segment else SEGMENT_HEADER.size
        with open(active.path, "rb") as file:
            file.seek(first)
            data = file.read(active.end - first)
        found = []
        while data:
            length, _, _, ts, _, _, kind = RECORD_HEADER.unpack_from(data)
            found.append(LoggedRecord(ts, kind, data[RECORD_HEADER.size : length]))
            data = data[padded(length) :]
        self._segment, self._end = active, active.end
        self.records += found
        return found

"""What a delta does to its row: codes in delta files, and in the logs of changes in memory."""

from __future__ import annotations

REDO_UPDATE, REDO_DELETE, REDO_REINSERT = 1, 2, 3
"""New values; dead from its timestamp on; alive again, in a MemRowSet alone."""
UNDO_UPDATE, UNDO_DEAD, UNDO_ALIVE = 1, 2, 3
"""The old values; absent before its timestamp; present before it, with this image."""

"""Folders for files that need not survive their process."""

from __future__ import annotations

import tempfile


def scratch_folder() -> str:
    """A new one, for the owner only, where the system keeps such (``TMPDIR``); whoever made it removes it."""
    return tempfile.mkdtemp(prefix="kudu-core-")


__all__ = ["scratch_folder"]

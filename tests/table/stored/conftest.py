"""What the tests of stored forms and their limits share."""

from __future__ import annotations

import pytest

from tests.support.fs.memory import MemoryFileSystem


@pytest.fixture
def fs() -> MemoryFileSystem:
    """An empty file system in memory."""
    return MemoryFileSystem()

"""What the tests of backups share."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def dst(tmp_path: Path) -> Path:
    return tmp_path / "backups"

"""What the tests of indexes share."""

from __future__ import annotations

import pytest

from kudu_core.rowset.scan import by_index


@pytest.fixture(autouse=True)
def _every_rowset(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also small ones are looked up in, whatever part of their rows is found."""
    monkeypatch.setattr(by_index, "_FEW_ROWS", 0)
    monkeypatch.setattr(by_index, "_GOOD_PART", 1)

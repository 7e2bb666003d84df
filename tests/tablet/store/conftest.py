"""What the tests of stores in memory share."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from kudu_core._ext.columns import growing as append_column


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the debug switch, laying a record in asserts that no buffer grew."""
    monkeypatch.setenv("KUDU_CORE_CHECK", "1")


@pytest.fixture
def limit_columns() -> Iterator[Callable[[int], None]]:
    """Sets how many bytes of strings a column in memory takes."""
    usual = append_column.data_limit()
    yield lambda size: (append_column.limit_data(size), None)[1]
    append_column.limit_data(usual)

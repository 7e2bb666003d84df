"""Orders of cells that writes may use, and must not make."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tests.support.inside import orders_made
from tests.support.tables import Make


def test_updates_of_a_predicate_use_what_is_known(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """They hold all mutexes, so they make no order of cells themselves."""
    made = orders_made(monkeypatch)
    table = make()
    table.insert(pa.table({"k": range(500), "a": range(500), "s": ["x", "y"] * 250}))
    table.create_index("by_a", "a")
    table.flush()
    assert table.update(where=[("a", "==", 7)], set={"a": 1000}).updated == 1
    assert not made
    assert table.scan(where=[("a", "==", 1000)]).count() == len(made) == 1
    assert table.delete(where=[("a", "==", 7)]).deleted == 0
    assert table.delete(where=[("a", "==", 1000)]).deleted == 1
    assert table.delete(where=[("a", "<", 5)]).deleted == 5
    assert len(made) == 1
    table.create_index("by_both", ["s", "a"])  # which makes those of the rowsets that are there
    assert len(made) == 2
    assert table.scan(where=[("s", "==", "x")]).explain().indexes == {"by_both": 1}
    assert len(made) == 2

"""A store that stops answering once a call is committed, or while one that has failed tidies up."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from kudu_core.errors import StoreDenied, StoreError
from kudu_core.table.opened import debug
from tests.support.clock import ManualClock
from tests.support.objects.memory import MemoryObjectStore
from tests.support.objects.tables import created, opened, rows_of

ROWS = pa.table({"k": list(range(100_000)), "v": list(range(100_000))})


class Ending:
    """A store that refuses everything but puts from the first put on whose name begins so."""

    def __init__(self, inner: MemoryObjectStore) -> None:
        self._inner = inner
        self.ends_at: str | None = None
        self.refused = 0
        self._is_out = False

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def again(self) -> None:
        self.ends_at, self._is_out = None, False

    def put(self, path: str, data: bytes, condition: object) -> str:
        made = self._inner.put(path, data, condition)  # type: ignore[arg-type]
        self._is_out |= self.ends_at is not None and path.startswith(self.ends_at)
        return made

    def get_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        self._check()
        return self._inner.get_ranges(path, ranges)

    def delete(self, paths: Sequence[str]) -> None:
        self._check()
        self._inner.delete(paths)

    def _check(self) -> None:
        if self._is_out:
            self.refused += 1
            raise StoreDenied("s3://bucket refuses the credentials: they have expired")


def test_a_compaction_that_was_made_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the next scan would have to read is read ahead; a store that refuses that takes nothing back."""
    monkeypatch.setenv(debug.SWITCH, "0")  # the checks read files too
    store = MemoryObjectStore()
    ending = Ending(store)
    with created(store) as table:
        table.insert(ROWS)
    table = opened(ending, "rw", clock=ManualClock())  # type: ignore[arg-type]
    for n in range(2):
        table.upsert([{"k": k, "v": n} for k in range(0, 20_000, 2)])
        table.flush()
        table.scan().to_table()
    ending.ends_at = "log/"
    table.compact(full=True)
    assert ending.refused
    ending.again()
    found = rows_of(table)
    table.close()
    with opened(store) as reader:
        assert rows_of(reader) == found and found[0] == 1 and len(found) == 100_000


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_a_load_that_fails_leaves_nothing_on_this_machine(scratch: Path) -> None:
    """Also where what it has put cannot be deleted: that goes when the table is opened for writing again."""
    store = MemoryObjectStore()
    ending = Ending(store)
    with created(store, tablets=2, file_grace_s=0.0) as table:
        table.upsert([{"k": -1, "v": 1}])
    table = opened(ending, "rw", clock=ManualClock())  # type: ignore[arg-type]
    ending.ends_at = "tablets/"
    there = set(store.objects)
    real = store.put

    def put(path: str, data: bytes, condition: object) -> str:
        if path.endswith(".rows") and any(name.endswith(".rows") for name in store.objects):
            raise StoreDenied("s3://bucket refuses the credentials: they have expired")
        return real(path, data, condition)  # type: ignore[arg-type]

    store.put = put  # type: ignore[method-assign,assignment]
    with pytest.raises(StoreError, match="expired"):
        table.insert(ROWS)
    assert ending.refused and not list(scratch.iterdir())
    assert set(store.objects) > there, "what could not be deleted"
    ending.again()
    store.put = real  # type: ignore[method-assign]
    assert rows_of(table) == {-1: 1}
    table.insert(ROWS)
    table.close()
    with opened(store, "rw") as table:
        assert table.count() == 100_001
        table.gc()
        table.gc()
        assert table.verify().unnamed == ()

"""A table in an object store read through the cache of the machine (``cache_dir``)."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core.objects import cache_options
from tests.support.objects.memory import MemoryObjectStore
from tests.support.objects.tables import MANUAL, URL

ROWS = 60_000
DATA = pa.table(
    {
        "k": np.arange(ROWS),
        "v": np.random.default_rng(1).integers(0, 1 << 40, ROWS),
        "s": [f"text {row % 999}" for row in range(ROWS)],
    }
)


@pytest.fixture(scope="module")
def filled() -> MemoryObjectStore:
    store = MemoryObjectStore()
    with kc.create_table(
        URL, DATA.schema, "k", partition_by=kc.HashPartition("k", 2), options=MANUAL, _requests=store
    ) as table:
        table.insert(DATA)
        table.update(pa.table({"k": np.arange(0, ROWS, 7), "v": np.arange(0, ROWS, 7)}))
        table.flush()
    return store


class Counting:
    """The data files that are asked for."""

    def __init__(self, inner: MemoryObjectStore) -> None:
        self._inner = inner
        self.asked = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def get_ranges(self, path: str, ranges: Any) -> list[bytes]:
        self.asked += path.endswith((".rows", ".delta"))
        return self._inner.get_ranges(path, ranges)


def answers(store: Any, options: dict[str, Any] | None) -> list[Any]:
    """What several reads say, each by a handle of its own: nothing comes out of its memory."""

    def opened() -> kc.Table:
        return kc.open_table(URL, storage_options=options, _requests=store)

    with opened() as table:
        found: list[Any] = [table.scan(order="key").to_table()]
    with opened() as table:
        found.append([table.get(k) for k in (0, 7, 8, ROWS - 1, ROWS)])
    with opened() as table:
        found.append(table.get_many([5, 21, 4000]).to_pylist())
    with opened() as table:
        found.append(table.scan(["v"], where=[("s", "=", "text 77")]).to_pylist())
    return found


@pytest.fixture(scope="module")
def right(filled: MemoryObjectStore) -> list[Any]:
    return answers(filled, None)


@pytest.fixture(params=["option", "environment"])
def cached(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[dict[str, Any] | None]:
    folder = str(tmp_path / "cache")
    if request.param == "option":
        yield {"cache_dir": folder, "cache_bytes": str(1 << 30)}
        return
    monkeypatch.setenv("KUDU_CORE_CACHE_DIR", folder)
    yield None


def test_what_was_read_once_is_asked_for_no_more(
    filled: MemoryObjectStore, cached: dict[str, Any] | None, right: list[Any], tmp_path: Path
) -> None:
    counting = Counting(filled)
    assert answers(counting, cached) == right
    assert counting.asked
    counting.asked = 0
    assert answers(counting, cached) == right
    assert counting.asked == 0
    kept = list((tmp_path / "cache").rglob("*.pieces"))
    assert kept and all(path.stat().st_mode & 0o077 == 0 for path in kept)


def test_a_cache_that_is_damaged_is_noticed(
    filled: MemoryObjectStore, right: list[Any], tmp_path: Path, seed: int
) -> None:
    options = {"cache_dir": str(tmp_path / "cache")}
    rng = random.Random(seed)
    for _ in range(20):
        assert answers(filled, options) == right
        for path in (tmp_path / "cache").rglob("*.pieces"):
            data = bytearray(path.read_bytes())
            for _ in range(rng.randint(0, 3)):
                data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            path.write_bytes(data[: rng.randint(0, len(data))] if rng.random() < 0.3 else data)
    assert answers(filled, options) == right


def test_a_table_made_anew_at_the_same_place(tmp_path: Path) -> None:
    """Its files have the names of the old one's, which are here."""
    options = {"cache_dir": str(tmp_path / "cache")}
    for value in (1, 2):
        store = MemoryObjectStore()
        with kc.create_table(
            URL, DATA.schema, "k", options=MANUAL, storage_options=options, _requests=store
        ) as table:
            table.insert([{"k": 1, "v": value, "s": "x"}])
            table.flush()
        with kc.open_table(URL, storage_options=options, _requests=store) as table:
            assert table.get(1, ["v"]) == {"v": value}


@pytest.mark.parametrize(
    "wrong", [{"cache_dir": "here"}, {"cache_dir": 7}, {"cache_dir": "/x", "cache_bytes": "many"},
              {"cache_dir": "/x", "cache_bytes": 1000}],
)  # fmt: skip
def test_wrong_options(filled: MemoryObjectStore, wrong: dict[str, Any]) -> None:
    with pytest.raises(kc.InvalidArgument, match=r"cache_dir is the absolute path|cache_bytes is a number"):
        kc.open_table(URL, storage_options=wrong, _requests=filled)
    assert cache_options.of_client({"region": "x", **wrong}) == {"region": "x"}

"""What a reader of a table in a store keeps of the files it has read, for its next look."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core.objects.files import kept_pieces
from kudu_core.objects.files.file_ends import Reads
from kudu_core.objects.files.kept_pieces import KeptPieces
from tests.support.objects.fates import Rule
from tests.support.objects.faulty import FaultyStore
from tests.support.objects.memory import MemoryObjectStore, client
from tests.support.objects.tables import created, opened, requests_of, rows_of, spent


def test_the_oldest_make_place(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr(kept_pieces, "LARGEST_BYTES", 60)
    kept, rng = KeptPieces(200), random.Random(seed)
    held: dict[tuple[int, int], bytes] = {}
    for _ in range(2000):
        wanted = rng.randrange(12), rng.choice((10, 50, 60, 61))
        act = rng.random()
        if act < 0.5:
            data = rng.randbytes(wanted[1])
            kept.keep("t", "a", wanted, data)
            if wanted[1] <= 60:
                held.pop(wanted, None)
                held[wanted] = data
                while sum(map(len, held.values())) > 200:
                    held.pop(next(iter(held)))
        elif act < 0.9:
            assert kept.find("t", "a", wanted) == held.get(wanted)
            if wanted in held:
                held[wanted] = held.pop(wanted)
        else:
            kept.drop("t", "a", wanted)
            held.pop(wanted, None)
        assert kept.bytes == sum(map(len, held.values())) <= 200
        assert kept.find("t", "b", wanted) is kept.find("another", "a", wanted) is None


def test_what_is_asked_for_again_comes_from_the_store() -> None:
    """Whoever was given it may have found that it is damaged."""
    store, kept = MemoryObjectStore(), KeptPieces()
    store.store("a", bytes(range(100)))
    wanted = [(0, 10), (20, 5)]
    for opening, gets in ((True, 2), (True, 0), (False, 2), (True, 2), (True, 0)):
        before = requests_of(store).get("get", 0)
        found = Reads(client(store), kept=kept).ranges("t/a", "a", 100, wanted, opening=opening)
        assert found == [bytes(range(10)), bytes(range(20, 25))]
        assert requests_of(store).get("get", 0) - before == gets
    with pytest.raises(kc.KuduError):
        Reads(client(store), kept=kept).ranges("t/b", "b", 100, wanted, opening=True)


@pytest.mark.parametrize("tablets", [1, 64])
def test_a_refresh_asks_for_no_file_again(tablets: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever number of files there is, and of commits since the last checkpoint."""
    monkeypatch.setenv("KUDU_CORE_CHECK", "0")  # the checks of an open read files too
    store = MemoryObjectStore()
    with created(store, tablets=tablets) as table:
        table.upsert([{"k": n, "v": n} for n in range(1000)])
        table.flush()
        for n in range(20):
            table.upsert([{"k": n, "v": -n}])
        with opened(store) as reader:
            for n in range(3):
                table.upsert([{"k": n, "v": 100 + n}])
                before = requests_of(store)
                reader.refresh()
                assert spent(store, before)["get"] <= 1 + 4, "the log's, and TABLE"
                assert rows_of(reader) == rows_of(table)
            table.flush()
            before = requests_of(store)
            reader.refresh()
            assert rows_of(reader) == rows_of(table)
            assert spent(store, before)["get"] <= 2 * tablets + 10, "edits, and new files"


def test_damage_on_its_way_is_not_kept() -> None:
    store = MemoryObjectStore()
    faulty = FaultyStore(store)
    with created(store) as table, opened(faulty) as reader:
        table.upsert([{"k": n, "v": n} for n in range(1000)])
        table.flush()
        table.upsert([{"k": 5, "v": 55}])
        faulty.fates.rules = [Rule("flip", ops=frozenset({"get"}), path_glob="*.rows")]
        with pytest.raises(kc.Corruption):
            for _ in range(20):  # which bit it is, is chance: not all of them are looked at
                reader.refresh()
                reader.scan().to_table()
                faulty.fates.rules[0].fired = 0
                table.upsert([{"k": 5, "v": 55}])
        faulty.fates.rules = []
        table.upsert([{"k": 6, "v": 66}])
        reader.refresh()
        assert rows_of(reader) == rows_of(table)


def test_what_is_read_of_an_open_table_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """That is the page cache's; and who reads it again because it is damaged gets it anew."""
    kept: list[int] = []
    keep = KeptPieces.keep

    def noted(pieces: KeptPieces, *place: Any) -> None:
        kept.append(pieces.bytes)
        keep(pieces, *place)

    monkeypatch.setattr(KeptPieces, "keep", noted)
    store = MemoryObjectStore()
    with created(store) as table:
        table.insert(pa.table({"k": np.arange(100_000), "v": np.arange(100_000)}))
        table.upsert([{"k": 1, "v": -1}])
        with opened(store) as reader:
            assert kept
            kept.clear()
            assert reader.get(77_777) == {"k": 77_777, "v": 77_777}
            assert len(rows_of(reader)) == 100_000
            assert not kept

"""One damaged byte in the files of a table of a shape: the answer is right, or ``Corruption`` says where.

By default some bytes of each shape, with ``--long`` many.
"""

from __future__ import annotations

import random

import pytest

import kudu_core as kc
from bench.shapes.operations import check
from kudu_core.errors import Corruption
from tests.support.faults import drop
from tests.support.fs.memory import MemoryFileSystem
from tests.support.hostile.damage import contents, put
from tests.support.models.shaped import ODD, Shaped, churn, in_memory, load

ROOT = "/tables/t"
TRIED, TRIED_LONG = 4, 400

pytestmark = pytest.mark.timeout(7200)  # --long takes its time


@pytest.mark.parametrize("name", ODD)
def test_a_damaged_byte_is_told_or_does_not_matter(name: str, seed: int, long: bool) -> None:
    fs = MemoryFileSystem()
    fs.mkdir("/tables")
    kept = Shaped(ODD[name], seed)
    table = kept.create(in_memory(fs, ROOT))
    load(kept, table)
    churn(kept, table)
    table.flush()
    table.close()
    drop(table)
    wanted = kept.wanted()
    files = {path: data for path, data in contents(fs).items() if "/tablets/" in path and data}
    rng = random.Random(f"{name} {seed}")
    told = 0
    for _ in range(TRIED_LONG if long else TRIED):
        path = rng.choice(sorted(files))
        at, bit = rng.randrange(len(files[path])), 1 << rng.randrange(8)
        damaged = bytearray(files[path])
        damaged[at] ^= bit
        put(fs, path, bytes(damaged))
        try:
            with kc.open_table(ROOT, _fs=fs) as reader:
                found = reader.scan(order="key").to_table()
                row = reader.get(wanted["k"][0].as_py())
            check(found, wanted, ordered=True)
            assert row == wanted.slice(0, 1).to_pylist()[0]
        except Corruption as error:
            assert "/tablets/" in error.path
            told += 1
        put(fs, path, files[path])
    assert told, "no damage was met at all"
    with kc.open_table(ROOT, _fs=fs) as reader:
        check(reader.scan(order="key").to_table(), wanted, ordered=True)

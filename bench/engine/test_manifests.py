"""Opening a table of very many rowsets, and the first scan with a predicate that their statistics rule out.

The manifests are made directly, by one edit, from the entry of a rowset that was written; where statistics
are in the files, these are hard links of one file.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

import kudu_core as kc
from kudu_core.cfile.columns.statistics import StatisticsRef
from kudu_core.tablet.store.edits import Edit
from tests.support.inside import tablet_of

SHAPES = {"1,000 x 8": (1_000, 8), "10,000 x 10": (10_000, 10), "10,000 x 1,000": (10_000, 1_000)}


def made(path: Path, rowsets: int, columns: int) -> Path:
    names = [f"c{i}" for i in range(1, columns)]
    schema = [kc.Column("k", "int64"), *(kc.Column(name, "float64") for name in names)]
    with kc.create_table(path, schema, "k", options={"maintenance": "manual"}) as table:
        rng = np.random.default_rng(0)
        table.insert({"k": np.arange(100), **{name: rng.random(100) for name in names}})
        table.flush()
        tablet = tablet_of(table)
        [meta] = tablet.rowset_metas
        directory = Path(tablet.directory)
        add = []
        for number in range(1, rowsets):
            name = f"000002-{number + 1_000_000:08d}.rows"
            if isinstance(meta.statistics, StatisticsRef):
                # A file has some 60,000 names at most.
                os.link(directory / meta.base.name, directory / name)
            low, high = ((number * 1000 + end + (1 << 63)).to_bytes(8, "big") for end in (0, 99))
            base = replace(meta.base, name=name)
            add.append(replace(meta, id=meta.id + number, base=base, min_key=low, max_key=high))
        with tablet.mutex:
            tablet.install(tablet.view, Edit(add=tuple(add)))
        assert tablet.manifest is not None
        tablet.manifest.sync()
    return path


@pytest.fixture(scope="module", params=SHAPES)
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("manifests") / "t", *SHAPES[request.param])


def test_open(benchmark: BenchmarkFixture, path: Path) -> None:
    def opened() -> None:
        kc.open_table(path).close()

    benchmark.extra_info["manifest_bytes"] = (path / "tablets/00000001/MANIFEST").stat().st_size
    benchmark.pedantic(opened, rounds=5, warmup_rounds=1)


def test_first_scan(benchmark: BenchmarkFixture, path: Path) -> None:
    """Of a table just opened: no rowset has a value that large."""

    def setup() -> tuple[tuple[kc.Table], dict[str, object]]:
        return (kc.open_table(path),), {}

    def scanned(table: kc.Table) -> None:
        assert table.scan(["k"], where=[("c3", ">", 2.0)]).count() == 0

    benchmark.pedantic(scanned, setup=setup, rounds=5, warmup_rounds=1)

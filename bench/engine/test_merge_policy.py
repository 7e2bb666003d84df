"""What to merge in a tablet of 6,815 rowsets, as it is after days of inserts in random order."""

from __future__ import annotations

from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from kudu_core.tablet.maintain.merge_policy import MergeChoice, choose_merge
from tests.support.cases.layouts import MIB, ycsb

LAYOUT = Path(__file__).resolve().parents[2] / "tests/tablet/maintain/data/ycsb-rowsets.tsv"


@pytest.mark.parametrize("budget", [128, 256, 1024, 2048, 4096, 16384])
def test_choose_merge(benchmark: BenchmarkFixture, budget: int) -> None:
    rowsets = ycsb(LAYOUT)

    def choose() -> MergeChoice | None:
        return choose_merge(rowsets, budget_bytes=budget * MIB, target_bytes=32 * MIB)

    choice = benchmark.pedantic(choose, rounds=3, warmup_rounds=1)  # type: ignore[no-untyped-call]
    assert choice is not None
    benchmark.extra_info["rows"] = len(rowsets)
    benchmark.extra_info["gain"] = round(choice.gain, 3)
    benchmark.extra_info["rowsets"] = len(choice.rowsets)

"""Benchmarks run once, as tests, unless ``ci/bench.sh`` (or ``--benchmark-enable``) asks for their times.

Each measures the answer's time and then checks the answer; each is reported with the rows that it moved,
so that runs of different sizes can be compared.
"""

from __future__ import annotations

import os
from typing import Any

import pytest


@pytest.fixture(scope="session")
def seed() -> int:
    """Where the random data begins: fixed unless ``KUDU_CORE_SEED`` says otherwise."""
    return int(os.environ.get("KUDU_CORE_SEED", "0"))


def pytest_benchmark_update_json(output_json: dict[str, Any]) -> None:
    """Rows a second beside each time, for whatever says how many rows it had."""
    for bench in output_json["benchmarks"]:
        rows = bench["extra_info"].get("rows")
        if rows:
            bench["extra_info"]["rows_per_s"] = rows / bench["stats"]["min"]

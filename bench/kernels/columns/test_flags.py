"""Flags of single rows: appended, asked and cleared."""

from __future__ import annotations

import pytest

from kudu_core._ext.columns.flags import AppendFlags


@pytest.mark.benchmark(group="kernel: flags")
def test_single_rows(benchmark):
    def work():
        flags = AppendFlags()
        for row in range(1000):
            flags.append(1, True)
            if flags.is_set(row):
                flags.clear([row])
        return flags

    benchmark.extra_info |= {"rows": 1000}
    assert not benchmark(work).flags.any()

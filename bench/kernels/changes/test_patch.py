"""A patch of 10% of a column of doubles: made at once, made larger, and laid over the column."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bench.kernels.changes.test_replay import FORMS, ROWIDS, ROWS, UNIT
from kudu_core._ext.changes.patch import Patch

GROUP = "kernel: a patch of 10% changes over 1,048,576 doubles"
PATCH = Patch(list(FORMS["ten files"]), 8, ROWS)


@pytest.mark.benchmark(group=GROUP)
@pytest.mark.parametrize("form", FORMS)
def test_make(benchmark: Any, form: str) -> None:
    benchmark.extra_info |= {"changes": len(ROWIDS)}
    assert benchmark(Patch, list(FORMS[form]), 8, ROWS).count == len(ROWIDS)


@pytest.mark.benchmark(group=GROUP)
def test_make_larger(benchmark: Any) -> None:
    """By the last of ten files."""
    older = Patch(list(FORMS["ten files"][:9]), 8, ROWS)
    benchmark.extra_info |= {"changes": FORMS["ten files"][9].count}
    assert benchmark(Patch, [older, FORMS["ten files"][9]], 8, ROWS).count == len(ROWIDS)


@pytest.mark.benchmark(group=GROUP)
def test_lay(benchmark: Any) -> None:
    out = np.zeros(8 * ROWS, np.uint8)
    benchmark.extra_info |= {"changes": len(ROWIDS)}

    def all_rows() -> None:
        for first in range(0, ROWS, UNIT):
            PATCH.lay(out[8 * first : 8 * (first + UNIT)], first, UNIT)

    benchmark(all_rows)
    assert out.any()

"""What foreign strings and decimals are looked at for: 65,536 rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kudu_core._ext.columns import foreign

ROWS = 65_536
TEXTS = {
    "ascii": "user-00000000",
    "two bytes": "\u0436\u0443\u043a-00000000",
    "three bytes": "\u6f22\u5b57\u6f22\u5b57",
}


@pytest.mark.benchmark(group="kernel: foreign text")
@pytest.mark.parametrize("kind", [*TEXTS, "binary"])
def test_variable(benchmark: Any, kind: str) -> None:
    raw = TEXTS.get(kind, "user-00000000").encode()
    offsets = np.arange(ROWS + 1, dtype=np.int32) * np.int32(len(raw))
    benchmark.extra_info |= {"rows": ROWS, "bytes": ROWS * len(raw)}
    assert benchmark(foreign.variable, raw * ROWS, offsets, None, kind != "binary") is None


@pytest.mark.benchmark(group="kernel: foreign views")
def test_views(benchmark: Any) -> None:
    cells = np.zeros((ROWS, 4), np.int32)
    cells[:, 0] = 20
    cells[:, 3] = 20 * np.arange(ROWS)
    benchmark.extra_info |= {"rows": ROWS}
    assert benchmark(foreign.views, cells.view(np.uint8).reshape(-1), (bytes(20 * ROWS),), None) == -1


@pytest.mark.benchmark(group="kernel: foreign decimals")
def test_digits(benchmark: Any) -> None:
    values = np.zeros((ROWS, 2), np.int64)
    values[:, 0] = np.arange(ROWS)
    benchmark.extra_info |= {"rows": ROWS}
    assert benchmark(foreign.digits, values.view(np.uint8).reshape(-1), 18, None) == -1

"""Pages of text of a column, written with frames and entries of the page index in one call."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kudu_core._ext.codec.lz4 import Lz4Packer
from kudu_core._ext.files.string_pages import write_string_pages

CELL, ROWS = 100, 8 << 10


@pytest.mark.benchmark(group="kernel: string pages")
@pytest.mark.parametrize("page_bits", [4, 5, 6])
def test_write(benchmark: Any, page_bits: int) -> None:
    rng = np.random.default_rng(1)
    words = rng.integers(97, 123, (4096, 8), np.uint8)
    data = words[rng.integers(0, 4096, CELL * ROWS // 8)].ravel()
    offsets = np.arange(0, CELL * ROWS + 1, CELL, dtype=np.int32)
    packer = Lz4Packer(words.tobytes())
    benchmark.extra_info["bytes"] = len(data)
    pages, index, _ = benchmark(
        write_string_pages, offsets, data, None, 0, page_bits, packer, 40, 5, 1, 0, 4, (64, 1 << 28, 0.9)
    )
    assert len(pages) < 0.6 * len(data) and len(index) == 90 * (ROWS >> page_bits)

"""Pages of 8 KiB of text that LZ4 packs with a dictionary of their column, and the choice of that."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kudu_core._ext.codec.lz4 import Lz4Packer, unpack
from kudu_core._ext.codec.lz4_text import choose_text

PAGE, PAGES = 8 << 10, 128


@pytest.fixture(scope="module")
def pages() -> list[bytes]:
    """Text of a vocabulary of 4,096 words."""
    rng = np.random.default_rng(1)
    words = rng.integers(97, 123, (4096, 8), np.uint8)
    words[:, -1] = ord(" ")
    return [words[rng.integers(0, 4096, PAGE // 8)].tobytes() for _ in range(PAGES)]


@pytest.fixture(scope="module")
def packer(pages: list[bytes]) -> Lz4Packer:
    return Lz4Packer(choose_text(b"".join(pages[:64]), 56 << 10, 128))


@pytest.mark.benchmark(group="kernel: lz4")
def test_pack(benchmark: Any, pages: list[bytes], packer: Lz4Packer) -> None:
    benchmark.extra_info["bytes"] = PAGE * PAGES
    packed = benchmark(packer.pack, pages)
    assert sum(map(len, packed)) < 0.5 * PAGE * PAGES


@pytest.mark.benchmark(group="kernel: lz4")
def test_unpack(benchmark: Any, pages: list[bytes], packer: Lz4Packer) -> None:
    packed = packer.pack(pages)
    benchmark.extra_info["bytes"] = PAGE * PAGES
    found = benchmark(lambda: [unpack(stored, PAGE, packer.text) for stored in packed])
    assert found == pages


@pytest.mark.benchmark(group="kernel: lz4")
def test_make_a_packer(benchmark: Any, packer: Lz4Packer) -> None:
    benchmark(Lz4Packer, packer.text)


@pytest.mark.benchmark(group="kernel: lz4 text")
def test_choose_text(benchmark: Any, pages: list[bytes]) -> None:
    sample = b"".join(pages[:64])
    benchmark.extra_info["bytes"] = len(sample)
    assert len(benchmark(choose_text, sample, 56 << 10, 128)) == 56 << 10

"""Pages of a file that the system has in memory: read, checked, decompressed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kudu_core._ext.files.page_fetcher import PageFetcher
from tests.kernels.files.test_page_fetcher import fetcher_of, opened, written


@pytest.mark.parametrize("compression", ["none", "lz4", "zstd"])
def test_fetch(benchmark: Any, tmp_path: Path, compression: str) -> None:
    path, _ = written(tmp_path, compression)
    with opened(path) as file:
        fetcher: PageFetcher = fetcher_of(file.columns[3])
        assert benchmark(fetcher.fetch, 2) is not None

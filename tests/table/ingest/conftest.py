"""Tables that an overwrite meets: with rows, cut into tablets in each way."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import kudu_core as kc
from tests.support.models.overwriting import CUT, with_old_rows


@pytest.fixture(params=CUT)
def table(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[kc.Table]:
    with with_old_rows(tmp_path, request.param) as made:
        yield made


@pytest.fixture
def hashed(tmp_path: Path) -> Iterator[kc.Table]:
    with with_old_rows(tmp_path, "hash") as made:
        yield made

"""What the tests of reads share."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.dataset
import pytest

import kudu_core as kc
from tests.support.tables import Make

PAGE = 16_384
ROWS = 5 * PAGE + 100


@pytest.fixture
def big(make: Make) -> kc.Table:
    """One rowset of several pages: ``v`` ascends, ``w`` does not, some rows changed in memory."""
    table = make(pa.schema([("k", pa.int64()), ("v", pa.int64()), ("w", pa.int64()), ("s", pa.string())]))
    k = np.arange(ROWS)
    table.insert({"k": k, "v": k * 10, "w": (k * 7919) % ROWS, "s": np.char.add("row ", k.astype(str))})
    table.flush()
    return table

"""Scans whose predicate says that a column of the key has one value, in whatever form it says so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.support.tables import Make

NUMBERS = pa.schema([("k", pa.int64()), ("v", pa.int64())])
ONE_VALUE: dict[str, Callable[[pc.Expression, Any], pc.Expression]] = {
    "equal": lambda f, x: f == x,
    "twice negated": lambda f, x: ~~(f == x),
    "not unequal": lambda f, x: ~(f != x),
    "in a list": lambda f, x: f.isin([x]),
    "not in all others": lambda f, x: ~f.isin([y for y in range(50) if y != x]),
    "between": lambda f, x: (f >= x) & (f <= x),
    "not outside": lambda f, x: ~((f < x) | (f > x)),
    "of two lists": lambda f, x: f.isin([x, x + 1]) & f.isin([x - 1, x]),
    "one of two that are the same": lambda f, x: (f == x) | (f == x),
    "one of two, not the other": lambda f, x: f.isin([x, x + 1]) & ~(f == x + 1),
    "of another type": lambda f, x: f == float(x),
    "between two that are no integers": lambda f, x: (f > x - 0.5) & (f < x + 0.5),
    "cast": lambda f, x: f.cast(pa.int32()) == x,
    "of a sum": lambda f, x: f + 1 == x + 1,
}


@pytest.mark.parametrize("form", ONE_VALUE)
def test_however_a_predicate_says_that_a_key_is_one_value(make: Make, tmp_path: Path, form: str) -> None:
    """With a limit too: then bounds that say less than the predicate would let other rows pass."""
    made = ONE_VALUE[form]
    numbers = make(NUMBERS)
    numbers.insert(pa.table({"k": range(50), "v": range(50)}, NUMBERS))
    pairs = make(pa.schema([("h", pa.int64()), ("t", pa.int64())]), ["h", "t"], at=tmp_path / "pairs")
    pairs.insert({"h": [h for h in range(50) for _ in range(3)], "t": list(range(3)) * 50})
    k, h, t = map(pc.field, ("k", "h", "t"))
    for _ in range(2):  # in memory, in files
        for limit in (None, 1, 2, 100):
            for order in ("any", "key"):
                options: dict[str, Any] = {"limit": limit, "order": order}
                assert numbers.scan(where=made(k, 7), **options).to_table()["k"].to_pylist() == [7]
                found = pairs.scan(where=made(h, 7), **options).to_table().to_pylist()
                assert len(found) == min(3, limit or 3) and all(row["h"] == 7 for row in found)
                for where in (made(h, 7) & made(t, 1), made(t, 1) & (h == 7), made(h, 7) & (t == 1)):
                    assert pairs.scan(where=where, **options).to_table().to_pylist() == [{"h": 7, "t": 1}]
                for first in (3, 7):  # bounds that are one key may be another one
                    key_range = (first,), (first + 1,)
                    found = numbers.scan(where=made(k, 7), key_range=key_range, **options).to_table()
                    assert found["k"].to_pylist() == [7] * (first == 7)
                    found = pairs.scan(where=made(h, 7), key_range=key_range, **options).to_table()
                    assert found["h"].to_pylist() == [7] * min(3, limit or 3) * (first == 7)
                    key_range = (7, 0), (7, first // 3)
                    found = pairs.scan(where=made(h, 7) & (t >= 0), key_range=key_range, **options).to_table()
                    assert found["t"].to_pylist() == list(range(min(first // 3, limit or 3)))
                    found = pairs.scan(where=made(t, 1), key_range=key_range, **options).to_table()
                    assert found["t"].to_pylist() == [1] * (first == 7)
                found = pairs.scan(where=made(t, 1), **options).to_table().to_pylist()
                assert len(found) == min(50, limit or 50) and all(row["t"] == 1 for row in found)
        numbers.flush()
        pairs.flush()

"""Updates of several stores laid over a column at once: what one after the other gives."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from kudu_core.common.rows.rowblock import ColumnBuffers
from kudu_core.common.types.types import ColumnType
from kudu_core.rowset.rows import delta_view
from kudu_core.rowset.rows.delta_view import patch, patch_all

CASES = {
    "string": lambda x: None if x % 5 == 0 else "v" * (x % 40),
    "int64": lambda x: None if x % 5 == 0 else x,
    "bool": lambda x: x % 2 == 0,
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("together", [0, 300, 1 << 20])
def test_one_after_the_other(name: str, together: int, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta_view, "TOGETHER_BYTES", together)
    rng = np.random.default_rng((seed, together))
    type_ = ColumnType.parse(name)

    def column(n: int) -> ColumnBuffers:
        cells = [CASES[name](x) for x in rng.integers(0, 99, n).tolist()]
        return ColumnBuffers.from_arrow(pa.array(cells, type_.arrow), type_, "c")

    for _ in range(30):
        n, first = int(rng.integers(1, 60)), int(rng.integers(0, 1000))
        base = column(n)
        before = base.to_arrow(type_)
        changes = [
            (rng.integers(first, first + n, count).astype(np.uint32), column(count))
            for count in rng.integers(0, 40, int(rng.integers(0, 6))).tolist()
        ]
        expected, owned = base, False
        for rowids, new in changes:
            expected, owned = patch(expected, first, rowids, new, owned=owned), True
        found = patch_all(base, first, changes, owned=False)
        assert found.to_arrow(type_).equals(expected.to_arrow(type_))
        assert base.to_arrow(type_).equals(before)  # it was not written


def test_a_column_of_strings_is_copied_once(monkeypatch: pytest.MonkeyPatch) -> None:
    copies = []
    usual = delta_view.delta.overlay_var

    def counted(*arguments: object) -> object:
        copies.append(arguments)
        return usual(*arguments)

    monkeypatch.setattr(delta_view.delta, "overlay_var", counted)
    string = ColumnType.parse("string")
    base = ColumnBuffers.from_arrow(pa.array(["a"] * 100), string, "c")
    new = ColumnBuffers.from_arrow(pa.array(["b"]), string, "c")
    changes = [(np.array([i], np.uint32), new) for i in range(10)]
    patched = patch_all(base, 0, changes, owned=False)
    assert patched.to_arrow(string).to_pylist() == ["b"] * 10 + ["a"] * 90
    assert len(copies) == 1

"""Ten rows over sixteen tablets, of which nothing is known yet: found, and as the payload of their record."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from kudu_core._ext.few.call_rows import FewRows

SCHEMA = SimpleNamespace(version=1)


class Points:
    @staticmethod
    def find(key, key_hash):
        return ()


def tablet(number):
    view = SimpleNamespace(active=SimpleNamespace(schema=SCHEMA), stores=(), points=Points())
    return SimpleNamespace(id=number, view=view)


@pytest.mark.benchmark(group="kernel: few rows of tablets")
@pytest.mark.parametrize("tablets", [1, 10])
def test_found(benchmark, tablets):
    keys = [b"%08d" % i for i in range(10)]
    cells = [[key, b"some text"] for key in keys]
    touched = [tablet(i) for i in range(tablets)]
    places = [[i] for i in range(10)] if tablets > 1 else None
    benchmark.extra_info |= {"rows": 10}

    def work():
        rows = FewRows(keys, cells, touched, places)
        assert rows.locate(1)
        return rows.payload((1, 2), (8, 0), [(1, rows.absent)])

    assert benchmark(work).count(b"some text") == 10

"""A table in stores of each kind, over HTTP where they have it: made, written, read and followed."""

from __future__ import annotations

import os

import numpy as np
import pyarrow as pa
import pytest

import kudu_core as kc
from tests.support.objects.places import Place
from tests.support.objects.server import StoreServer
from tests.support.objects.tables import created, opened, rows_of

ROWS = 20_000


def test_a_table(place: Place) -> None:
    rows = pa.table({"k": np.arange(ROWS), "v": np.arange(ROWS) * 3})
    want = dict(zip(range(ROWS), range(0, 3 * ROWS, 3), strict=True))
    with created(place.requests, tablets=3, file_grace_s=0.0) as table:
        table.insert(rows)
        before = table.timestamp
        reader = opened(place.requests)
        assert rows_of(reader) == want
        table.upsert([{"k": n, "v": -n} for n in range(10)])
        want |= {n: -n for n in range(10)}
        table.flush()
        table.delete([{"k": 11}])
        del want[11]
        table.compact(full=True)
        table.gc()
        assert rows_of(table) == want
        reader.refresh()
        assert rows_of(reader) == want and reader.get(5) == {"k": 5, "v": -5}
        assert table.get(5, at=before) == {"k": 5, "v": 15}
        with pytest.raises(kc.Locked):
            opened(place.requests, "rw")
        reader.close()
    with opened(place.requests, "rw") as table:
        assert rows_of(table) == want
        found = table.verify()
        assert found.files and not found.foreign
        table.alter(add=[kc.Column("n", "int64", nullable=True)])
        table.upsert([{"k": 1, "v": 1, "n": 7}])
    with opened(place.requests) as reader:
        assert reader.get(1) == {"k": 1, "v": 1, "n": 7}


@pytest.fixture
def where(server: StoreServer) -> tuple[str, dict[str, object]]:
    """A folder of our HTTP server, and the options by which it is reached."""
    return f"{server.url}/t{os.urandom(4).hex()}", server.options()


def test_by_its_url(where: tuple[str, dict[str, object]], tmp_path: object) -> None:
    """As users come to it: the store is checked, and what cannot be is said."""
    url, options = where
    schema = pa.schema([("k", pa.int64())])
    with pytest.raises(kc.TableNotFound, match="make one with create_table"):
        kc.open_table(url, storage_options=options)
    with kc.create_table(url, schema, "k", storage_options=options) as table:
        table.insert([{"k": 1}])
        assert table.path == url
        assert table.options.file_grace_s == 3600 and table.options.group_interval_s == 0.25
    with pytest.raises(kc.TableExists):
        kc.create_table(url, schema, "k", storage_options=options)
    with kc.create_table(url, schema, "k", storage_options=options, exist_ok=True) as table:
        assert table.count() == 1
    with pytest.raises(kc.TableExists, match="another schema"):
        kc.create_table(url, pa.schema([("z", pa.int64())]), "z", storage_options=options, exist_ok=True)
    with pytest.raises(kc.InvalidArgument, match="no such storage option"):
        kc.open_table(url, storage_options={**options, "regoin": "eu"})
    with pytest.raises(kc.InvalidArgument, match="is a folder"):
        kc.open_table(f"{tmp_path}/t", storage_options=options)


def test_not_where_anything_is(where: tuple[str, dict[str, object]]) -> None:
    """Names are used once, also those of a table that is no more."""
    url, options = where
    schema = pa.schema([("k", pa.int64())])
    kc.create_table(f"{url}/inner", schema, "k", storage_options=options).close()
    with pytest.raises(kc.TableExists, match="a table needs a folder that was never used"):
        kc.create_table(url, schema, "k", storage_options=options)

"""A table on HDFS from its beginning to its end, as users have it."""

from __future__ import annotations

import os
import subprocess
import threading
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core.common.run.clock import Clock
from kudu_core.objects.client import open_store
from kudu_core.objects.clients.hdfs_requests import KEPT
from tests.support.objects.memory import put_id_of
from tests.support.objects.servers import PROGRAMS, Servers
from tests.support.objects.tables import MANUAL, rows_of

ROWS = 10_000
SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])


def test_a_table(url: str, tmp_path: Path) -> None:
    want = dict(zip(range(ROWS), range(0, 3 * ROWS, 3), strict=True))
    parts = [kc.HashPartition("k", 2)]
    with kc.create_table(f"{url}/t", SCHEMA, "k", partition_by=parts, options=MANUAL) as table:
        table.insert(pa.table({"k": np.arange(ROWS), "v": np.arange(ROWS) * 3}))
        before = table.timestamp
        table.flush()
        table.upsert([{"k": n, "v": -n} for n in range(100)])
        table.delete([{"k": 100}])
        table.flush()
        table.compact(full=True)
        with pytest.raises(kc.Locked):
            kc.open_table(f"{url}/t", "rw")
    new = {k: -k if k < 100 else v for k, v in want.items() if k != 100}
    with kc.open_table(f"{url}/t") as reader:
        assert rows_of(reader) == new and rows_of(reader, at=before) == want
        assert reader.get(5) == {"k": 5, "v": -5} and reader.get(5, at=before) == {"k": 5, "v": 15}
    with kc.open_table(f"{url}/t", "rw", options=MANUAL) as table:
        assert not table.verify().foreign
        table.alter(add=[kc.Column("n", "int64", nullable=True)])
        table.upsert([{"k": 1, "v": 1, "n": 7}])
        table.backup(f"{url}/backup")
        assert table.get(1) == {"k": 1, "v": 1, "n": 7}
    with kc.restore(f"{url}/backup", tmp_path / "local") as table:
        assert rows_of(table) == new | {1: 1}
        table.backup(f"{url}/other")
    with kc.restore(f"{url}/other", f"{url}/again") as table:
        assert rows_of(table) == new | {1: 1}
    with pytest.raises(kc.TableExists):
        kc.create_table(f"{url}/t", SCHEMA, "k")


def test_it_can_be_dropped(url: str) -> None:
    """As in other stores: by deleting what it is made of, versions and empty folders with it."""
    with kc.create_table(f"{url}/t", SCHEMA, "k", options=MANUAL) as table:
        for n in range(3):
            table.insert([{"k": n, "v": n}])
            table.flush()
    store = open_store(f"{url}/t", put_id_of=put_id_of, clock=Clock())
    names = [each.name for each in store.entries("")]
    assert {"TABLE", "LEASE"} < set(names) and not any("~" in name for name in names)
    store.delete_many(names)
    assert store.entries("") == []
    with pytest.raises(kc.TableNotFound):
        kc.open_table(f"{url}/t")


def test_it_is_safe(url: str) -> None:
    report = kc.check_store(f"{url}/checked", seconds=0.5, threads=8)
    assert report.is_sound, report
    assert report.races and report.replacements


# -- of a cluster alone ------------------------------------------------------------------------------------


@pytest.fixture
def cluster(servers: Servers, request: pytest.FixtureRequest) -> str:
    if not request.config.getoption("--long"):
        pytest.skip("a cluster takes minutes to install: only with --long")
    return f"{servers.of('hdfs')[0]}/t{os.urandom(6).hex()}"


def test_many_replacements_by_many(cluster: str) -> None:
    """More than are kept."""
    store = open_store(cluster, put_id_of=put_id_of, clock=Clock())
    store.put("n", bytes(16) + b"0")

    def count() -> None:
        for _ in range(KEPT):
            while True:
                data, version = store.read_versioned("n", 100)
                made = os.urandom(16) + b"%d" % (int(data[16:]) + 1)
                try:
                    store.replace_if("n", made, version, made[:16])
                except kc.KuduError:
                    continue
                break

    threads = [threading.Thread(target=count) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.read_bytes("n", 100)[16:] == b"%d" % (3 * KEPT)


def test_safe_mode(cluster: str) -> None:
    """Nothing can be written, and what was written can be read; then it goes on."""
    store = open_store(cluster, put_id_of=put_id_of, clock=Clock(), deadline_s=1.0)
    store.put("a", b"x")
    host = cluster.split("/")[2]

    def admin(what: str) -> None:
        subprocess.run(
            ["java", "-cp", str(PROGRAMS["hdfs"].with_name("*")), "org.apache.hadoop.hdfs.tools.DFSAdmin",
             "-fs", f"hdfs://{host}", "-safemode", what], check=True, capture_output=True, timeout=60,
        )  # fmt: skip

    admin("enter")
    try:
        with pytest.raises(kc.StoreUnavailable, match=r"SafeModeException: Cannot create file") as raised:
            store.put("a", b"y")
        assert raised.value.unknown and store.read_bytes("a", 1) == b"x"
    finally:
        admin("leave")
    store.put("a", b"y")
    assert store.read_bytes("a", 1) == b"y"


def test_another_user(cluster: str, monkeypatch: pytest.MonkeyPatch) -> None:
    open_store(cluster, put_id_of=put_id_of, clock=Clock()).put("a", b"x")
    monkeypatch.setenv("HADOOP_USER_NAME", "somebody")
    store = open_store(cluster, put_id_of=put_id_of, clock=Clock())
    assert store.read_bytes("a", 1) == b"x"
    with pytest.raises(kc.StoreDenied, match=r"AccessControlException: Permission denied: user=") as raised:
        store.put("b", b"x")
    assert not raised.value.unknown

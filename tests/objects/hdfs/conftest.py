"""HDFS by its URL: a stand-in, and with ``--long`` a real cluster."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kudu_core.objects.clients import hdfs_client
from kudu_core.objects.clients.hdfs_requests import HdfsRequests
from kudu_core.objects.urls import StoreUrl
from kudu_core.table.lifecycle.in_store import store_location
from tests.support.objects.hdfs_hooks import opened
from tests.support.objects.local_hdfs import LocalHdfs
from tests.support.objects.servers import Servers


@pytest.fixture
def hdfs(tmp_path: Path) -> LocalHdfs:
    """A stand-in with nothing in it."""
    return LocalHdfs(tmp_path / "hdfs")


@pytest.fixture
def requests(hdfs: LocalHdfs) -> HdfsRequests:
    """Those of a folder of it."""
    return opened(hdfs)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A cluster takes minutes to install."""
    if "url" in metafunc.fixturenames:
        kinds = ["stand-in", "cluster"] if metafunc.config.getoption("--long") else ["stand-in"]
        metafunc.parametrize("url", kinds, indirect=True)


@pytest.fixture
def url(
    request: pytest.FixtureRequest, servers: Servers, hdfs: LocalHdfs, monkeypatch: pytest.MonkeyPatch
) -> str:
    """An empty folder."""
    if request.param == "cluster":
        return f"{servers.of('hdfs')[0]}/t{os.urandom(6).hex()}"

    def connected(place: StoreUrl, options: Mapping[str, Any]) -> HdfsRequests:
        return HdfsRequests(place, lambda: hdfs)

    monkeypatch.setattr(hdfs_client, "connected", connected)
    monkeypatch.setattr(store_location, "CHECK_S", 0.2)
    return "hdfs://stand-in:8020/warehouse"

"""Empty places in stores of each kind, with clients of them; for tests."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kudu_core.common.run.clock import Clock
from kudu_core.objects.client import requests_at
from kudu_core.objects.clients.hdfs_requests import HdfsRequests
from kudu_core.objects.repeating import RepeatingStore
from kudu_core.objects.urls import parse
from tests.support.objects.local_hdfs import LocalHdfs
from tests.support.objects.memory import MemoryObjectStore, client, put_id_of
from tests.support.objects.server import StoreServer

if TYPE_CHECKING:
    from kudu_core.objects.api import ObjectStore, Requests

STAND_IN = "hdfs, stand-in"


@dataclass
class Place:
    """``requests`` are single ones, ``store`` the client over them."""

    kind: str
    requests: Requests
    store: ObjectStore


@contextmanager
def opened(kind: str) -> Iterator[Place]:
    if kind in ("s3", "gcs"):
        with StoreServer(kind) as server:  # type: ignore[arg-type]
            yield at(kind, server.url, server.options())
    elif kind == STAND_IN:
        with tempfile.TemporaryDirectory(prefix="kudu-core-hdfs-") as folder:
            hdfs = LocalHdfs(Path(folder))
            requests = HdfsRequests(parse("hdfs://stand-in:8020/in/deep"), lambda: hdfs)
            yield Place(kind, requests, RepeatingStore(requests, put_id_of, Clock(), deadline_s=20.0))
    else:
        memory = MemoryObjectStore(versions="generation" if kind == "memory, generations" else "etag")
        yield Place(kind, memory, client(memory))


def at(kind: str, url: str, options: dict[str, Any]) -> Place:
    """A folder of its own below a URL."""
    place = parse(f"{url}/t{os.urandom(6).hex()}/deep")
    requests = requests_at(place, options)
    return Place(kind, requests, RepeatingStore(requests, put_id_of, Clock(), deadline_s=20.0))

"""Empty places in stores of each kind, with clients of them; for tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kudu_core.common.run.clock import Clock
from kudu_core.objects.client import ObstoreRequests, _made
from kudu_core.objects.repeating import RepeatingStore
from kudu_core.objects.urls import parse
from tests.support.objects.memory import MemoryObjectStore, client, put_id_of
from tests.support.objects.server import StoreServer

if TYPE_CHECKING:
    from kudu_core.objects.api import ObjectStore, Requests

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
    else:
        memory = MemoryObjectStore(versions="generation" if kind == "memory, generations" else "etag")
        yield Place(kind, memory, client(memory))


def at(kind: str, url: str, options: dict[str, Any]) -> Place:
    """A folder of its own below a URL."""
    place = parse(f"{url}/t{os.urandom(6).hex()}/deep")
    requests = ObstoreRequests(place, _made(place, dict(options)))
    return Place(kind, requests, RepeatingStore(requests, put_id_of, Clock(), deadline_s=20.0))

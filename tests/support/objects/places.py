"""Empty places in stores of each kind, with clients of them; for tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.support.objects.memory import MemoryObjectStore, client

if TYPE_CHECKING:
    from kudu_core.objects.api import ObjectStore, Requests

KINDS = ("memory", "memory, generations")


@dataclass
class Place:
    """``requests`` are single ones, ``store`` the client over them."""

    kind: str
    requests: Requests
    store: ObjectStore


@contextmanager
def opened(kind: str) -> Iterator[Place]:
    memory = MemoryObjectStore(versions="generation" if kind == "memory, generations" else "etag")
    yield Place(kind, memory, client(memory))

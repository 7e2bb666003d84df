"""An object store in memory, strict: it promises what the protocol rests on, and nothing more; for tests.

* Each request is atomic; conditions are decided when it is applied.
* With ``versions="etag"`` a version is a hash of the bytes, so an object that gets its old bytes back has its
  old version back (ABA), as in S3.  With "generation" versions count up, as in Google's.
* ``listing="unordered"``: in any order.  "stale": as of an earlier moment, a different one for each listing:
  names are missing that are there, others are gone, sizes are old.  The protocol must bear both.
* Times are the store's own: ``now_s``.

It answers ``Requests``; ``client()`` is an ``ObjectStore`` over it.
"""

from __future__ import annotations

import hashlib
import random
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from kudu_core.errors import Corruption
from kudu_core.objects.api import Always, Entry, Unmet
from kudu_core.objects.repeating import RepeatingStore
from kudu_core.objects.tally import Tally
from tests.support.clock import ManualClock

if TYPE_CHECKING:
    from kudu_core.common.run.clock import Clock
    from kudu_core.objects.api import Condition, PutIdOf, Requests, Version

STALE_BY = 8
"""How many changes a stale listing may be behind."""


class Object(NamedTuple):
    data: bytes
    generation: int
    mtime_s: float

    @property
    def etag(self) -> str:
        return f'"{hashlib.md5(self.data, usedforsecurity=False).hexdigest()}"'


class StepClock(ManualClock):
    """A clock that moves when somebody sleeps, and knows how long."""

    def __init__(self) -> None:
        super().__init__()
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        super().sleep(seconds)


def put_id_of(path: str, data: bytes) -> bytes | None:
    """The put ids of these tests: the first 16 bytes of an object."""
    return data[:16] if len(data) >= 16 else None


class MemoryObjectStore:
    """See the module.  ``objects`` is what is there; look, and hold ``mutex`` while changing it."""

    def __init__(
        self,
        *,
        versions: Literal["etag", "generation"] = "etag",
        listing: Literal["sorted", "unordered", "stale"] = "sorted",
        seed: int = 0,
        now_s: Callable[[], float] = lambda: 1.0e9,
    ) -> None:
        self.objects: dict[str, Object] = {}
        self.mutex = threading.RLock()
        self._tally = Tally()
        self._versions = versions
        self._listing = listing
        self._rng = random.Random(seed)
        self._now_s = now_s
        self._generation = 0
        self._before: list[dict[str, Object]] = []

    def clone(self) -> MemoryObjectStore:
        """An independent store with the same objects: what another process finds after a crash."""
        with self.mutex:
            other = MemoryObjectStore(versions=self._versions, listing=self._listing, now_s=self._now_s)
            other.objects, other._generation = dict(self.objects), self._generation
            return other

    def version_of(self, found: Object) -> Version:
        return found.etag if self._versions == "etag" else str(found.generation)

    # -- requests ------------------------------------------------------------------------------------------

    def get(self, path: str, limit: int | None) -> tuple[bytes, Version]:
        with self.mutex:
            self._tally.sent("get")
            found = self._found(path)
            if limit is not None and len(found.data) > limit:
                raise Corruption(path, limit, f"the object is longer than {limit} bytes")
            self._tally.moved("get", len(found.data))
            return found.data, self.version_of(found)

    def get_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        with self.mutex:
            self._tally.sent("get", len(ranges))
            data = self._found(path).data
            pieces = [data[offset : offset + length] for offset, length in ranges]
            self._tally.moved("get", sum(map(len, pieces)))
            return pieces

    def put(self, path: str, data: bytes, condition: Condition) -> Version:
        with self.mutex:
            self._tally.sent("put")
            self._tally.moved("put", len(data))
            have = self.objects.get(path)
            if isinstance(condition, Always):
                pass
            elif condition is None:
                if have is not None:
                    raise Unmet(path)
            elif have is None:
                raise FileNotFoundError(2, "no such object", path)
            elif self.version_of(have) != condition:
                raise Unmet(path)
            return self.version_of(self.store(path, data))

    def delete(self, paths: Sequence[str]) -> None:
        with self.mutex:
            self._tally.sent("delete")
            self._remember()
            for path in paths:
                self.objects.pop(path, None)

    def list(self, prefix: str) -> list[Entry]:
        with self.mutex:
            self._tally.sent("list")
            objects = self.objects
            if self._listing == "stale" and self._before:
                objects = self._rng.choice([*self._before, objects])
            found = [
                Entry(path, len(each.data), each.mtime_s)
                for path, each in sorted(objects.items())
                if not prefix or path.startswith(f"{prefix}/")
            ]
            if self._listing != "sorted":
                self._rng.shuffle(found)
            return found

    def counts(self) -> dict[str, int]:
        return self._tally.now()

    def tell_repeated(self) -> None:
        self._tally.repeated()

    # -- without a condition -------------------------------------------------------------------------------

    def store(self, path: str, data: bytes) -> Object:
        """What a put does once its condition holds."""
        with self.mutex:
            self._remember()
            self._generation += 1
            made = self.objects[path] = Object(bytes(data), self._generation, self._now_s())
            return made

    def _found(self, path: str) -> Object:
        found = self.objects.get(path)
        if found is None:
            raise FileNotFoundError(2, "no such object", path)
        return found

    def _remember(self) -> None:
        if self._listing == "stale":
            self._before = [*self._before[1 - STALE_BY :], dict(self.objects)]


def client(
    requests: Requests,
    *,
    clock: Clock | None = None,
    deadline_s: float = 60.0,
    ids: PutIdOf = put_id_of,
) -> RepeatingStore:
    """An ``ObjectStore`` over single requests, as the engine would have it; by default in no time."""
    return RepeatingStore(requests, ids, clock or StepClock(), deadline_s=deadline_s)


if TYPE_CHECKING:

    def _checked(store: MemoryObjectStore) -> Requests:
        return store

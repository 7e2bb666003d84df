"""Where the table of a case lives: a folder of the machine, or an object store whose requests meet fates."""

from __future__ import annotations

import os
import random
import shutil
import tempfile
import time
from typing import Any, Protocol

from kudu_core.common.run.clock import Clock
from kudu_core.objects.api import Requests
from tests.support.objects.fates import OF_READS, OF_WRITES, Rule
from tests.support.objects.faulty import FaultyStore
from tests.support.objects.memory import MemoryObjectStore
from tests.support.objects.tables import end_lease, guard_deletes

_MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
"""Nothing here is about power cuts: where an fsync costs nothing there is time for more steps."""

LONGEST_WAIT_S = 0.001


class Ground(Protocol):
    """See the module."""

    path: str
    how: dict[str, Any]
    """How tables there are made and opened, beside their path."""

    def clock(self) -> Clock:
        """By which a table there works in the background."""

    def crash(self, rng: random.Random) -> None:
        """Whoever has the table open is gone; another process comes to what it left."""

    def tidy(self, rng: random.Random) -> None:
        """Those that are gone have let go of what they held."""

    def end(self) -> None: ...


class Folder:
    """A folder."""

    def __init__(self) -> None:
        self.how: dict[str, Any] = {}
        self._directory = tempfile.mkdtemp(prefix="kudu-core-differential-", dir=_MEMORY)
        self.path = f"{self._directory}/t"
        self._left: list[str] = []

    def clock(self) -> Clock:
        return Clock()

    def crash(self, rng: random.Random) -> None:
        """All of it is there: ``write`` has happened, and this is no power cut."""
        path = f"{self._directory}/t-{rng.getrandbits(40):x}"
        shutil.copytree(self.path, path)
        self._left.append(self.path)
        self.path = path

    def tidy(self, rng: random.Random) -> None:
        while self._left:
            shutil.rmtree(self._left.pop())

    def end(self) -> None:
        shutil.rmtree(self._directory, ignore_errors=True)


class Impatient(Clock):
    """The machine's clocks, but nobody waits for long, whatever the store asked for."""

    def sleep(self, seconds: float) -> None:
        time.sleep(min(seconds, LONGEST_WAIT_S))


class Store:
    """A store in memory.  ``odds``: of each request to be lost, late, refused or told to wait."""

    path = "s3://bucket/t"

    def __init__(self, seed: int = 0, odds: float = 0.0, listing: Any = "sorted") -> None:
        self.memory = MemoryObjectStore(
            versions="etag" if seed % 2 else "generation", listing=listing, seed=seed, now_s=time.time
        )
        guard_deletes(self.memory, self.path)
        rng = random.Random(seed)
        rules = [
            Rule(fate, ops=frozenset({"put", "delete"}), probability=odds, after=rng.randrange(1, 40))
            for fate in OF_WRITES
        ] + [Rule(fate, ops=frozenset({"get", "list"}), probability=odds) for fate in OF_READS]
        self.faulty = FaultyStore(self.memory, rules if odds else [], seed=seed)
        requests: Requests = self.faulty
        self.how = {"_requests": requests}

    def clock(self) -> Clock:
        return Impatient()

    def crash(self, rng: random.Random) -> None:
        """What is under way goes on, and may land at any time later."""
        end_lease(self.memory)

    def tidy(self, rng: random.Random) -> None:
        """There is nothing."""

    def end(self) -> None:
        """There is nothing."""


__all__ = ["Folder", "Ground", "Store"]

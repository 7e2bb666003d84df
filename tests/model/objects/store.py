"""An object store: atomic conditions, and requests whose answers are lost or that arrive late.

A put with an error was never applied, was applied, or will be, its condition evaluated then; only the store
knows.  A request outlives the actor that sent it.  LIST may lack what is there.  An etag is the bytes, so
equal contents have equal etags.  The store knows no name's meaning.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import random

    from tests.model.objects.oracle import Oracle
    from tests.model.objects.rules import Environment

Name = tuple[Any, ...]  #: its parts: ("log", 7), ("files", job, number)
ABSENT = object()  #: the condition of a put that must not replace anything
LISTED = 0.9  #: of names that a LIST tells
FATES = ("never", "applied", "late")


class Fault(Exception):
    """The outcome is unknown."""


class Missing(Exception):
    """There is no object of this name."""


class Failed(Exception):
    """The condition does not hold, or the store says so (409: another request is under way)."""


class Killed(Exception):
    """The actor has died at this request."""


class Store:
    def __init__(self, rng: random.Random, environment: Environment, oracle: Oracle) -> None:
        self.objects: dict[Name, tuple[Any, int]] = {}  # value, time of the put
        self.now = 0
        self.requests = 0
        self.faults, self.broken = environment.faults, environment.broken
        self._late_life = environment.late
        self.fate: str | None = None  # of the next request, whose sender dies
        self.late: list[tuple[int, int, Callable[[], None]]] = []  # a heap by the time of arrival
        self._random, self._rng, self._oracle = rng.random, rng, oracle

    def step(self) -> None:
        """Time goes by; requests that are under way may arrive."""
        self.now += 1
        while self.late and self.late[0][0] <= self.now:
            self._try(heappop(self.late)[2])

    # -- requests ------------------------------------------------------------------------------------------

    def put(self, name: Name, value: Any, condition: Any = None) -> None:
        """``condition``: None, ABSENT, or the value that must be there."""
        self._send(lambda: self._put(name, value, condition), conditional=condition is not None)

    def delete(self, name: Name) -> None:
        self._send(lambda: self._delete(name))

    def get(self, name: Name) -> Any:
        self._read()
        if name not in self.objects:
            raise Missing(name)
        return self.objects[name][0]

    def list(self, *prefix: Any) -> dict[Name, int]:
        """Names that begin like this, with their times."""
        self._read()
        length = len(prefix)
        found = {name: time for name, (_, time) in self.objects.items() if name[:length] == prefix}
        if self.faults:
            found = {name: time for name, time in found.items() if self._random() < LISTED}
        return found

    # -- what becomes of them ------------------------------------------------------------------------------

    def _put(self, name: Name, value: Any, condition: Any) -> None:
        have = self.objects.get(name)
        if condition is ABSENT:
            if have is not None and not (self.broken and self._random() < self.broken):
                raise Failed(name)
        elif condition is not None and (have is None or have[0] != condition):
            raise Failed(name)
        self.objects[name] = value, self.now
        self._oracle.put(name, value)

    def _delete(self, name: Name) -> None:
        if name in self.objects:
            self._oracle.delete(name)
            del self.objects[name]

    def _send(self, request: Callable[[], None], conditional: bool = False) -> None:
        self.requests += 1
        if self.fate is not None:
            fate, self.fate = self.fate, None
            self._meet(fate, request)
            raise Killed
        if self.faults and self._random() < self.faults:
            if conditional and self._random() < 0.1:
                raise Failed("409")
            self._meet(FATES[int(self._random() * 3)], request)
            raise Fault
        request()

    def _read(self) -> None:
        self.requests += 1
        if self.fate is not None:
            self.fate = None
            raise Killed
        if self.faults and self._random() < self.faults / 2:
            raise Fault

    def _meet(self, fate: str, request: Callable[[], None]) -> None:
        if fate == "applied":
            self._try(request)
        elif fate == "late":
            arrival = self.now + 1 + int(self._random() * self._late_life)
            heappush(self.late, (arrival, self.requests, request))

    def _try(self, request: Callable[[], None]) -> None:
        try:
            request()
        except Failed:
            return

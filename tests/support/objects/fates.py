"""What becomes of a request, by rules or by chance; for tests.

``FaultyStore`` lays fates on single requests, the small HTTP server (``server.py``) on what arrives there.
Both ask ``Fates``, which counts every request and asks its rules in turn: the first that fires decides.
"""

from __future__ import annotations

import fnmatch
import random
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

Op: TypeAlias = Literal["get", "put", "delete", "list"]

Fate: TypeAlias = Literal[
    "refused", "lost", "late", "conflict", "overtaken", "busy", "slow", "short", "flip",
    "crash before", "crash after",
]  # fmt: skip

WRITES: frozenset[Op] = frozenset({"put", "delete"})
OF_WRITES: tuple[Fate, ...] = ("refused", "lost", "late", "busy")
OF_READS: tuple[Fate, ...] = ("refused", "busy")
"""What may happen to any request and must be borne without an error."""


class Request(NamedTuple):
    """The ``number``-th request (from 1).  ``path``: of a listing its prefix, of a delete its first."""

    number: int
    op: Op
    path: str


@dataclass(slots=True)
class Rule:
    """Which requests meet a fate, and which one.  A rule counts its own matches, of the requests that no rule
    before it has decided; use it with one store.

    ``ops``: None for all.  ``path_glob``: matched against the whole path, ``*`` also covers ``/``.  ``nth``:
    fires at the n-th matching request, from 1.  ``probability``: at each matching one with these odds.  With
    neither, the first match fires.  ``times``: once it has fired, so many matches in a row do (a burst).

    ``fate``:

    * "refused": not applied; no answer.
    * "lost": applied; no answer.
    * "late": no answer; applied at the ``after``-th later request of the store, its condition decided then.
    * "conflict": not applied; the store says that another put is under way (409).
    * "overtaken": another's write of ``data`` under the same name is applied first, then this one.
    * "busy": not applied; the store asks for patience (503).
    * "slow": answered, ``seconds`` later.
    * "short", "flip": of a read, a part of its beginning, or one bit turned over; of a write as "lost".
    * "crash before", "crash after": the client dies, before it has sent the request, or before it has the
      answer (``SimulatedCrash``).

    ``how`` is only the HTTP server's: by what an answer is missing: "500", "503", "reset", "hang".
    """

    fate: Fate
    ops: frozenset[Op] | None = None
    path_glob: str | None = None
    nth: int | None = None
    probability: float | None = None
    times: int = 1
    after: int = 1
    seconds: float = 0.2
    data: bytes = b"another writer's bytes"
    how: Literal["500", "503", "reset", "hang"] = "500"
    matches: int = 0
    left: int = 0
    fired: int = 0

    def fires(self, request: Request, rng: random.Random) -> bool:
        if self.ops is not None and request.op not in self.ops:
            return False
        if self.path_glob is not None and not fnmatch.fnmatchcase(request.path, self.path_glob):
            return False
        self.matches += 1
        if self.left:
            self.left -= 1
            self.fired += 1
            return True
        if self.nth is not None:
            fires = self.matches == self.nth
        elif self.probability is not None:
            fires = rng.random() < self.probability
        else:
            fires = not self.fired
        if fires:
            self.left = self.times - 1
            self.fired += 1
        return fires


class Fates:
    """Asks the rules.  ``log`` has every request with the fate that it met."""

    def __init__(self, rules: Iterable[Rule] = (), seed: int = 0) -> None:
        self.rules = list(rules)
        self.rng = random.Random(seed)
        self.log: list[tuple[Request, Fate | None]] = []
        self._mutex = threading.Lock()

    def of(self, op: Op, path: str) -> Rule | None:
        with self._mutex:
            request = Request(len(self.log) + 1, op, path)
            met = next((rule for rule in self.rules if rule.fires(request, self.rng)), None)
            self.log.append((request, None if met is None else met.fate))
            return met


def by_chance(probability: float, *, crashes: bool = False) -> list[Rule]:
    """Rules under which each request that changes something may be lost, late, refused or put off."""
    share = probability / len(OF_WRITES)
    rules = [
        Rule(fate, ops=WRITES, probability=share, after=1 + number * 2, times=1 + 2 * (fate == "busy"))
        for number, fate in enumerate(OF_WRITES)
    ]
    rules += [Rule(fate, ops=frozenset({"get", "list"}), probability=share) for fate in OF_READS]
    rules.append(Rule("conflict", ops=frozenset({"put"}), probability=share))
    if crashes:
        rules.append(Rule("crash after", ops=WRITES, probability=share))
    return rules

"""An object store whose requests meet fates (``fates.py``); for tests.

It answers ``Requests`` in front of another that does, a ``MemoryObjectStore`` as a rule.  Requests that are
under way belong to the store and not to the client: they outlive its crash (``land_late``).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from kudu_core.errors import StoreError
from kudu_core.objects.api import ALWAYS, Unknown, Unmet
from tests.support.fs.faulty import SimulatedCrash
from tests.support.objects.fates import Fates, Op, Rule

if TYPE_CHECKING:
    from typing import TypeVar

    from kudu_core.common.run.clock import Clock
    from kudu_core.objects.api import Condition, Entry, Requests, Version

    _T = TypeVar("_T")


class FaultyStore:
    """See the module.  ``clock`` is what a slow request uses up."""

    def __init__(
        self, inner: Requests, rules: Iterable[Rule] = (), *, seed: int = 0, clock: Clock | None = None
    ) -> None:
        self._inner = inner
        self._clock = clock
        self.fates = Fates(rules, seed)
        self.crashed = False
        self._late: list[tuple[int, Callable[[], object]]] = []
        self._mutex = threading.Lock()

    def get(self, path: str, limit: int | None) -> tuple[bytes, Version]:
        data, version = self._sent("get", path, lambda: self._inner.get(path, limit), self._spoiled_get)
        return data, version

    def get_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        return self._sent(
            "get", path, lambda: self._inner.get_ranges(path, ranges), self._spoiled_ranges
        )

    def put(self, path: str, data: bytes, condition: Condition) -> Version:
        return self._sent("put", path, lambda: self._inner.put(path, data, condition))

    def delete(self, paths: Sequence[str]) -> None:
        names = list(paths)
        self._sent("delete", names[0], lambda: self._inner.delete(names))

    def list(self, prefix: str) -> list[Entry]:
        return self._sent("list", prefix, lambda: self._inner.list(prefix))

    def counts(self) -> dict[str, int]:
        return self._inner.counts()

    def tell_repeated(self) -> None:
        self._inner.tell_repeated()

    def land_late(self) -> int:
        """Apply what is still under way; how much that was."""
        with self._mutex:
            late, self._late = self._late, []
        for _, request in late:
            _apply(request)
        return len(late)

    # -- fates ---------------------------------------------------------------------------------------------

    def _sent(
        self,
        op: Op,
        path: str,
        request: Callable[[], _T],
        spoiled: Callable[[_T, str], _T] | None = None,
    ) -> _T:
        if self.crashed:
            raise SimulatedCrash
        rule = self.fates.of(op, path)
        self._land_due()
        if rule is None:
            return request()
        fate = rule.fate
        if fate == "crash before":
            self.crashed = True
            raise SimulatedCrash
        if fate in ("refused", "busy"):
            raise Unknown("503: slow down" if fate == "busy" else "500: internal error")
        if fate == "conflict" and op == "put":
            raise Unmet(path)
        if fate == "late" and op in ("put", "delete"):
            with self._mutex:
                self._late.append((len(self.fates.log) + rule.after, request))
            raise Unknown("timed out")
        if fate == "overtaken" and op == "put":
            self._inner.put(path, rule.data, ALWAYS)
            return request()
        if fate == "slow":
            if self._clock is not None:
                self._clock.sleep(rule.seconds)
            return request()
        if fate in ("short", "flip") and spoiled is not None:
            return spoiled(request(), fate)
        _apply(request)
        if fate == "crash after":
            self.crashed = True
            raise SimulatedCrash
        raise Unknown("connection lost")

    def _land_due(self) -> None:
        now = len(self.fates.log)
        with self._mutex:
            due = [request for at, request in self._late if at <= now]
            self._late = [(at, request) for at, request in self._late if at > now]
        for request in due:
            _apply(request)

    def _spoiled_get(self, answer: tuple[bytes, Version], fate: str) -> tuple[bytes, Version]:
        return self._spoiled(answer[0], fate), answer[1]

    def _spoiled_ranges(self, answer: list[bytes], fate: str) -> list[bytes]:
        return [self._spoiled(piece, fate) for piece in answer]

    def _spoiled(self, data: bytes, fate: str) -> bytes:
        if not data:
            return data
        at = self.fates.rng.randrange(len(data))
        if fate == "short":
            return data[:at]
        turned = bytearray(data)
        turned[at] ^= 1 << self.fates.rng.randrange(8)
        return bytes(turned)


def _apply(request: Callable[[], object]) -> None:
    """A request whose answer nobody gets."""
    try:
        request()
    except (Unmet, FileNotFoundError, StoreError):
        return


if TYPE_CHECKING:

    def _checked(store: FaultyStore) -> Requests:
        return store

"""One answer for each call, whatever becomes of its requests (protocol B3).

A request that ends without an answer (time-out, lost connection, 5xx, 429) may have been applied, or may be
later.  So it is repeated, the same bytes under the same name, until the store answers.  What it then says of
a condition is not yet the answer, for it may speak of our own object: that is read, and its put id decides.
Where nothing is there, or still what was there before, another put was in the way (409): again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from kudu_core.errors import Corruption, InternalError, InvalidArgument, StoreError, StoreUnavailable
from kudu_core.fs.base import byte_views
from kudu_core.objects.api import ABSENT, ALWAYS, Existing, Replaced, Unknown, Unmet
from kudu_core.objects.object_names import checked_folder, checked_path

if TYPE_CHECKING:
    from kudu_core.common.run.clock import Clock
    from kudu_core.fs.api import Data
    from kudu_core.objects.api import Entry, ObjectStore, PutIdOf, Requests, Version

_T = TypeVar("_T")

FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 5.0
DEADLINE_S = 60.0
"""``store_deadline_s`` of the protocol: after so long a call gives up."""


class RepeatingStore:
    """See the module and ``api.ObjectStore``.

    A call gives up ``deadline_s`` seconds after it began, though never in the middle of a request: how long
    one may take is the client's to limit.  ``spread()`` in [0, 1) shortens each pause by up to a half, so
    that many who were refused together do not come again together.
    """

    def __init__(
        self,
        requests: Requests,
        put_id_of: PutIdOf,
        clock: Clock,
        *,
        deadline_s: float = DEADLINE_S,
        spread: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self.storage_options: Mapping[str, Any] | None = None
        self._requests = requests
        self._put_id_of = put_id_of
        self._clock = clock
        self._deadline_s = deadline_s
        self._spread = spread

    # -- reading -------------------------------------------------------------------------------------------

    def read_bytes(self, path: str, limit: int) -> bytes:
        return self.read_versioned(path, limit)[0]

    def read_versioned(self, path: str, limit: int) -> tuple[bytes, Version]:
        checked_path(path)
        return self._until_answered(f"GET {path}", lambda: self._requests.get(path, limit))

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        checked_path(path)
        for offset, length in ranges:
            if offset < 0 or length < 0:
                raise InvalidArgument(f"({offset}, {length}) is no range of an object")
        wanted = [each for each in ranges if each[1]]
        if not wanted:
            return [b""] * len(ranges)
        found = iter(
            self._until_answered(f"GET {path}", lambda: self._requests.get_ranges(path, wanted))
        )
        return [next(found) if length else b"" for _, length in ranges]

    def entries(self, prefix: str) -> list[Entry]:
        checked_folder(prefix)
        return sorted(self._until_answered(f"LIST {prefix}", lambda: self._requests.list(prefix)))

    def counts(self) -> dict[str, int]:
        return self._requests.counts()

    # -- writing -------------------------------------------------------------------------------------------

    def put(self, path: str, data: Data) -> None:
        checked_path(path)
        whole = joined(data)
        self._until_answered(f"PUT {path}", lambda: self._requests.put(path, whole, ALWAYS), changes=True)

    def delete_many(self, paths: Sequence[str]) -> None:
        for path in paths:
            checked_path(path)
        if paths:
            what = f"DELETE {paths[0]}" + (f" and {len(paths) - 1} more" if len(paths) > 1 else "")
            self._until_answered(what, lambda: self._requests.delete(paths), changes=True)

    def put_if_absent(self, path: str, data: Data, put_id: bytes) -> Existing | None:
        answer = self._conditional(path, data, ABSENT, put_id)
        return answer if isinstance(answer, Existing) else None

    def replace_if(self, path: str, data: Data, version: Version, put_id: bytes) -> Version:
        answer = self._conditional(path, data, version, put_id)
        assert not isinstance(answer, Existing)
        return answer

    def _conditional(
        self, path: str, data: Data, condition: Version | None, put_id: bytes
    ) -> Version | Existing:
        """The new version; of a put that must not replace anything, the other object that is there."""
        checked_path(path)
        whole = joined(data)
        if self._put_id_of(path, whole) != put_id:
            raise InternalError(f"the bytes for {path} do not have the put id that is said to be theirs")

        unknown = False

        def attempt() -> Version | Existing:
            nonlocal unknown
            try:
                return self._requests.put(path, whole, condition)
            except Unmet:
                pass
            except Unknown:
                unknown = True
                raise
            try:
                found, version = self._requests.get(path, None)
            except FileNotFoundError:
                if condition is ABSENT:
                    raise Unknown("the store says that it exists, and then that it does not") from None
                raise
            theirs = self._put_id_of(path, found)
            if theirs == put_id:
                check_own(path, whole, found)
                return version
            if condition is ABSENT:
                return Existing(theirs, found)
            if version == condition:
                raise Unknown("the store says that the object has changed, and it has not")
            raise Replaced(path, Existing(theirs, found), version, unknown)

        return self._until_answered(f"PUT {path}", attempt, changes=True)

    # -- repeating -----------------------------------------------------------------------------------------

    def _until_answered(self, what: str, attempt: Callable[[], _T], changes: bool = False) -> _T:
        """The first answer of ``attempt``; ``changes``: what has no answer may have changed something."""
        began_s = self._clock.monotonic_s()
        pause_s = FIRST_PAUSE_S
        attempts, unknown = 0, False
        while True:
            attempts += 1
            try:
                return attempt()
            except Unknown as error:
                reason, unknown = error.reason, changes
            except StoreError as error:
                if unknown and not error.unknown:
                    raise type(error)(error.args[0], True) from error
                raise
            wait_s = pause_s * (1 - self._spread() / 2)
            pause_s = min(pause_s * 2, LONGEST_PAUSE_S)
            passed_s = self._clock.monotonic_s() - began_s
            if passed_s + wait_s > self._deadline_s:
                times = "once" if attempts == 1 else f"{attempts} times"
                raise StoreUnavailable(
                    f"{what}: no answer in {passed_s:.1f} s, asked {times}; the last time: {reason}", unknown
                )
            self._clock.sleep(wait_s)
            self._requests.tell_repeated()


def check_own(path: str, put: bytes, found: bytes) -> None:
    """``Corruption`` where an object has our put id, and not our bytes."""
    if found != put:
        pairs = enumerate(zip(put, found, strict=False))
        first = next((n for n, (a, b) in pairs if a != b), min(len(put), len(found)))
        raise Corruption(path, first, f"these are not the bytes that were put ({len(found)} of {len(put)})")


def joined(data: Data) -> bytes:
    """One object's bytes: what is repeated must stay the same, so what can change is copied."""
    if isinstance(data, bytes):
        return data
    return b"".join(byte_views(data))


if TYPE_CHECKING:

    def _checked(store: RepeatingStore) -> ObjectStore:
        return store


__all__ = ["DEADLINE_S", "RepeatingStore"]

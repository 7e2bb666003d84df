"""Who writes to a table in an object store, for politeness (protocol B11).

LEASE is an object that its holder replaces every ``RENEW_S``.  Whoever wants it and sees it unchanged for
``EXPIRES_S`` of its own clock takes it over; at once where it was released, or names a process of this boot
of this host that is dead, or was put by a lease of this process that is at its end.  Nothing rests on it:
whoever takes the table over too early fences its writer.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from kudu_core.common.format.members import BROKEN, integer, parsed, text
from kudu_core.common.run.gates import Flag
from kudu_core.common.run.locks import mutex
from kudu_core.common.run.workers import Worker
from kudu_core.errors import KuduError, Locked, StoreError
from kudu_core.fs.api import LeaseHolder
from kudu_core.fs.processes import ProcessName, is_known_dead, this_process
from kudu_core.objects.api import Replaced

if TYPE_CHECKING:
    from kudu_core.common.run.clock import Clock
    from kudu_core.fs.api import Lease
    from kudu_core.objects.api import ObjectStore, Version

NAME: Final = "LEASE"
RENEW_S, EXPIRES_S = 10.0, 30.0
LOOK_S: Final = 1.0
"""Between two looks of who waits."""
MOST_BYTES: Final = 4096


_given_up: set[bytes] = set()
"""Put ids of leases of this process that are at their end, though LEASE may not say so, or not yet: the store
did not answer."""


def lease_put_id(data: bytes) -> bytes | None:
    """The put id of a LEASE; None where these bytes are none."""
    found = _parsed(data)
    return None if found is None else found[1]


def _parsed(data: bytes) -> tuple[ProcessName, bytes, bool] | None:
    """Who, the put id, and whether it was released; None where the bytes say something else."""
    try:
        value = parsed(data)
        name = ProcessName(integer(value["pid"]), text(value["host"]), text(value["boot_id"]))
        nonce = bytes.fromhex(text(value["nonce"]))
        if len(nonce) != 16:
            return None
        return name, nonce, value["released"] is True
    except BROKEN:
        return None


class ObjectLease:
    """See the module and ``fs.api.Lease``."""

    def __init__(
        self,
        store: ObjectStore,
        root: str,
        *,
        clock: Clock,
        new_id: Callable[[], bytes],
    ) -> None:
        self.path = f"{root}/{NAME}"
        self._store = store
        self._clock = clock
        self._new_id = new_id
        self._me = this_process()
        self._version: Version | None = None
        """Of the LEASE that this object has put; None: it has none."""
        self._tried: set[bytes] = set()
        """Put ids: of what it has put, and of later puts without an answer, which may be there yet."""
        self._mutex = mutex()
        """Held over a request by which it is renewed or released."""
        self._stop = Flag()
        self._thread: Worker | None = None

    @property
    def held(self) -> bool:
        return self._version is not None

    # ---- taking ----

    def try_acquire(self, wait_s: float = 0.0) -> None:
        assert self._version is None, "a lease is taken once"
        began_s = self._clock.monotonic_s()
        seen: Version | None = None
        since_s = began_s
        while True:
            found = self._read()
            now_s = self._clock.monotonic_s()
            if found is not None and found[1] != seen:
                seen, since_s = found[1], now_s
            if found is None or self._is_free(found[0], now_s - since_s):
                if self._take(found):
                    self._thread = Worker(self._renew_on, "kudu-lease")
                    self._thread.start()
                    return
                found = self._read()  # of who was faster
            if now_s - began_s >= wait_s:
                holder = None if found is None else _parsed(found[0])
                if holder is None:
                    raise Locked(self.path, None, None)
                raise Locked(self.path, holder[0].pid, holder[0].host)
            self._clock.sleep(min(LOOK_S, wait_s - (now_s - began_s)))

    def _read(self) -> tuple[bytes, Version] | None:
        try:
            return self._store.read_versioned(NAME, MOST_BYTES)
        except FileNotFoundError:
            return None

    def _is_free(self, data: bytes, unchanged_s: float) -> bool:
        known = _parsed(data)
        if unchanged_s >= EXPIRES_S or known is None:
            return True
        name, put_id, released = known
        return released or put_id in _given_up or is_known_dead(name)

    def _take(self, found: tuple[bytes, Version] | None) -> bool:
        """False: another one was faster.  After an error it may be there, or come yet; see ``release``."""
        data, nonce = self._text(released=False)
        self._tried = {nonce}
        if found is None:
            if self._store.put_if_absent(NAME, data, nonce) is not None:
                return False
            again = self._read()
            if again is None or lease_put_id(again[0]) != nonce:
                return False
            self._version = again[1]
            return True
        try:
            self._version = self._store.replace_if(NAME, data, found[1], nonce)
        except (Replaced, FileNotFoundError):
            return False
        return True

    def _text(self, *, released: bool) -> tuple[bytes, bytes]:
        """The bytes of a LEASE, and its put id."""
        nonce = self._new_id()
        value: dict[str, Any] = {**self._me._asdict(), "nonce": nonce.hex(), "released": released}
        return json.dumps(value).encode(), nonce

    # ---- holding ----

    def _renew_on(self) -> None:
        while not self._stop.wait(RENEW_S) and self._renewed():
            pass

    def _renewed(self) -> bool:
        """False: another one has it."""
        with self._mutex:
            if self._version is None:
                return True
            try:
                self._version = self._replaced(self._version, released=False)
            except (Replaced, FileNotFoundError):
                self._version, self._tried = None, set()
                return False
            except StoreError:
                return True  # the next time, then; it may expire meanwhile
            return True

    def _replaced(self, version: Version, *, released: bool) -> Version:
        """Put LEASE where it is of this version, or of a later own put that had no answer.  ``Replaced``:
        another one has it."""
        data, nonce = self._text(released=released)
        self._tried.add(nonce)
        while True:
            try:
                version = self._store.replace_if(NAME, data, version, nonce)
            except Replaced as error:
                if error.found.put_id not in self._tried:
                    raise
                version = error.version
            else:
                self._tried = {nonce}  # the versions of which the others were to be put are gone
                return version

    def holder(self) -> LeaseHolder | None:
        """As LEASE says, which may be of somebody who is gone."""
        found = self._read()
        known = None if found is None else _parsed(found[0])
        if known is None or known[2] or known[1] in _given_up:
            return None
        return LeaseHolder(known[0].pid, known[0].host)

    def has_readers(self) -> bool:
        """Nobody can say."""
        return True

    # ---- the end ----

    def release(self) -> None:
        """Say that it is free; where the store does not answer, it expires for other processes.  Also after
        ``try_acquire`` has failed, which may have put LEASE all the same."""
        self._stop.set()
        with self._mutex:
            version, self._version = self._version, None
            tried = set(self._tried)
            _given_up.update(tried)
            if version is not None:
                with suppress(KuduError, FileNotFoundError):
                    self._replaced(version, released=True)
                    _given_up.difference_update(tried)
            self._tried = set()

    def abandon(self) -> None:
        """In the child of a fork, where the client is of no use."""
        self._version = None
        self._tried = set()
        self._stop.set()


if TYPE_CHECKING:

    def _checked(lease: ObjectLease) -> Lease:
        return lease


__all__ = ["ObjectLease", "lease_put_id"]

"""TABLE of a table in an object store: put only if it is still the one that is known here (protocol B6)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from kudu_core.common.format.members import BROKEN, parsed
from kudu_core.common.run.locks import mutex
from kudu_core.errors import Corruption, Fenced, NotSupported, TableNotFound
from kudu_core.objects.api import Replaced
from kudu_core.table.stored.store_place import StorePlace, id_of
from kudu_core.table.stored.table_state import IN_STORE, MAX_BYTES, TableState, parse_state

if TYPE_CHECKING:
    from kudu_core.common.run.clock import Clock
    from kudu_core.objects.api import ObjectStore, Version
    from kudu_core.table.opened.table_file import StoredTable

NAME: Final = "TABLE"
LEAST_S: Final = 1.0
"""Between two puts to Google, which takes one a second of one name."""


def table_put_id(data: bytes) -> bytes | None:
    """The put id of a TABLE; None where these bytes have none."""
    try:
        return id_of(parsed(IN_STORE.body(NAME, data))["put_id"])
    except (*BROKEN, Corruption, NotSupported):
        return None


def read_table(store: ObjectStore, root: str, *, restore: str | None = "") -> tuple[TableState, Version]:
    """TABLE as it is; ``TableNotFound``, ``Corruption``.

    ``restore``: what it must say of the restore that makes it, "" for a table that is whole; None: anything.
    """
    try:
        data, version = store.read_versioned(NAME, MAX_BYTES)
    except FileNotFoundError:
        raise TableNotFound(f"there is no table at {root}; make one with create_table") from None
    state = parse_state(data, f"{root}/{NAME}", in_store=True)
    found = place_of(state).restore
    if restore is not None and found != restore:
        raise TableNotFound(
            f"the table at {root} is not whole: a restore of {found} has not come to its end; run it again"
            if found
            else f"the table at {root} is whole, and not to be restored"
        )
    return state, version


def place_of(state: TableState) -> StorePlace:
    assert state.place is not None, "of a table in an object store"
    return state.place


class TableObject:
    """See ``StoredTable``.  ``state`` may be ahead of what was put: records say that until the next put."""

    def __init__(
        self,
        store: ObjectStore,
        root: str,
        state: TableState,
        version: Version,
        *,
        clock: Clock,
        new_id: Callable[[], bytes],
    ) -> None:
        """``state``, of ``version``: as TABLE was read."""
        self.state = state
        self.put_state = state
        """As it was put, or read, last."""
        self.check_poisoned: Callable[[], None] = lambda: None
        """The log's, once there is one."""
        self.store = store
        self._root = root
        self._version = version
        self._clock = clock
        self._new_id = new_id
        self._mutex = mutex()
        """Guards ``state`` and the put."""
        self._tried: dict[bytes, TableState] = {}
        """By put id: what was put without an answer, and may be there yet."""
        self._least_s = LEAST_S if root.startswith("gs://") else 0.0
        self._last_s = -LEAST_S

    def fence(self) -> None:
        """Whoever has taken the table over is met at the next put of the log or of TABLE (protocol B2)."""
        self.check_poisoned()

    def change(self, change: Callable[[TableState], TableState]) -> None:
        """In memory; the next put has it."""
        self.check_poisoned()
        with self._mutex:
            self.state = change(self.state)

    def keep(self, change: Callable[[TableState], TableState]) -> None:
        self.check_poisoned()
        self.put(change)

    def install(self, state: TableState) -> None:
        self.put(lambda _: state)

    def put(self, change: Callable[[TableState], TableState]) -> None:
        """Put TABLE as ``change`` makes it of ``state``.

        ``Fenced``: another writer has put it.  ``StoreError``: it may or may not be there; nothing else has
        changed, and another put may follow.
        """
        wait_s = self._last_s + self._least_s - self._clock.monotonic_s()
        if wait_s > 0:
            self._clock.sleep(wait_s)
        with self._mutex:
            put_id = self._new_id()
            after = change(self.state)
            after = replace(after, place=replace(place_of(after), put_id=put_id))
            self._tried[put_id] = after
            self._put(after.to_bytes(), put_id)
            self._tried.clear()
            self.state = self.put_state = after
            self._last_s = self._clock.monotonic_s()

    def _put(self, data: bytes, put_id: bytes) -> None:
        while True:
            try:
                self._version = self.store.replace_if(NAME, data, self._version, put_id)
            except Replaced as error:
                if error.found.put_id not in self._tried:
                    raise Fenced(f"{self._root}/{NAME} was put by another writer") from None
                self._version = error.version  # an own put that had no answer, which has come late
            except FileNotFoundError:
                path = f"{self._root}/{NAME}"
                raise Corruption(path, 0, "it was deleted while the table was open") from None
            else:
                return

    def prove(self) -> None:
        """``Fenced`` unless TABLE is of this writer's epoch (protocol B4, B5)."""
        state, _ = read_table(self.store, self._root, restore=None)
        if state.epoch != self.state.epoch:
            raise Fenced(
                f"{self._root} is open for writing in epoch {state.epoch}, and here in {self.state.epoch}: "
                "another writer has taken it over"
            )

    def is_unwritten(self) -> bool:
        """An epoch begins before anything else is of it, and a clean close ends it (protocol B10)."""
        try:
            now, _ = read_table(self.store, self._root, restore=None)
        except TableNotFound:
            return False
        return (now.epoch, now.clean_end) == (self.state.epoch, self.state.clean_end) and now.clean_end > 0

    def is_replaced(self) -> bool:
        try:
            return read_table(self.store, self._root, restore=None)[0].uuid != self.state.uuid
        except TableNotFound:
            return True

    @property
    def storage_options(self) -> Mapping[str, Any] | None:
        return self.store.storage_options

    def requests(self) -> Mapping[str, int]:
        return self.store.counts()


if TYPE_CHECKING:

    def _checked(table: TableObject) -> StoredTable:
        return table


__all__ = ["NAME", "TableObject", "place_of", "read_table", "table_put_id"]

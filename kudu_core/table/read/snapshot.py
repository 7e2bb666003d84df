"""Pinned snapshots."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from kudu_core.table.read.moment import PinnedMoment

if TYPE_CHECKING:
    import pyarrow as pa

    from kudu_core.common.run.locks import Claim
    from kudu_core.table.read.scan import Scan


class Readable(Protocol):
    """What a snapshot asks of the table that it is of."""

    @property
    def path(self) -> str: ...
    @property
    def scan(self) -> Callable[..., Scan]: ...
    @property
    def get(self) -> Callable[..., dict[str, Any] | None]: ...
    @property
    def get_many(self) -> Callable[..., pa.Table]: ...


class Snapshot(PinnedMoment):
    """One state of a table, held readable until ``close()``.  A context manager.

    May be shared between threads and used any number of times.
    """

    def __init__(self, table: Readable, timestamp: int, pin: Claim) -> None:
        super().__init__(timestamp, pin)
        self._table = table

    def scan(self, columns: Any = None, where: Any = None, **options: Any) -> Scan:
        """As ``Table.scan`` at this snapshot."""
        self._check()
        return self._table.scan(columns, where, at=self, **options)

    def get(self, key: Any, columns: Any = None) -> dict[str, Any] | None:
        """As ``Table.get`` at this snapshot."""
        self._check()
        return self._table.get(key, columns, at=self)

    def get_many(self, keys: Any, columns: Any = None) -> pa.Table:
        """As ``Table.get_many`` at this snapshot."""
        self._check()
        return self._table.get_many(keys, columns, at=self)

    def __enter__(self) -> Snapshot:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Snapshot({self.timestamp})"

    def __reduce__(self) -> Any:
        at = self.timestamp
        raise TypeError(
            f"a Snapshot does not travel to another process: send its timestamp, {at}, or scan tokens, "
            "and in a function for Spark write "
            f"kudu_core.spark.table({self._table.path!r}, at={at}).scan(..., at={at})"
        )

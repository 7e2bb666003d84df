"""The fence by which a writer takes the log of an object store over (protocol B4, B5)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kudu_core.errors import Fenced
from kudu_core.wal.objects.log_object import ObjectHeader, log_name

if TYPE_CHECKING:
    from kudu_core.objects.api import ObjectStore
    from kudu_core.wal.objects.object_tail import ObjectTail


def put_fence(
    store: ObjectStore, tail: ObjectTail, table_uuid: bytes, epoch: int, new_id: Callable[[], bytes]
) -> None:
    """Put an object without records at the first number that is missing, and take it in; what is there by
    then of an earlier epoch is taken in before it.  ``Fenced``: a later writer has the table.

    A writer that was replaced can try one number only, the one behind its last object.  There it finds the
    fence, however long it slept.
    """
    while True:
        if tail.epoch >= epoch:
            raise Fenced(
                f"the log has an object of epoch {tail.epoch}, this writer's is {epoch}: another writer has "
                "taken the table over"
            )
        n = tail.next_number
        header = ObjectHeader(table_uuid, epoch, n, tail.end, new_id())
        data = header.pack()
        other = store.put_if_absent(log_name(n), data, header.put_id)
        tail.take_in(n, data if other is None else other.data)
        if other is None:
            return


__all__ = ["put_fence"]

"""``table.modify``: read rows, compute in Python, write what came of it if nothing has changed meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from kudu_core.errors import Conflict, InvalidArgument
from kudu_core.table.write.batch import Batch, read_rows

if TYPE_CHECKING:
    from kudu_core.table.opened.handle import Handle

Row: TypeAlias = dict[str, Any]
TRIES = 1000
"""Some call has come between so often; each time one has gone on."""


def modify(
    handle: Handle, keys: Any, function: Callable[[Row | None], Mapping[str, Any] | None], tries: int
) -> Row | list[Row | None] | None:
    """As ``Table.modify``."""
    if isinstance(tries, bool) or not isinstance(tries, int) or tries < 1:
        raise InvalidArgument(f"tries is a number from 1 on, not {tries!r}")
    several = isinstance(keys, list)
    last: Conflict | None = None
    for _ in range(tries):
        batch = Batch(handle, "raise", None, "check", True)
        try:
            with batch:
                made = _modified(handle, batch, keys if several else [keys], function)
        except Conflict as conflict:
            last = conflict
        else:
            return made if several else made[0]
    raise Conflict(f"{tries} tries; the last: {last}") from last


def _modified(
    handle: Handle, batch: Batch, keys: Sequence[Any], function: Callable[[Row | None], Any]
) -> list[Row | None]:
    """What becomes of the rows, put into the batch."""
    names = handle.for_writing().schema.key_names
    found = read_rows(batch, keys)
    if len({tuple(row[name] for name in names) for _, row in found}) < len(keys):
        raise InvalidArgument("modify: a key is given twice")
    made: list[Row | None] = []
    changed: list[Row] = []
    gone: list[Row] = []
    for is_there, row in found:
        key = {name: row[name] for name in names}
        given = function(dict(row) if is_there else None)
        if given is None:
            made.append(None)
            if is_there:
                gone.append(key)
            continue
        if not isinstance(given, Mapping):
            raise InvalidArgument(f"modify: the function gives a row as a dict, or None, not {given!r}")
        other = [name for name in names if name in given and given[name] != key[name]]
        if other:
            raise InvalidArgument(f"modify: {other[0]!r} is a key column, which does not change")
        new = {**key, **given}
        made.append(new)
        if not is_there or new != row:
            changed.append(new)
    if changed:
        batch.upsert(changed)
    if gone:
        batch.delete(gone)
    return made


__all__ = ["TRIES", "modify"]

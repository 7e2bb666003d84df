"""Making a new table in an object store: one put of TABLE, last of all."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from kudu_core.common.format.names import DROPPED
from kudu_core.errors import StoreError, TableExists
from kudu_core.table.lifecycle.in_store.put_ids import new_id
from kudu_core.table.lifecycle.in_store.table_object import NAME
from kudu_core.table.stored.store_place import StorePlace
from kudu_core.table.stored.table_state import TableState, TabletEntry

if TYPE_CHECKING:
    from kudu_core.common.partition.partitions import PartitionSchema
    from kudu_core.common.schema.schema import Schema
    from kudu_core.objects.api import ObjectStore
    from kudu_core.objects.check_store import StoreReport
    from kudu_core.options import Options

DEFAULTS = {"file_grace_s": 3600.0, "group_interval_s": 0.25}
"""Options that have other defaults here: a reader holds no file that is deleted, and each put costs money."""


def create(
    store: ObjectStore,
    root: str,
    schema: Schema,
    partitions: PartitionSchema,
    options: Options,
    restore: str = "",
) -> None:
    """Put TABLE, where nothing is.  ``restore``: what it says of the restore that makes the table whole.

    Raises
    ------
    TableExists
        There is a table, or anything else: names of objects are used once, also those of a table that is no
        more.
    """
    found = store.entries("")
    if found:
        if any(entry.name == NAME for entry in found):
            raise table_exists(root)
        if any(entry.name == DROPPED for entry in found):
            raise TableExists(
                f"a table at {root} was dropped; a table needs a folder that was never used: take another one"
            )
        raise TableExists(
            f"{root} is not empty: {found[0].name!r} is there; a table needs a folder that was never used"
        )
    count = len(partitions.partitions)
    put_id = new_id()
    state = TableState(
        uuid=uuid.uuid4().bytes,
        epoch=1,
        options=options,
        schemas=(schema,),
        partitions=partitions,
        tablets=tuple(TabletEntry(i + 1, i, 0) for i in range(count)),
        clean_end=1,
        place=StorePlace(put_id, restore=restore),
    )
    if store.put_if_absent(NAME, state.to_bytes(), put_id) is not None:
        raise table_exists(root)


def table_exists(root: str) -> TableExists:
    return TableExists(f"there is a table at {root}; open it with open_table, or pass exist_ok=True")


def refuse_unsafe(report: StoreReport) -> None:
    """``StoreError`` where a store breaks a rule on which tables rest."""
    if not report.is_sound:
        raise StoreError(f"no table was made: {report}")


__all__ = ["DEFAULTS", "create", "refuse_unsafe", "table_exists"]

"""Where the objects of a table have their put ids, for whoever opens its store."""

from __future__ import annotations

import os

from kudu_core.common.format.names import BACKUP
from kudu_core.objects import object_lease
from kudu_core.table.lifecycle.in_store import table_object
from kudu_core.table.stored.store_place import PUT_ID_BYTES
from kudu_core.wal.objects.log_object import log_put_id, parse_log_name


def put_id_of(name: str, data: bytes) -> bytes | None:
    """``objects.api.PutIdOf`` of tables."""
    if parse_log_name(name) is not None:
        return log_put_id(data)
    if name == table_object.NAME:
        return table_object.table_put_id(data)
    if name == object_lease.NAME:
        return object_lease.lease_put_id(data)
    return id_of_bytes(data) if name.endswith(f"/{BACKUP}") else None


def id_of_bytes(data: bytes) -> bytes:
    """The put id of what has no place for one: a backup's manifest."""
    import hashlib

    return hashlib.sha256(data).digest()[:PUT_ID_BYTES]


def new_id() -> bytes:
    """A put id that nobody has used."""
    return os.urandom(PUT_ID_BYTES)


__all__ = ["id_of_bytes", "new_id", "put_id_of"]

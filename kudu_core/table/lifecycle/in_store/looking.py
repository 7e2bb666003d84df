"""A table in an object store looked at as a whole, by whoever verifies it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from kudu_core.common.format.names import (
    epoch_of_file,
    file_path,
    is_data_file,
    is_job,
    job_of_mark,
    tablet_of_folder,
)
from kudu_core.common.run.pool import Pool
from kudu_core.objects import object_lease
from kudu_core.table.lifecycle.in_store import table_object
from kudu_core.table.lifecycle.in_store.found import tail_of
from kudu_core.table.lifecycle.in_store.job_sweep import FILES, STAGING
from kudu_core.table.lifecycle.in_store.open_store_reader import StoreReader
from kudu_core.table.lifecycle.in_store.table_object import TableObject, place_of
from kudu_core.wal.objects.log_object import parse_log_name

if TYPE_CHECKING:
    from kudu_core.table.opened.engine import Engine
    from kudu_core.wal import Record

_OTHERS = (table_object.NAME, object_lease.NAME)


class StoreListing(NamedTuple):
    """What a LIST shows of a table."""

    log_objects: int
    unnamed: tuple[str, ...]
    """Data files and snapshots that nothing names."""
    foreign: tuple[str, ...]
    """Names that no table gives."""


def opened_beside(engine: Engine) -> Engine:
    """The table of an open one, opened for reading: nothing comes from what that has in memory."""
    table = engine.table_file
    assert isinstance(table, TableObject)
    fresh, _ = StoreReader(table.store, engine.path, None, engine.clock, None, Pool(1)).open()
    return fresh


def log_records(engine: Engine) -> Iterator[Record]:
    """The records of the log that replay needs, of a table that is open for reading."""
    table = engine.table_file
    assert isinstance(table, TableObject)
    tail = tail_of(table.store, engine.path, table.put_state, Pool(1))
    tail.read_on()
    return tail.records()


def listed(engine: Engine) -> StoreListing:
    """Of a table that is open for reading."""
    table = engine.table_file
    assert isinstance(table, TableObject)
    snapshots = place_of(table.put_state).snapshots
    named = {file_path(tablet.directory, name) for tablet in engine.tablets for name in tablet.state.files}
    named |= {
        f"{tablet.directory}/{snapshots[tablet.id].name}"
        for tablet in engine.tablets
        if tablet.id in snapshots
    }
    log_objects, unnamed, foreign = 0, [], []
    for entry in table.store.entries(""):
        name = entry.name
        if parse_log_name(name) is not None:
            log_objects += 1
        elif is_of_a_tablet(name):
            if f"{engine.path}/{name}" not in named:
                unnamed.append(name)
        elif name not in _OTHERS and not is_of_a_job(name):
            foreign.append(name)
    return StoreListing(log_objects, tuple(unnamed), tuple(foreign))


def is_of_a_tablet(name: str) -> bool:
    parts = name.split("/")
    if len(parts) != 3 or parts[0] != "tablets" or tablet_of_folder(parts[1]) is None:
        return False
    return is_data_file(parts[2]) or epoch_of_file(parts[2]) is not None


def is_of_a_job(name: str) -> bool:
    """What jobs have put: theirs until they are over, and then until a writer has swept it."""
    folder, _, rest = name.partition("/")
    job = rest.partition("/")[0]
    return folder in (FILES, STAGING) and is_job(job_of_mark(job) or job)


__all__ = ["StoreListing", "is_of_a_job", "is_of_a_tablet", "listed", "log_records", "opened_beside"]

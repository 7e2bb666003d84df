"""What holds rows elsewhere and hands them out when asked: datasets, scanners, lazy frames, open queries.

Of all of them only what they can do is looked at, so that none of the packages they come from is imported:

* a ``pyarrow.dataset.Dataset``, of which one of Lance is one, has a ``scanner``;
* a ``Scanner`` has ``to_reader``, as other scans have;
* a table of Delta Lake makes itself a dataset;
* a ``LazyFrame`` of Polars collects itself, in batches where its version can;
* a connection of DuckDB has an open result, as the answer of ``execute`` has.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from kudu_core.errors import InvalidArgument

_READERS = ("to_arrow_reader", "fetch_record_batch")
"""What DuckDB calls it, in its newer and in its older versions."""


def is_lazy_frame(data: Any) -> bool:
    doors = ("collect_schema", "collect")
    return not isinstance(data, type) and all(callable(getattr(data, door, None)) for door in doors)


def collected(frame: Any) -> Iterator[Any]:
    """A lazy frame as frames, in its order; at least one."""
    in_batches = getattr(frame, "collect_batches", None)
    if in_batches is None:
        yield frame.collect()
        return
    empty = True
    for some in in_batches(maintain_order=True):
        empty = False
        yield some
    if empty:
        yield frame.limit(0).collect()


def reader_of(data: Any) -> pa.RecordBatchReader | None:
    """What reads the rows of a source batch by batch; None: it is none of those above."""
    if isinstance(data, type):
        return None
    as_dataset = getattr(data, "to_pyarrow_dataset", None)
    if callable(as_dataset):
        data = as_dataset()
    scanner = getattr(data, "scanner", None)
    if callable(scanner):
        data = scanner()
    to_reader = getattr(data, "to_reader", None)
    if callable(to_reader):
        return _checked(data, to_reader())
    for name in _READERS:
        fetch = getattr(data, name, None)
        if callable(fetch):
            return _checked(data, _fetched(data, fetch))
    return None


def _fetched(connection: Any, fetch: Any) -> Any:
    problem: Exception | None = None
    try:
        reader = fetch()
    except Exception as error:
        if "result" not in str(error).lower():
            raise
        reader, problem = None, error
    if reader is None:
        raise InvalidArgument(
            f"{type(connection).__name__} has no open result; give connection.sql(query), or what "
            "connection.execute(query) returns, before anything of it is read"
        ) from problem
    return reader


def _checked(data: Any, reader: Any) -> pa.RecordBatchReader:
    if not isinstance(reader, pa.RecordBatchReader):
        what = type(data).__name__
        raise InvalidArgument(f"{what} reads as {type(reader).__name__}, not as record batches")
    return reader


def gives_rows(data: Any) -> bool:
    """Whether rows are read of it."""
    doors = ("to_pyarrow_dataset", "scanner", "to_reader", *_READERS)
    one = not isinstance(data, type) and any(callable(getattr(data, door, None)) for door in doors)
    return one or is_lazy_frame(data)


def is_path(data: Any) -> bool:
    """Whether somebody may mean the file of that name."""
    return isinstance(data, str) or hasattr(type(data), "__fspath__")


__all__ = ["collected", "gives_rows", "is_lazy_frame", "is_path", "reader_of"]

"""Writing rows to files: each appears whole under its name, or not at all."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa

from kudu_core.cli.shared.arrays_of_json import is_plain
from kudu_core.cli.shared.json_values import json_cells, json_line, json_rows
from kudu_core.errors import InvalidArgument

Write = Callable[[pa.RecordBatch], None]
SUFFIXES = {"parquet": ".parquet", "csv": ".csv", "jsonl": ".jsonl", "arrow": ".arrow"}


@contextmanager
def written_whole(path: str, replace: bool) -> Iterator[Any]:
    """A stream for a file's bytes; ``-`` is stdout.  An end by an error leaves no file.

    Raises
    ------
    InvalidArgument
        There is a file, and it is not to be replaced.
    """
    if path == "-":
        yield pa.PythonFile(sys.stdout.buffer, mode="w")
        sys.stdout.flush()
        return
    place = Path(path)
    if place.exists() and not replace:
        raise InvalidArgument(f"{path} is there; --replace writes over it")
    part = place.with_name(f".{place.name}.part")
    try:
        with pa.output_stream(str(part), compression=_compression(place)) as stream:
            yield stream
        part.replace(place)
    except BaseException:
        with suppress(FileNotFoundError):
            part.unlink()
        raise


def _compression(place: Path) -> str | None:
    return {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2"}.get(place.suffix.lower())


@contextmanager
def rows_to(stream: Any, schema: pa.Schema, kind: str) -> Iterator[Write]:
    """A function that writes a batch in a format."""
    if kind == "parquet":
        import pyarrow.parquet as pq

        with pq.ParquetWriter(stream, schema) as parquet:
            yield parquet.write_batch
    elif kind == "arrow":
        with pa.ipc.new_stream(stream, schema) as arrow:
            yield arrow.write_batch
    elif kind == "csv":
        from pyarrow import csv

        texts = pa.schema([f if is_plain(f.type) else f.with_type(pa.string()) for f in schema])
        with csv.CSVWriter(stream, texts) as writer:
            yield lambda batch: writer.write_batch(_as_text(batch, texts))
    else:
        yield lambda batch: _write_lines(stream, batch)


def _write_lines(stream: Any, batch: pa.RecordBatch) -> None:
    for row in json_rows(batch):
        stream.write(json_line(row).encode() + b"\n")


def _as_text(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = []
    for column, field in zip(batch.columns, schema, strict=True):
        if column.type != field.type:
            cells = json_cells(column)
            texts = [cell if cell is None or isinstance(cell, str) else json_line(cell) for cell in cells]
            column = pa.array(texts, pa.string())
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=schema)


__all__ = ["SUFFIXES", "rows_to", "written_whole"]

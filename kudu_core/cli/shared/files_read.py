"""Files of rows: Parquet, CSV, JSON lines, Arrow; folders of them; Delta and Lance tables."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa

from kudu_core.cli.shared.arrays_of_json import array_of_json, is_plain, of_text
from kudu_core.errors import InvalidArgument, NotSupported

_SUFFIXES = {
    ".parquet": "parquet", ".pq": "parquet", ".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl",
    ".json": "jsonl", ".arrow": "arrow", ".feather": "arrow", ".ipc": "arrow", ".arrows": "arrow",
    ".lance": "lance", ".delta": "delta",
}  # fmt: skip
_COMPRESSED = (".gz", ".bz2", ".zst", ".lz4")
_LINES = 8192
_CHUNK = 1 << 20


@dataclass(frozen=True)
class FileRows:
    """Rows of one file or folder: their schema, and a way to read them."""

    path: str
    schema: pa.Schema
    batches: Callable[[], Iterator[pa.RecordBatch]]


def format_of(path: str, given: str | None = None) -> str:
    """The format of a file or folder, by its name or what lies in it.

    Raises
    ------
    InvalidArgument
        Nothing tells; ``--format`` can.
    """
    if given is not None:
        return given
    place = Path(path)
    if (place / "_delta_log").is_dir():
        return "delta"
    if (place / "_versions").is_dir():
        return "lance"
    suffixes = [suffix.lower() for suffix in place.suffixes if suffix.lower() not in _COMPRESSED]
    if suffixes and suffixes[-1] in _SUFFIXES:
        return _SUFFIXES[suffixes[-1]]
    if place.is_dir():
        kinds = {format_of(str(file)) for file in _files_in(place)}
        if len(kinds) == 1:
            return kinds.pop()
        what = "files of several formats" if kinds else "no files that are known by their names"
        raise InvalidArgument(f"{path} holds {what}; say with --format which are meant")
    raise InvalidArgument(f"{path}: the format is not clear from the name; give --format")


def source_of(path: str, given: str | None = None, target: pa.Schema | None = None) -> FileRows:
    """Rows of a file, a folder or a table; ``target`` says which types CSV and JSON have.

    Raises
    ------
    InvalidArgument
        The file is none of its format; it is named.
    """
    kind = format_of(path, given)
    if path != "-" and "://" not in path and not Path(path).exists():
        raise InvalidArgument(f"there is no file {path}")
    try:
        if kind in ("delta", "lance"):
            return _of_tables(path, kind)
        if kind == "parquet" and Path(path).is_dir():
            return _of_parquet_folder(path)
        files = [str(file) for file in _files_in(Path(path), kind)] if Path(path).is_dir() else [path]
        if not files:
            raise InvalidArgument(f"there are no files of {kind} in {path}")
        open_one = {"parquet": _parquet, "csv": _csv, "jsonl": _json_lines, "arrow": _arrow}[kind]
        first = open_one(files[0], target)
        if len(files) == 1:
            return first

        def of_all() -> Iterator[pa.RecordBatch]:
            for file in files:
                yield from open_one(file, target).batches()

        return FileRows(path, first.schema, of_all)
    except pa.ArrowInvalid as error:
        raise InvalidArgument(f"{path} is no {kind} that can be read: {error}") from None


def _files_in(folder: Path, kind: str | None = None) -> Iterator[Path]:
    """Files that are known by their names, in the order of these; hidden ones are left out."""
    for file in sorted(folder.rglob("*")):
        if file.is_file() and not any(part.startswith((".", "_")) for part in file.relative_to(folder).parts):
            names = [suffix.lower() for suffix in file.suffixes if suffix.lower() not in _COMPRESSED]
            found = _SUFFIXES.get(names[-1]) if names else None
            if found is not None and kind in (None, found):
                yield file


def _of_tables(path: str, kind: str) -> FileRows:
    try:
        if kind == "delta":
            from deltalake import DeltaTable

            dataset = DeltaTable(path).to_pyarrow_dataset()
        else:
            import lance

            dataset = lance.dataset(path)
    except ImportError:
        package = {"delta": "deltalake", "lance": "pylance"}[kind]
        raise NotSupported(f"{path}: {kind} needs the package {package}: pip install {package}") from None
    return FileRows(path, dataset.schema, dataset.to_batches)


def _of_parquet_folder(path: str) -> FileRows:
    import pyarrow.dataset as ds

    dataset = ds.dataset(path, format="parquet", partitioning="hive")
    return FileRows(path, dataset.schema, dataset.to_batches)


def _parquet(path: str, target: pa.Schema | None) -> FileRows:
    import pyarrow.parquet as pq

    file = pq.ParquetFile(path)
    return FileRows(path, file.schema_arrow, file.iter_batches)


def _arrow(path: str, target: pa.Schema | None) -> FileRows:
    if path == "-":
        import sys

        reader = pa.ipc.open_stream(sys.stdin.buffer)
        return FileRows(path, reader.schema, lambda: iter(reader))
    source = pa.OSFile(path)
    try:
        file = pa.ipc.open_file(source)
    except pa.ArrowInvalid:
        source.seek(0)
        reader = pa.ipc.open_stream(source)
        return FileRows(path, reader.schema, lambda: iter(reader))
    return FileRows(
        path, file.schema, lambda: (file.get_batch(index) for index in range(file.num_record_batches))
    )


def _csv(path: str, target: pa.Schema | None) -> FileRows:
    from pyarrow import csv

    wanted = {} if target is None else {field.name: field.type for field in target}
    convert = csv.ConvertOptions(
        strings_can_be_null=True, quoted_strings_can_be_null=False, null_values=[""],
        column_types={name: type_ if is_plain(type_) else pa.string() for name, type_ in wanted.items()},
    )  # fmt: skip
    reader = csv.open_csv(_input(path), convert_options=convert)
    fields = [
        field.with_type(wanted[field.name]) if field.name in wanted else field for field in reader.schema
    ]
    schema = pa.schema(fields)

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in reader:
            columns = [
                column if column.type == field.type else _converted(of_text, column, field, path)
                for column, field in zip(batch.columns, fields, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)

    return FileRows(path, schema, batches)


def _json_lines(path: str, target: pa.Schema | None) -> FileRows:
    if target is None:
        from pyarrow import json as arrow_json

        schema = arrow_json.open_json(_input(path)).schema
        return FileRows(path, schema, lambda: iter(()))  # whoever gives no target wants the schema alone
    blocks = _rows_of_lines(path)
    begin = next(blocks, [])
    # The columns of the first rows are those of all: what is left out is another thing than NULL.
    names = dict.fromkeys(name for row in begin for name in row)
    unknown = [name for name in names if target.get_field_index(name) < 0]
    if unknown:
        raise InvalidArgument(f"{path}: the table has no column {unknown[0]!r}")
    schema = pa.schema([field for field in target if field.name in names])

    def batches() -> Iterator[pa.RecordBatch]:
        first = 1
        for rows in chain([begin], blocks):
            yield _batch_of(rows, schema, path, first)
            first += len(rows)

    return FileRows(path, schema, batches)


def _rows_of_lines(path: str) -> Iterator[list[dict[str, Any]]]:
    number, rows = 0, []
    for line in _lines(path):
        number += 1
        if not line.strip():
            continue
        try:
            row = json.loads(line, parse_float=Decimal)
        except ValueError as error:
            raise InvalidArgument(f"{path}, line {number}: {error}") from None
        if not isinstance(row, dict):
            raise InvalidArgument(f"{path}, line {number}: a row is a JSON object, not {type(row).__name__}")
        rows.append(row)
        if len(rows) == _LINES:
            yield rows
            rows = []
    if rows:
        yield rows


def _batch_of(rows: Sequence[dict[str, Any]], schema: pa.Schema, path: str, first: int) -> pa.RecordBatch:
    """Rows with the columns of ``schema``; a row that lacks one has NULL there."""
    for number, row in enumerate(rows, first):
        if not row.keys() <= set(schema.names):
            new = next(name for name in row if name not in schema.names)
            raise InvalidArgument(f"{path}, row {number}: the first rows have no column {new!r}")
    where = f"{path}, from row {first} on"
    columns = [
        _converted(array_of_json, [row.get(field.name) for row in rows], field, where) for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _converted(
    convert: Callable[[Any, pa.DataType], pa.Array], cells: Any, field: pa.Field, where: str
) -> pa.Array:
    try:
        return convert(cells, field.type)
    except (ValueError, TypeError, AttributeError, pa.ArrowException) as error:
        raise InvalidArgument(f"{where}: column {field.name!r} is {field.type}: {error}") from None


def _input(path: str) -> Any:
    if path == "-":
        import sys

        return sys.stdin.buffer
    return pa.input_stream(path, compression="detect")


def _lines(path: str) -> Iterator[bytes]:
    stream, rest = _input(path), b""
    while chunk := stream.read(_CHUNK):
        *lines, rest = (rest + chunk).split(b"\n")
        yield from lines
    if rest:
        yield rest


__all__ = ["FileRows", "format_of", "source_of"]

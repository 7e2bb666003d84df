"""Columns, keys and files for the tests of the cfile room, and a file system of 40 lines."""

from __future__ import annotations

import datetime as dt
import decimal
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from kudu_core._ext.keys import hashing
from kudu_core._ext.keys import keys as key_kernel
from kudu_core.cfile import RowsFile, RowsFileSpec, RowsMeta, write_rows_file
from kudu_core.cfile.columns.specs import ColumnSpec
from kudu_core.common.rows.rowblock import ColumnBuffers
from kudu_core.common.types.types import ColumnType

FILE_ID = bytes(range(16))


class BytesFile:
    """One file of a ``BytesFileSystem``, for reading and writing."""

    def __init__(self, path: str, data: bytearray) -> None:
        self.path = path
        self.data = data
        self.reads = 0

    def size(self) -> int:
        return len(self.data)

    def pread(self, n: int, offset: int) -> bytes:
        self.reads += 1
        return bytes(self.data[offset : offset + n])

    def preadv(self, sizes: list[int], offset: int) -> list[bytes]:
        self.reads += 1
        pieces = []
        for size in sizes:
            pieces.append(bytes(self.data[offset : offset + size]))
            offset += size
        return pieces

    def append(self, data: Any) -> int:
        at = len(self.data)
        for piece in data if isinstance(data, list) else [data]:
            self.data += bytes(piece)
        return at

    def sync(self, data_only: bool = False) -> None:
        pass

    def close(self) -> None:
        pass


class _BytesFileSystem:
    """Just enough of a file system to hold files in memory, damage them and count reads."""

    def __init__(self, *, remote: bool = False) -> None:
        self.remote = remote
        self.files: dict[str, bytearray] = {}
        self.opened: list[BytesFile] = []

    def create(self, path: str) -> Any:
        assert path not in self.files
        self.files[path] = bytearray()
        return BytesFile(path, self.files[path])

    def open_read(self, path: str, size: int | None = None) -> Any:
        file = BytesFile(path, self.files[path])
        self.opened.append(file)
        return file

    def unlink(self, path: str, missing_ok: bool = False) -> None:
        del self.files[path]


# Any: it has only that part of the protocol which data files use.
BytesFileSystem: Any = _BytesFileSystem


@dataclass
class Keys:
    data: np.ndarray
    offsets: np.ndarray


def u8(data: Any) -> np.ndarray:
    return np.frombuffer(bytes(data), np.uint8)


def encode_keys(parts: list[tuple[ColumnType, ColumnBuffers]], rows: int) -> Keys:
    data, offsets = key_kernel.encode([(t.kind, t.width, c.values, c.offsets) for t, c in parts], rows)
    return Keys(u8(data), np.asarray(offsets, np.int64))


def column(array: Any, type_name: str) -> ColumnBuffers:
    type_ = ColumnType.parse(type_name)
    return ColumnBuffers.from_arrow(pa.array(array, type_.arrow), type_)


def random_values(rng: np.random.Generator, type_: ColumnType, rows: int) -> list[Any]:
    """Values of a type with the odd ones among them: bounds, NaN, empty and long strings."""
    if type_.name == "string":
        words = ["", "a", "ab", "b" * 40, "\x00", "z\u00fc", "\U0001f600" * 12]
        if rng.random() < 0.5:
            return [words[i] for i in rng.integers(0, len(words), rows)]
        return [f"{words[i % 7]}{i * 7919 % 100_003}" for i in rng.integers(0, 1 << 30, rows).tolist()]
    if type_.name == "binary":
        return [rng.bytes(int(n)) for n in rng.integers(0, 12, rows)]
    if type_.name == "bool":
        return [bool(x) for x in rng.integers(0, 2, rows)]
    if type_.name.startswith("decimal"):
        return [decimal.Decimal(int(x)).scaleb(-2) for x in rng.integers(-(10**8), 10**8, rows)]
    if type_.name.startswith("float"):
        odd = [float("nan"), float("inf"), -0.0, 0.0]
        picked = rng.integers(0, 50, rows)
        values = np.round(rng.normal(size=rows) * 100, 2)
        if type_.width == 4:
            values = values.astype(np.float32)
        return [odd[p] if p < 4 else float(v) for p, v in zip(picked.tolist(), values, strict=True)]
    if type_.name == "date32":
        return [dt.date.fromordinal(int(x)) for x in rng.integers(1, 3_000_000, rows)]
    info: Any = np.iinfo(type_.dtype)
    if type_.is_timestamp:
        tz = dt.UTC if type_.arrow.tz else None
        base = dt.datetime(2020, 1, 1, tzinfo=tz)
        return [base + dt.timedelta(microseconds=int(x)) for x in rng.integers(0, 1 << 40, rows)]
    if rng.random() < 0.5:
        return [int(x) for x in rng.integers(0, 100, rows)]
    return [int(x) for x in rng.integers(info.min, info.max, rows, dtype=info.dtype, endpoint=True)]


TYPES = [
    "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64",
    "bool", "string", "binary", "date32", "timestamp[us]", "timestamp[us,UTC]", "decimal128(10,2)",
]  # fmt: skip


@dataclass
class Case:
    """A rowset in memory: what was written, to be compared with what is read."""

    specs: dict[int, ColumnSpec]
    columns: dict[int, ColumnBuffers]
    key_ids: list[int]
    keys: Keys
    insert_times: np.ndarray | None
    rows: int

    def arrow(self, column_id: int, lower: int = 0, upper: int | None = None) -> pa.Array:
        type_ = self.specs[column_id].type
        upper = self.rows if upper is None else upper
        return self.columns[column_id].slice(lower, upper).to_arrow(type_)

    def write(self, fs: Any, path: str, **options: Any) -> RowsMeta:
        spec = RowsFileSpec(
            [(self.specs[id_], self.columns[id_]) for id_ in self.columns],
            key_ids=self.key_ids,
            keys=self.keys,
            hashes=hashing.murmur3(self.keys.data, self.keys.offsets),
            insert_times=self.insert_times,
            file_id=FILE_ID,
            **options,
        )
        return write_rows_file(fs, path, spec)


def make_case(
    rng: np.random.Generator, rows: int, key: str = "composite", types: list[str] | None = None
) -> Case:
    """Random columns of the types under a key: "int", "string", "composite" (dictionary, int) or
    "mixed" (plain string, int)."""
    specs: dict[int, ColumnSpec] = {}
    columns: dict[int, ColumnBuffers] = {}
    key_parts: list[tuple[str, list[Any]]]
    number = np.sort(rng.choice(max(rows * 3, 4), rows, replace=False)).tolist()
    if key == "int":
        key_parts = [("int64", [int(x) - rows for x in number])]
    elif key == "string":
        key_parts = [("string", sorted({f"key-{x}" for x in number}))]
    elif key == "composite":
        hosts = sorted(f"host-{i % 5}" for i in range(rows))
        key_parts = [("string", hosts), ("timestamp[us]", [1000 * x for x in number])]
    else:
        key_parts = [("string", [f"k{x:09d}-{x * 7919 % 1000}" for x in number]), ("int32", number)]
    for type_name, values in key_parts:
        id_ = len(specs)
        specs[id_] = ColumnSpec(id_, ColumnType.parse(type_name), False, "key")
        columns[id_] = column(values, type_name)
    key_ids = list(specs)
    keys = encode_keys([(specs[i].type, columns[i]) for i in key_ids], rows)
    for type_name in TYPES if types is None else types:
        type_ = ColumnType.parse(type_name)
        id_ = len(specs)
        values = random_values(rng, type_, rows)
        share = rng.choice([0.0, 0.3, 1.0], p=[0.4, 0.5, 0.1])
        gone = rng.random(rows) < share
        specs[id_] = ColumnSpec(
            id_, type_, True, compression=str(rng.choice(["auto", "zstd", "lz4", "none"]))
        )
        columns[id_] = column([None if g else v for v, g in zip(values, gone, strict=True)], type_name)
    times = np.sort(rng.integers(1 << 60, (1 << 60) + 4, rows).astype(np.uint64))
    return Case(specs, columns, key_ids, keys, times if rng.random() < 0.7 else None, rows)


def same(left: pa.Array, right: pa.Array) -> bool:
    """Equal cells; floats by their bits but for NaN."""
    if pa.types.is_floating(left.type):
        kind = pa.int32() if left.type == pa.float32() else pa.int64()
        if left.is_null().to_pylist() != right.is_null().to_pylist():
            return False
        return bool(left.drop_null().view(kind).equals(right.drop_null().view(kind)))
    return bool(left.equals(right))


def read_codes(
    file: RowsFile, column_id: int, lower: int, upper: int
) -> tuple[np.ndarray, int, np.ndarray | None, ColumnBuffers] | None:
    """Codes (raw) of a column's rows, their width, validity, and the sorted words; None where there is no
    dictionary.

    Every code, of null cells too, is an ordinal of the words.
    """
    column = file.columns[column_id]
    if column.words is None:
        return None
    codes = column.read_stored(lower, upper)
    return codes.values, codes.width, codes.validity, column.dictionary()

"""What each kind of series is stored as, and in how many bits: a wrong choice fails here.

Bits are those of the whole column in its file: pages with frames, dictionary, page index.  The bounds are
what the encoding must reach, a few hundredths above what it does; headers are 0.2 to 0.3 bits a value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kudu_core.cfile import PAGE_ROWS, RowsFile, RowsFileSpec, write_rows_file
from kudu_core.cfile.columns.specs import ColumnSpec
from kudu_core.cfile.pages.page import CODEC_LZ4, CODEC_NONE, CODEC_ZSTD, PAGE_FRAME
from kudu_core.common.rows.rowblock import ColumnBuffers
from kudu_core.common.schema.encodings import COMPRESSIONS, ENCODINGS, encodings_of
from kudu_core.common.types.types import ColumnType
from tests.support.cases.cfile import BytesFileSystem, column, encode_keys, same

ROWS = 3 * PAGE_ROWS
ORDINALS = np.arange(ROWS)
Series = Callable[[np.random.Generator], Any]


def two_decimals(rng: np.random.Generator) -> np.ndarray:
    return np.round(50 + np.cumsum(rng.normal(0, 0.05, ROWS)), 2)


def jumps(rng: np.random.Generator) -> np.ndarray:
    return np.cumsum(np.where(rng.random(ROWS) < 0.01, 1 << 29, rng.integers(0, 32, ROWS)))


def wide(low: np.ndarray) -> np.ndarray:
    return np.stack([low, low >> 63], axis=1)


# Type, series, the kinds of its mini-blocks (all others are at most one in 20), codec, bits a value at most.
NUMBERS: dict[str, tuple[str, Series, str, int, float]] = {
    "times, regular": ("int64", lambda rng: 10**15 + 1000 * ORDINALS, "delta", CODEC_NONE, 0.35),
    "times, 1 ms jitter": (
        "timestamp[us]",
        lambda rng: ORDINALS * 10**7 + rng.integers(0, 1000, ROWS),
        "delta",
        CODEC_NONE,
        11.4,
    ),
    "sorted, random gaps": (
        "int64",
        lambda rng: np.cumsum(rng.integers(0, 1 << 23, ROWS)),
        "delta",
        CODEC_NONE,
        23.4,
    ),
    "counter": ("int64", lambda rng: np.cumsum(rng.integers(0, 32, ROWS)), "delta", CODEC_NONE, 5.4),
    "counter, 1% jumps": ("int64", jumps, "delta", CODEC_NONE, 6.3),
    "times of 512 rows a host": (
        "int64",
        lambda rng: 10**12 + ORDINALS % 512 * 1000,
        "delta",
        CODEC_NONE,
        0.5,
    ),
    "int64 of 36 bits": ("int64", lambda rng: rng.integers(0, 1 << 36, ROWS), "for", CODEC_NONE, 36.3),
    "int64 of 36 bits, 1% of 60": (
        "int64",
        lambda rng: rng.integers(0, 1 << 36, ROWS) << 24 * (rng.random(ROWS) < 0.01),
        "for",
        CODEC_NONE,
        37.4,
    ),
    "latencies, lognormal": (
        "int64",
        lambda rng: np.exp(rng.normal(10, 1.2, ROWS)).astype(np.int64),
        "for",
        CODEC_NONE,
        19.8,
    ),
    "any uint64": (
        "uint64",
        lambda rng: rng.integers(0, 2**64, ROWS, np.uint64),
        "plain",
        CODEC_NONE,
        64.3,
    ),
    "8 words of 64 bits": (
        "uint64",
        lambda rng: rng.integers(0, 2**64, 8, np.uint64)[rng.integers(0, 8, ROWS)],
        "plain",
        CODEC_LZ4,
        22.0,
    ),
    "int32 of 20 bits": (
        "int32",
        lambda rng: rng.integers(0, 1 << 20, ROWS).astype(np.int32),
        "for",
        CODEC_NONE,
        20.3,
    ),
    "sorted dates": (
        "date32",
        lambda rng: np.sort(rng.integers(18_000, 20_000, ROWS)).astype(np.int32),
        "delta",
        CODEC_NONE,
        1.5,
    ),
    "batches": (
        "uint64",
        lambda rng: np.repeat(rng.integers(1 << 60, (1 << 60) + 10**6, ROWS // 1000 + 1), 1000)[:ROWS],
        "rle",
        CODEC_NONE,
        0.6,
    ),
    "one value": ("uint64", lambda rng: np.full(ROWS, 1 << 60), "constant", CODEC_NONE, 0.3),
    "one value but for 1%": (
        "int64",
        lambda rng: np.where(rng.random(ROWS) < 0.01, rng.integers(0, 1 << 60, ROWS), 7),
        "constant",
        CODEC_NONE,
        1.2,
    ),
    "int8": ("int8", lambda rng: rng.integers(-4, 4, ROWS).astype(np.int8), "for", CODEC_NONE, 3.3),
    "bools": ("bool", lambda rng: rng.integers(0, 2, ROWS).astype(np.uint8), "for", CODEC_NONE, 1.3),
    "true": ("bool", lambda rng: np.ones(ROWS, np.uint8), "constant", CODEC_NONE, 0.3),
    "doubles, walk of 2 decimals": ("float64", two_decimals, "for", CODEC_NONE, 8.9),
    "doubles, 2 decimals": (
        "float64",
        lambda rng: np.round(rng.random(ROWS) * 100, 2),
        "for",
        CODEC_NONE,
        14.3,
    ),
    "doubles, 2 decimals, 1% NaN": (
        "float64",
        lambda rng: np.where(rng.random(ROWS) < 0.01, np.nan, np.round(rng.random(ROWS) * 100, 2)),
        "for",
        CODEC_NONE,
        15.2,
    ),
    "doubles, 9 decimals": (
        "float64",
        lambda rng: np.round(rng.random(ROWS), 9),
        "for",
        CODEC_NONE,
        30.4,
    ),
    "doubles, whole": (
        "float64",
        lambda rng: rng.integers(0, 1000, ROWS).astype(np.float64),
        "for",
        CODEC_NONE,
        10.3,
    ),
    "doubles, uniform": ("float64", lambda rng: rng.random(ROWS), "for", CODEC_NONE, 56.4),
    "doubles, normal": ("float64", lambda rng: rng.normal(0, 1, ROWS), "plain", CODEC_NONE, 64.3),
    "doubles, steps": (
        "float64",
        lambda rng: np.repeat(rng.random(ROWS // 50 + 1), 50)[:ROWS],
        "rle",
        CODEC_NONE,
        2.1,
    ),
    "doubles, 8 words": (
        "float64",
        lambda rng: rng.normal(0, 1, 8)[rng.integers(0, 8, ROWS)],
        "plain",
        CODEC_LZ4,
        22.0,
    ),
    "doubles whose low bits are 0": (
        "float64",
        lambda rng: (rng.normal(0, 1, ROWS).view("i8") >> 36 << 36).view("f8"),
        "bitshuffle",
        CODEC_LZ4,
        26.0,
    ),
    "floats, 2 decimals": (
        "float32",
        lambda rng: two_decimals(rng).astype(np.float32),
        "for",
        CODEC_NONE,
        8.9,
    ),
    "floats, normal": (
        "float32",
        lambda rng: rng.normal(0, 1, ROWS).astype(np.float32),
        "plain",
        CODEC_NONE,
        32.3,
    ),
    "decimals of 17 bits": (
        "decimal128(20,2)",
        lambda rng: wide(rng.integers(0, 1 << 17, ROWS)),
        "for",
        CODEC_NONE,
        17.3,
    ),
    "decimals, ascending": (
        "decimal128(20,2)",
        lambda rng: wide(np.cumsum(rng.integers(0, 64, ROWS))),
        "delta",
        CODEC_NONE,
        6.4,
    ),
    "decimals of 100 bits": (
        "decimal128(38,0)",
        lambda rng: np.stack([rng.integers(0, 2**62, ROWS), rng.integers(0, 1 << 36, ROWS)], axis=1),
        "plain",
        CODEC_NONE,
        128.4,
    ),
}


def write(spec: ColumnSpec, cells: ColumnBuffers) -> tuple[RowsFile, Any, list[int]]:
    """The file, the column's reader, and the codecs of its pages."""
    fs = BytesFileSystem()
    write_rows_file(fs, "f", RowsFileSpec([(spec, cells)]))
    file = RowsFile(fs, "f", None)
    reader = file.columns[spec.id]
    codecs = [
        PAGE_FRAME.unpack_from(fs.files["f"], reader.page_offset(number))[4]
        for number in range(reader.page_count)
    ]
    found = file.read(spec.id, 0, cells.length)
    assert same(found.to_arrow(spec.type), cells.to_arrow(spec.type))
    return file, reader, codecs


def bits(reader: Any) -> float:
    return 8 * reader.stored_bytes / reader.rows


def fixed(type_: ColumnType, values: np.ndarray) -> ColumnBuffers:
    raw = np.ascontiguousarray(values).view(np.uint8).reshape(-1)
    return ColumnBuffers(type_.width, len(values), raw, None, None)


@pytest.mark.parametrize("name", NUMBERS)
def test_the_choice_for_numbers(name: str, seed: int) -> None:
    type_name, series, kind, codec, most = NUMBERS[name]
    type_ = ColumnType.parse(type_name)
    _, reader, codecs = write(ColumnSpec(1, type_, False), fixed(type_, series(np.random.default_rng(seed))))
    blocks = reader.layout()["blocks"]
    assert blocks.get(kind, 0) >= 0.95 * sum(blocks.values()), blocks
    assert set(codecs) == {codec}
    assert bits(reader) <= most


# Those whose values do not lean on their neighbours.
ALONE = [name for name, (_, _, kind, codec, _) in NUMBERS.items() if kind in ("for", "plain") and not codec]


@pytest.mark.parametrize("name", ALONE)
def test_a_null_costs_a_bit(name: str, seed: int) -> None:
    type_name, series, _, _, most = NUMBERS[name]
    type_ = ColumnType.parse(type_name)
    rng = np.random.default_rng(seed)
    values = fixed(type_, series(rng)).values
    validity = np.packbits(rng.random(ROWS) < 0.25, bitorder="little")
    _, reader, _ = write(ColumnSpec(1, type_, True), ColumnBuffers(type_.width, ROWS, values, None, validity))
    assert bits(reader) <= 1.3 + 0.26 * most


@pytest.mark.parametrize("name", ["times, regular", "sorted, random gaps", "times, 1 ms jitter"])
def test_leading_key_columns_give_single_cells(name: str, seed: int) -> None:
    """No deltas where a binary search looks at cells."""
    type_name, series, kind, _, _ = NUMBERS[name]
    assert kind == "delta"
    type_ = ColumnType.parse(type_name)
    cells = fixed(type_, series(np.random.default_rng(seed)))
    keys = encode_keys([(type_, cells), (type_, cells)], ROWS)
    columns = [(ColumnSpec(id_, type_, False, "key"), cells) for id_ in (1, 2)]
    fs = BytesFileSystem()
    write_rows_file(fs, "f", RowsFileSpec(columns, key_ids=[1, 2], keys=keys))
    with RowsFile(fs, "f", None) as file:
        first, last = (file.columns[id_].layout()["blocks"] for id_ in (1, 2))
    assert last == {"delta": ROWS // 1024}
    assert "delta" not in first


# Cells, where they lie (by the column's layout), codec, bits a row at most.
STATUSES = ("ok", "warn", "error", "starting", "stopping", "idle", "busy", "lost")
STRINGS: dict[str, tuple[Callable[[np.random.Generator], list[str | None]], int | None, int, float]] = {
    "status of 8 words": (
        lambda rng: [STATUSES[k] for k in rng.integers(0, 8, ROWS)],
        8,
        CODEC_NONE,
        3.3,
    ),
    "1,000 hosts in order": (
        lambda rng: [f"host-{k * 1000 // ROWS:05d}" for k in range(ROWS)],
        1000,
        CODEC_NONE,
        3.2,
    ),
    "a note of 50 words, 10% of rows": (
        lambda rng: [
            f"note {k:02d}" if there else None
            for k, there in zip(rng.integers(0, 50, ROWS), rng.random(ROWS) < 0.1, strict=True)
        ],
        50,
        CODEC_NONE,
        2.2,
    ),
    "lines of text": (
        lambda rng: [
            f"GET /api/v1/users/{k}/orders?page={k % 7} took {k % 977} ms"
            for k in rng.integers(0, 10**6, ROWS)
        ],
        None,
        CODEC_LZ4,
        160.0,
    ),
    "random bytes as text": (
        lambda rng: [row.tobytes().hex() for row in rng.integers(0, 256, (ROWS, 16), np.uint8)],
        None,
        CODEC_NONE,
        257,  # the page index takes 90 bytes of each page
    ),
}


@pytest.mark.parametrize("name", STRINGS)
def test_the_choice_for_strings(name: str, seed: int) -> None:
    made, words, codec, most = STRINGS[name]
    cells = column(made(np.random.default_rng(seed)), "string")
    _, reader, codecs = write(ColumnSpec(1, ColumnType.parse("string"), True), cells)
    assert reader.words == words
    assert set(codecs) == {codec}
    assert bits(reader) <= most
    if words is not None:  # sorted, so that ranges of strings are ranges of codes
        found = [bytes(reader.dictionary().cell(k)) for k in range(words)]
        assert found == sorted(found)


# ---- what is asked for ----

ASKED = [
    ("int64", "plain", "plain"),
    ("int64", "rle", "rle"),
    ("int64", "delta", "delta"),
    ("int64", "bitshuffle", "bitshuffle"),
    ("uint8", "rle", "rle"),
    ("uint16", "delta", "delta"),
    ("date32", "bitshuffle", "bitshuffle"),
    ("float32", "rle", "rle"),
    ("float64", "bitshuffle", "bitshuffle"),
    ("float64", "plain", "plain"),
    ("bool", "rle", "rle"),
    ("decimal128(20,2)", "delta", "delta"),
    ("decimal128(20,2)", "rle", "rle"),
    ("string", "plain", "string"),
    ("string", "prefix", "prefix"),
    ("binary", "dictionary", "for"),
]


@pytest.mark.parametrize("compression", ["auto", "none", "lz4", "zstd"])
@pytest.mark.parametrize(("type_name", "encoding", "kind"), ASKED)
def test_encodings_and_codecs_that_are_asked_for(
    type_name: str, encoding: str, kind: str, compression: str
) -> None:
    type_ = ColumnType.parse(type_name)
    assert encoding in encodings_of(type_) and compression in COMPRESSIONS
    slow = ORDINALS // 40 % 100  # runs of 40
    if type_.width == 0:
        made = [f"row {k:06d}" if encoding == "prefix" else f"word {k * 37 % 90}" for k in ORDINALS.tolist()]
        cells = column(made if type_name == "string" else [cell.encode() for cell in made], type_name)
    elif type_.width == 16:
        cells = fixed(type_, wide(slow))
    else:
        cells = fixed(type_, (slow % 2 if type_name == "bool" else slow).astype(type_.dtype))
    spec = ColumnSpec(1, type_, False, "value", encoding, compression)
    _, reader, codecs = write(spec, cells)
    assert set(reader.layout()["blocks"]) == {kind}
    raw = kind in ("plain", "bitshuffle", "string")
    if compression == "none" or (compression == "auto" and not raw):
        assert set(codecs) == {CODEC_NONE}
    elif raw or kind == "rle":
        assert set(codecs) == {CODEC_ZSTD if compression == "zstd" else CODEC_LZ4}


def test_every_encoding_of_every_type_is_one_that_is_tested() -> None:
    asked = {encoding for _, encoding, _ in ASKED}
    assert asked | {"auto"} == set(ENCODINGS)
    kinds = {ColumnType.parse(type_name).kind for type_name, _, _ in ASKED}
    assert kinds == {0, 1, 2, 3, 4, 5}

"""The tables of docs/format.md are the structs of the code, and small files are these bytes."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kudu_core._ext.base.crc32c import crc32c
from kudu_core.cfile import UNDO, RowsFileSpec, write_delta_file, write_rows_file
from kudu_core.cfile.columns import column_list, specs
from kudu_core.cfile.columns.specs import ColumnSpec
from kudu_core.cfile.pages import codec_dictionary, container, page, section_copies
from kudu_core.cfile.pages import footer as footers
from kudu_core.common.types.types import ColumnType
from tests.support.cases.cfile import FILE_ID, BytesFileSystem, column, encode_keys

FORMAT = Path(__file__).parents[2] / "docs" / "format.md"
GOLDEN = Path(__file__).parent / "golden"

TABLES = [
    ("Header", 0, container.HEADER),
    ("Section frame", 0, container.SECTION_FRAME),
    ("Footer and trailer", 0, footers.FOOTER_HEAD),
    ("Footer and trailer", 1, container.TRAILER),
    ("Column list", 0, column_list.LIST_HEAD),
    ("Column list", 1, column_list.LIST_ENTRY),
    ("Page frame", 0, page.PAGE_FRAME),
    ("Page payload", 0, page.PAYLOAD_HEAD),
    ("Page payload", 1, struct.Struct("<BBBBHHQ")),
    ("Page index", 0, specs.INDEX_HEAD),
    ("Page index", 1, specs.INDEX_ENTRY),
    ("Dictionary", 0, specs.DICTIONARY_HEAD),
    ("Codec dictionary", 0, codec_dictionary.CODEC_DICTIONARY_HEAD),
    ("Copies", 0, section_copies.COPIES_HEAD),
    ("Copies", 1, section_copies.COPY_ENTRY),
    ("Rows files", 0, specs.KEY_INDEX_HEAD),
]


def tables_of(section: str) -> list[list[tuple[int, int, str]]]:
    """The tables of fields under a heading: (offset, width, field) of each row."""
    text = FORMAT.read_text()
    body = re.split(r"^#+ ", text, flags=re.MULTILINE)
    found = [part for part in body if part.startswith(section + "\n")]
    assert len(found) == 1, f"docs/format.md has {len(found)} sections named {section}"
    tables: list[list[tuple[int, int, str]]] = []
    for part in re.split(r"^\| offset \| width .*\n", found[0], flags=re.MULTILINE)[1:]:
        rows = re.findall(r"^\| (\d+) \| (\d+) \| `(\w+)` \|", part.split("\n\n")[0], flags=re.MULTILINE)
        tables.append([(int(offset), int(width), name) for offset, width, name in rows])
    return tables


def widths(layout: struct.Struct) -> list[int]:
    fields = re.findall(r"(\d*)([a-zA-Z])", layout.format)
    result = []
    for count, code in fields:
        if code == "s":
            result.append(int(count))
        else:
            result += [struct.calcsize("<" + code)] * int(count or 1)
    return result


@pytest.mark.parametrize(("section", "number", "layout"), TABLES)
def test_tables_are_the_structs(section: str, number: int, layout: struct.Struct) -> None:
    table = tables_of(section)[number]
    assert [width for _, width, _ in table] == widths(layout)
    ends = [offset + width for offset, width, _ in table]
    assert [offset for offset, _, _ in table] == [0, *ends[:-1]]
    assert ends[-1] == layout.size
    assert len({name for _, _, name in table}) == len(table)


class ByteMap:
    """Explains a file byte by byte: every byte must be named once, in order."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self.lines: list[str] = []

    def take(self, width: int, what: str) -> bytes:
        piece = self.data[self.at : self.at + width]
        assert len(piece) == width
        for start in range(0, width, 16):
            row = piece[start : start + 16]
            at = self.at + start
            name = what if start == 0 else ""
            self.lines.append(f"{at:04x}-{at + len(row):04x}  {row.hex(' '):<47}  {name}".rstrip())
        self.at += width
        return piece

    def struct(self, layout: struct.Struct, fields: list[str]) -> dict[str, Any]:
        values = layout.unpack_from(self.data, self.at)
        for name, width, value in zip(fields, widths(layout), values, strict=True):
            shown = value if isinstance(value, int) and name != "crc" and "_crc" not in name else None
            self.take(width, name if shown is None else f"{name} = {shown}")
        return dict(zip(fields, values, strict=True))


def names(section: str, number: int = 0) -> list[str]:
    return [name for _, _, name in tables_of(section)[number]]


def describe(data: bytes) -> str:
    """The whole file in the words of docs/format.md; asserts every checksum on the way."""
    trailer = container.TRAILER.unpack_from(data, len(data) - container.TRAILER.size)
    footer_at = trailer[0]
    footer, rest = footers.split_footer(memoryview(data)[footer_at + 16 : footer_at + trailer[1]])
    pieces: list[tuple[int, int, str]] = [(footer_at, trailer[1], "footer")]
    for entry in column_list.ColumnList(rest):
        label = f"{entry.role} {entry.id} {entry.type}"
        if entry.dictionary:
            pieces.append((*entry.dictionary, f"dictionary of {label}"))
        pieces.append((*entry.pages, f"page of {label}"))
        pieces.append((*entry.index, f"page index of {label}"))
    parts = [part for part in ("key_index", "bloom") if footer.get(part)]
    pieces += [(*footer[part], part.replace("_", " ")) for part in parts]
    out = ByteMap(data)
    out.lines.append("# header")
    out.struct(container.HEADER, names("Header"))
    assert crc32c(data[:36], 0) == container.HEADER.unpack_from(data)[-1]
    for offset, length, label in sorted(pieces):
        assert out.at == offset
        out.lines.append(f"\n# {label}")
        is_page = label.startswith("page of")
        layout = page.PAGE_FRAME if is_page else container.SECTION_FRAME
        frame = out.struct(layout, names("Page frame" if is_page else "Section frame"))
        kind = 1 if is_page else frame["kind"]
        place = crc32c(struct.pack("<QH", offset, kind), crc32c(FILE_ID, 0))
        assert crc32c(data[offset + 4 : offset + length], place) == frame["crc"]
        if is_page:
            head = out.struct(page.PAYLOAD_HEAD, names("Page payload"))
            if head["flags"] & 1:
                out.take((head["rows"] + 63) // 64 * 8, "null bitmap")
            starts = struct.unpack_from(f"<{head['blocks'] + 1}I", data, out.at)
            out.take(4 * (head["blocks"] + 1), f"directory = {starts}")
            pad = offset + 16 + starts[0] - out.at
            if pad:
                out.take(pad, "padding")
            out.struct(struct.Struct("<BBBBHHQ"), names("Page payload", 1))
        elif label.startswith("page index"):
            out.struct(specs.INDEX_HEAD, names("Page index"))
            out.struct(specs.INDEX_ENTRY, names("Page index", 1))
        elif label.startswith("dictionary"):
            out.struct(specs.DICTIONARY_HEAD, names("Dictionary"))
        elif label == "key index":
            out.struct(specs.KEY_INDEX_HEAD, names("Rows files"))
        if label == "footer":
            json_bytes = out.struct(footers.FOOTER_HEAD, names("Footer and trailer"))["json_bytes"]
            out.lines.append(json.dumps(footer))
            out.at += json_bytes
            head = out.struct(column_list.LIST_HEAD, names("Column list"))
            for _ in range(head["columns"]):
                out.struct(column_list.LIST_ENTRY, names("Column list", 1))
            out.take(head["rest"], "rest")
            assert out.at == offset + length
        elif out.at < offset + length:
            out.take(offset + length - out.at, "data")
    out.lines.append("\n# trailer")
    out.struct(container.TRAILER, names("Footer and trailer", 1))
    assert out.at == len(data)
    return "\n".join(out.lines) + "\n"


def rows_example() -> bytes:
    host, ts, value, status = (
        column(["a", "a", "b"], "string"),
        column([1000, 2000, 1000], "int64"),
        column([1.25, None, -0.5], "float64"),
        column(["ok", "ok", "warn"], "string"),
    )
    types = [ColumnType.parse(name) for name in ("string", "int64", "float64", "string")]
    fs = BytesFileSystem()
    spec = RowsFileSpec(
        [
            (ColumnSpec(0, types[0], False, "key", encoding="dictionary"), host),
            (ColumnSpec(1, types[1], False, "key"), ts),
            (ColumnSpec(2, types[2], True), value),
            (ColumnSpec(3, types[3], True, encoding="plain"), status),
        ],
        key_ids=[0, 1],
        keys=encode_keys([(types[0], host), (types[1], ts)], 3),
        hashes=np.array([1 << 40, 2 << 40, 3 << 40], np.uint64),
        insert_times=np.array([77, 77, 78], np.uint64),
        file_id=FILE_ID,
    )
    write_rows_file(fs, "a", spec)
    return bytes(fs.files["a"])


def delta_example() -> bytes:
    fs = BytesFileSystem()
    write_delta_file(
        fs,
        "d",
        UNDO,
        np.array([2, 2, 5], np.uint32),
        np.array([900, 800, 850], np.uint64),
        np.array([1, 2, 3], np.uint8),
        {
            4: (
                ColumnSpec(4, ColumnType.parse("int32"), True),
                np.array([0, 2], np.uint32),
                column([7, None], "int32"),
            )
        },
        file_id=FILE_ID,
    )
    return bytes(fs.files["d"])


@pytest.mark.parametrize(("name", "make"), [("rows_file", rows_example), ("delta_file", delta_example)])
def test_small_files_are_these_bytes(name: str, make: Callable[[], bytes], rewrite: bool) -> None:
    golden = GOLDEN / f"{name}.txt"
    found = describe(make())
    if rewrite:
        golden.write_text(found)
    assert found == golden.read_text()

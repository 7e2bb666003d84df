"""Pages of strings that one compiled call writes: byte for byte those that the general path writes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kudu_core._ext.codec.lz4 import Lz4Packer
from kudu_core._ext.files.string_pages import write_string_pages
from kudu_core.cfile.columns import text_pages, writer
from kudu_core.cfile.columns.column_list import ColumnEntry
from kudu_core.cfile.columns.specs import ColumnSpec
from kudu_core.cfile.pages.codec_dictionary import CODEC_LZ4_DICTIONARY, Lz4DictionaryCodec
from kudu_core.cfile.pages.container_writer import FileWriter
from kudu_core.cfile.pages.page import PAGE_BITS
from kudu_core.common.rows.rowblock import ColumnBuffers
from kudu_core.common.types.types import ColumnType
from tests.support.cases.cfile import FILE_ID, BytesFileSystem, column
from tests.support.cases.texts import text

TEXT = " ".join(text(5, 300, 100)).encode()


class _Slow:
    """The codec as the general path uses it."""

    number = CODEC_LZ4_DICTIONARY

    def __init__(self, codec: Lz4DictionaryCodec) -> None:
        self.codec, self.data = codec, codec.data

    def compress(self, payloads: list[bytes]) -> list[bytes]:
        return self.codec.compress(payloads)


def written(
    column: ColumnBuffers, page_bits: int, codec: Any, before: int, monkeypatch: pytest.MonkeyPatch
) -> tuple[bytes, ColumnEntry]:
    """A file of one column, ``before`` bytes behind its header, and what the footer says of the column."""
    monkeypatch.setattr(writer, "codec_with_dictionary", lambda *_: codec)
    monkeypatch.setattr(writer, "choose_page_bits", lambda *_, **__: page_bits)
    fs = BytesFileSystem()
    file = FileWriter(fs, "f", 1, file_id=FILE_ID)
    file.append(bytes(before))
    spec = ColumnSpec(3, ColumnType.parse("binary"), True, encoding="plain")
    entry = writer.write_column(file, spec, column)
    file.finish({}, b"", sync=False)
    return bytes(fs.files["f"]), entry


def check(
    column: ColumnBuffers, page_bits: int, monkeypatch: pytest.MonkeyPatch, call_bytes: int = 1 << 20
) -> bytes:
    codec = Lz4DictionaryCodec(TEXT[-20_000:])
    monkeypatch.setattr(text_pages, "CALL_BYTES", call_bytes)
    wanted = written(column, page_bits, _Slow(codec), 0, monkeypatch)
    found = written(column, page_bits, codec, 0, monkeypatch)
    assert found == wanted
    return found[0]


def cells(rng: np.random.Generator, rows: int, kind: str) -> list[bytes | None]:
    if kind == "none":
        return [None] * rows
    if kind == "noise":
        return [rng.bytes(int(n)) for n in rng.integers(0, 300, rows)]
    if kind == "bounds":  # what lies at the edges of bounds of 32 bytes
        ends = [b"", b"\xff", b"a", b"b\xff", b"\xff" * 40]
        heads = [b"\xff" * 30, b"\xff" * 32, b"a" * 31, b"a" * 32, b"", b"a" * 30 + b"\xff" * 2]
        return [heads[int(h)] + ends[int(e)] for h, e in rng.integers(0, 5, (rows, 2))]
    starts, sizes = rng.integers(0, len(TEXT) - 500, rows), rng.integers(0, 400, rows)
    found = [TEXT[int(s) : int(s + n)] for s, n in zip(starts, sizes, strict=True)]
    if kind == "some":
        return [None if rng.random() < 0.3 else cell for cell in found]
    if kind == "few nulls":
        return [None if rng.random() < 0.01 else cell for cell in found]
    return [*found]


KINDS = ("text", "some", "few nulls", "noise", "bounds", "none")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("page_bits", [0, 1, 3, 5, 9, 10, 11, PAGE_BITS])
def test_bytes_are_those_of_the_general_path(
    kind: str, page_bits: int, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(seed)
    for rows in (1, 2, int(rng.integers(3, 40)), 33 * (1 << min(page_bits, 6)) + 5):
        whole = column([None, b"x", *cells(rng, rows, kind)], "binary")
        check(whole, page_bits, monkeypatch, int(rng.integers(1, 20_000)))
        assert whole.offsets is not None
        apart = ColumnBuffers(0, rows, whole.values, whole.offsets[2:], None)
        if kind not in ("some", "few nulls", "none"):
            check(apart, page_bits, monkeypatch)  # offsets that do not begin at 0


@given(data=st.data())
def test_any_cells(data: st.DataObject) -> None:
    samples = st.sampled_from([TEXT[:200], TEXT[90:900], b"\xff" * 33])
    some = st.one_of(st.none(), st.binary(max_size=60), samples)
    given_cells = data.draw(st.lists(some, min_size=1, max_size=40))
    page_bits, call_bytes = data.draw(st.integers(0, 6)), data.draw(st.integers(1, 3000))
    with pytest.MonkeyPatch.context() as monkeypatch:
        check(column(given_cells, "binary"), page_bits, monkeypatch, call_bytes)


def test_where_a_page_lies_is_in_its_checksum(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = column([TEXT[:300], TEXT[500:900]], "binary")
    codec = Lz4DictionaryCodec(TEXT[-20_000:])
    for before in (0, 8, 4096):
        slow = written(whole, 0, _Slow(codec), before, monkeypatch)
        assert written(whole, 0, codec, before, monkeypatch) == slow


def test_both_ways_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is compared here is not the same thing twice; and pages come packed and as they are."""
    calls: list[str] = []
    fast, slow = writer.write_text_pages, writer._packed_pages
    monkeypatch.setattr(writer, "write_text_pages", lambda *a: calls.append("fast") or fast(*a))
    monkeypatch.setattr(writer, "_packed_pages", lambda *a: calls.append("slow") or slow(*a))
    rng = np.random.default_rng(1)
    values = [TEXT[:400], rng.bytes(400), b"short", TEXT[1000:1400]]
    check(column(values, "binary"), 0, monkeypatch)
    assert calls == ["slow", "fast"]
    pages, _, _ = write(column(values, "binary"))
    found, at = [], 0
    while at < len(pages):
        found.append(pages[at + 13])
        at += 16 + int.from_bytes(pages[at + 4 : at + 8], "little")
    assert found == [4, 0, 0, 4]


def write(cells: ColumnBuffers, **other: Any) -> Any:
    said = {
        "offsets": cells.offsets,
        "data": cells.values,
        "validity": cells.validity,
        "first_row": 0,
        "page_bits": 0,
        "packer": Lz4Packer(TEXT[-20_000:]),
        "offset": 40,
        "id_crc": 5,
        "kind": 1,
        "encoding": 0,
        "codec": 4,
        "tried": (64, 1 << 28, 0.9),
    }
    return write_string_pages(**(said | other))


def test_what_is_no_column_is_refused() -> None:
    whole = column([b"abc", None, b"de"], "binary")
    assert len(write(whole)[0])
    for wrong in (
        {"offsets": np.array([0], np.int32)},
        {"offsets": np.array([0, 2, 1, 3], np.int32)},
        {"offsets": np.array([0, 2, 3, 6], np.int32)},
        {"offsets": np.array([-1, 2, 3, 5], np.int32)},
        {"page_bits": -1},
        {"page_bits": 15},
        {"first_row": -1},
        {"first_row": 6},
        {"offset": -1},
        {"validity": np.zeros(0, np.uint8)},
    ):
        with pytest.raises(ValueError, match=r"rows|bits|offsets"):
            write(whole, **wrong)
    for wrong in ({"packer": None}, {"tried": None}, {"offsets": None}):
        with pytest.raises(TypeError):
            write(whole, **wrong)

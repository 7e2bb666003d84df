"""The bytes of a log object: what is written is read, and nothing else is believed (protocol B2)."""

from __future__ import annotations

import random
import struct

import pytest

from kudu_core._ext.base.crc32c import crc32c
from kudu_core.errors import Corruption, NotSupported
from kudu_core.wal import RECORD_KIND_EDIT, RECORD_KIND_INGEST, RECORD_KIND_WRITE
from kudu_core.wal.format import PADDING, padded, payload_crc, record_header
from kudu_core.wal.objects.log_object import (
    OBJECT_HEADER,
    LogEnd,
    ObjectHeader,
    log_name,
    log_put_id,
    parse_log_name,
    records_of,
)

UUID = bytes(range(16))
HEADER = ObjectHeader(UUID, 7, 42, LogEnd(b"p" * 16, 1000, 5), b"i" * 16)


def made(payloads: list[bytes], header: ObjectHeader = HEADER, first_lsn: int | None = None) -> bytes:
    data = header.pack()
    lsn = header.prev.lsn + 1 if first_lsn is None else first_lsn
    for n, payload in enumerate(payloads):
        padding = PADDING[padded(40 + len(payload)) - 40 - len(payload)]
        crc = payload_crc((payload, padding))
        kind = (RECORD_KIND_WRITE, RECORD_KIND_EDIT, RECORD_KIND_INGEST)[n % 3]
        fields = (40 + len(payload), lsn + n, header.prev.ts + 10 * (n + 1), 3, 1, kind)
        data += record_header(header.salt(), crc, *fields) + payload + padding
    return data


def test_what_is_written_is_read() -> None:
    rng = random.Random(1)
    payloads = [rng.randbytes(rng.choice((0, 1, 8, 63, 5000))) for _ in range(20)]
    data = made(payloads)
    header = ObjectHeader.unpack(data, "x", UUID, 42)
    assert header == HEADER and log_put_id(data) == b"i" * 16
    found = [record for _, record in records_of(header, data, "x")]
    assert [bytes(record.payload) for record in found] == payloads
    assert [record.lsn for record in found] == list(range(6, 26))


def test_a_fence_has_no_records_and_96_bytes() -> None:
    data = HEADER.pack()
    assert len(data) == OBJECT_HEADER.size == 96
    assert list(records_of(ObjectHeader.unpack(data, "x", UUID, 42), data, "x")) == []


def test_any_bit_that_is_turned_over_is_found() -> None:
    data = made([b"abc", b"defghijk", b""])
    for at in range(len(data)):
        for bit in (0, 7):
            turned = bytearray(data)
            turned[at] ^= 1 << bit
            with pytest.raises(Corruption):
                header = ObjectHeader.unpack(bytes(turned), "x", UUID, 42)
                list(records_of(header, bytes(turned), "x"))


def test_any_end_that_is_cut_off_is_found() -> None:
    data = made([b"abc", b"defghijk"])
    ends = {96, 96 + 48}  # the ends of the header and of the first record: what lacks the rest looks whole
    for size in range(len(data)):
        if size in ends:
            continue
        with pytest.raises(Corruption):
            header = ObjectHeader.unpack(data[:size], "x", UUID, 42)
            list(records_of(header, data[:size], "x"))


def test_what_follows_the_last_record_is_no_part_of_it() -> None:
    data = made([b"abc"]) + bytes(8)
    with pytest.raises(Corruption, match="ends inside a record"):
        list(records_of(ObjectHeader.unpack(data, "x", UUID, 42), data, "x"))


@pytest.mark.parametrize("wrong", ["lsn", "number", "table", "order", "version"])
def test_a_sound_object_that_is_not_the_next_is_refused(wrong: str) -> None:
    if wrong == "lsn":
        data = made([b"a"], first_lsn=8)
        with pytest.raises(Corruption, match="follows record 5"):
            list(records_of(ObjectHeader.unpack(data, "x", UUID, 42), data, "x"))
    elif wrong == "number":
        with pytest.raises(Corruption, match="log object 42 under the name of 43"):
            ObjectHeader.unpack(made([]), "x", UUID, 43)
    elif wrong == "table":
        with pytest.raises(Corruption, match="another table"):
            ObjectHeader.unpack(made([]), "x", bytes(16), 42)
    elif wrong == "order":
        data = made([b"a", b"b"])
        swapped = data[:96] + data[144:] + data[96:144]
        with pytest.raises(Corruption):
            list(records_of(ObjectHeader.unpack(swapped, "x", UUID, 42), swapped, "x"))
    else:
        raw = bytearray(made([]))
        struct.pack_into("<II", raw, 8, 3, 0)
        struct.pack_into("<I", raw, 12, crc32c(bytes(raw)))
        with pytest.raises(NotSupported, match="version 3"):
            ObjectHeader.unpack(bytes(raw), "x", UUID, 42)


def test_names() -> None:
    assert log_name(7) == "log/00000000000000000007" and parse_log_name(log_name(7)) == 7
    for name in ("log/7", "log/0000000000000000000x", "wal/00000000000000000007", "log"):
        assert parse_log_name(name) is None
    assert log_put_id(b"short") is None and log_put_id(bytes(200)) is None

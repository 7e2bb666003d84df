"""MANIFEST and TABLE."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from kudu_core.cli.inside.file_pieces import FilePiece
from kudu_core.common.format.envelope import HEADER as ENVELOPE_HEADER
from kudu_core.errors import Corruption, NotSupported
from kudu_core.table.stored.table_state import parse_state
from kudu_core.tablet.store.manifest_format import (
    FRAME,
    HEADER,
    BytesSource,
    Window,
    later_frames,
    payload_of,
    read_header,
)


def manifest_spans(data: bytes, path: str) -> Iterator[FilePiece]:
    """The header, and each frame of an edit with its lines."""
    try:
        header = read_header(data, path)
    except Corruption as damage:
        yield FilePiece(0, min(HEADER.size, len(data)), "header", {"problem": damage.reason}, False)
        return
    yield FilePiece(
        0, HEADER.size, "header", {"tablet": header.tablet_id, "table_uuid": header.table_uuid.hex()}, True
    )
    window = Window(BytesSource(data))
    for frame in later_frames(window, header, HEADER.size):
        payload = payload_of(window, header, frame)
        fields: dict[str, Any] = {
            "number": frame.number, "epoch": frame.epoch, "synced": frame.synced, "part": frame.part,
            "parts": frame.parts,
        }  # fmt: skip
        if payload is not None and frame.parts == 1:
            fields["lines"] = [json.loads(line) for line in payload.split(b"\n") if line.strip()]
        yield FilePiece(frame.offset, FRAME.size + frame.length, "edit", fields, payload is not None)


def table_spans(data: bytes, path: str) -> Iterator[FilePiece]:
    """The header, and the JSON as it stands."""
    _, version, flags, length, crc, _ = ENVELOPE_HEADER.unpack_from(data)
    problem = None
    try:
        parse_state(data, path)
    except (Corruption, NotSupported) as error:
        problem = str(error)
    fields: dict[str, Any] = {"version": version, "flags": flags, "length": length, "crc": f"{crc:08x}"}
    if problem is not None:
        fields["problem"] = problem
    yield FilePiece(0, ENVELOPE_HEADER.size, "header", fields, problem is None)
    body = data[ENVELOPE_HEADER.size :]
    try:
        told = json.loads(body)
    except ValueError:
        told = {"problem": "this is no JSON"}
    fields = told if isinstance(told, dict) else {"value": told}
    yield FilePiece(ENVELOPE_HEADER.size, len(body), "json", fields)

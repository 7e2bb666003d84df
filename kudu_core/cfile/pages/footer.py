"""The payload of a footer: JSON, and after it bytes that the container knows nothing of.

Layout: docs/format.md, "Footer and trailer".
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any

# bytes of the JSON that follows; the rest of the footer comes after it
FOOTER_HEAD = struct.Struct("<I")
assert FOOTER_HEAD.size == 4


def join_footer(footer: Mapping[str, Any], rest: bytes) -> bytes:
    told = json.dumps(footer, separators=(",", ":"), allow_nan=False).encode()
    return b"".join((FOOTER_HEAD.pack(len(told)), told, rest))


def split_footer(payload: memoryview) -> tuple[dict[str, Any], memoryview]:
    """The JSON of a footer and the bytes after it; ``ValueError`` or ``RecursionError`` where it is none."""
    if len(payload) < FOOTER_HEAD.size:
        raise ValueError(f"{len(payload)} bytes")
    end = FOOTER_HEAD.size + FOOTER_HEAD.unpack_from(payload)[0]
    if end > len(payload):
        raise ValueError(f"{end} bytes of JSON in {len(payload)}")
    footer = json.loads(bytes(payload[FOOTER_HEAD.size : end]))
    if not isinstance(footer, dict):
        raise ValueError("not a JSON object")
    return footer, payload[end:]


__all__ = ["FOOTER_HEAD", "join_footer", "split_footer"]

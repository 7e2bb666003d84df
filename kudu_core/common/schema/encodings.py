"""How a column may be encoded and compressed, which its user may ask for."""

from __future__ import annotations

from kudu_core.common.types.types import (
    TYPE_BINARY,
    TYPE_BOOL,
    TYPE_DECIMAL,
    TYPE_FLOAT,
    TYPE_SIGNED,
    TYPE_UNSIGNED,
    ColumnType,
)

ENCODINGS = ("auto", "plain", "rle", "delta", "bitshuffle", "dictionary", "prefix")
_ENCODINGS_OF = {
    TYPE_UNSIGNED: ("auto", "plain", "rle", "delta", "bitshuffle"),
    TYPE_SIGNED: ("auto", "plain", "rle", "delta", "bitshuffle"),
    TYPE_FLOAT: ("auto", "plain", "rle", "bitshuffle"),
    TYPE_DECIMAL: ("auto", "plain", "rle", "delta"),
    TYPE_BOOL: ("auto", "plain", "rle"),
    TYPE_BINARY: ("auto", "plain", "dictionary", "prefix"),
}
COMPRESSIONS = ("auto", "none", "lz4", "zstd")


def encodings_of(type_: ColumnType) -> tuple[str, ...]:
    """What ``Column.encoding`` may be for a type."""
    found = _ENCODINGS_OF[type_.kind]
    return found if type_.width in (4, 8) else tuple(one for one in found if one != "bitshuffle")


__all__ = ["COMPRESSIONS", "ENCODINGS", "encodings_of"]

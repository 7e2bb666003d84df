"""Payloads of pages: the one import for all that is done with them.

Cells of fixed width: ``encode`` and ``fixed``; strings: ``strings_encode`` and ``strings``; what is
made of a whole column of them: ``dictionary`` and ``zones``.  These modules know no frames, codecs,
CRCs or files.
"""
from libc.stdint cimport int64_t, uint8_t

from kudu_core._ext.base.status cimport raise_status
from kudu_core._ext.pages.head cimport BLOCK_HEAD_BYTES, Block, Page, block_open, page_open

from kudu_core._ext.pages.dictionary import dictionary_build, dictionary_expand
from kudu_core._ext.pages.encode import FORMS, encode_fixed
from kudu_core._ext.pages.fixed import cells_fixed, decode_fixed, decode_pages
from kudu_core._ext.pages.strings import cells_binary, decode_binary
from kudu_core._ext.pages.strings_encode import encode_binary
from kudu_core._ext.pages.zones import zone_binary, zone_fixed

__all__ = [
    "FORMS",
    "cells_binary",
    "cells_fixed",
    "decode_binary",
    "decode_fixed",
    "decode_pages",
    "describe",
    "dictionary_build",
    "dictionary_expand",
    "encode_binary",
    "encode_fixed",
    "zone_binary",
    "zone_fixed",
]


def describe(const uint8_t[::1] payload not None):
    """``(kind, bits, scale, count, exceptions, bytes)`` of each mini-block, heads included.

    Reads heads only.  Raises ``PageError`` where they break the format.
    """
    cdef:
        Page page
        Block block
        int64_t at = 0, index
        int status
        const uint8_t* data = NULL
    if payload.shape[0]:
        data = &payload[0]
    status = page_open(&page, data, payload.shape[0], -1, 0, &at)
    if status < 0:
        return raise_status(status, at)
    result = []
    for index in range(page.blocks):
        status = block_open(&page, index, &block, &at)
        if status < 0:
            return raise_status(status, at)
        result.append((
            block.kind, block.bits, block.scale, block.count, block.exceptions,
            block.size + BLOCK_HEAD_BYTES,
        ))
    return result

# Pages of a stored column, read from its file.
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t

from kudu_core._ext.codec.lz4 cimport Unpacking
from kudu_core._ext.files.cached_pages cimport Reader
from kudu_core._ext.pages.cell cimport Strings
from kudu_core._ext.pages.head cimport Page

cdef enum:
    FRAME = 16                  # crc, payload bytes, raw bytes, encoding, codec, flags
    BRIEF_BYTES = 16 << 10      # the most of a page, stored or not, of which single cells are read


cdef struct BriefPage:
    # A page of strings that is read for some of its cells, and unpacked as far as these reach.
    Page page
    Strings part                # its only mini-block
    Unpacking rest
    const uint8_t* payload
    int64_t limit               # of the payload
    bint packed
    uint8_t raw[BRIEF_BYTES]
    uint8_t stored[FRAME + BRIEF_BYTES]


cdef int brief_cell(BriefPage* brief, int64_t row, const uint8_t** start, int64_t* size) noexcept nogil


cdef class PageFetcher:
    cdef:
        object _file
        object _text
        Reader _reader
        list _decoders
        const int64_t[::1] _offset, _size, _null
        uint32_t _id_crc, _most_bytes
        uint16_t _kind
        int64_t _rows
        int _page_bits, _width, _encoding
    cdef bytes brief(self, int64_t number, BriefPage* out)
    cdef bytes open_brief(self, int64_t number, const uint8_t* data, BriefPage* out)
    cdef bint _is_sound(
        self, const uint8_t* frame, const uint8_t* stored, int64_t size, int64_t number
    ) noexcept
    cdef object _opened(self, const uint8_t* frame, bytes stored, int64_t size, int64_t number)
    cdef object _unpacked(self, int codec, bytes stored, uint32_t raw)
    cdef bytes _text_of_column(self)
    cdef bint _fits(self, const uint8_t* payload, int64_t size, int64_t number) noexcept

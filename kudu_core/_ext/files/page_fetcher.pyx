"""Pages of one stored column, from the file to checked payloads in one call each.

``PageFetcher`` reads a page at its offset with the file's descriptor, checks its CRC and its frame, and has
it decompressed.  What a page must say is what ``cfile.pages.page.open_page`` asks, in the same order; where
one does not, or anything else is unusual, the answer is None and the general path reads the page again: its
answer or error stands.  So errors are made in one place, and a fetch needs no words for them.
"""
cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from kudu_core._ext.base.bitmap cimport kc_bit
from kudu_core._ext.base.crc32c cimport crc32c_of
from kudu_core._ext.codec.lz4 cimport lz4_begin, lz4_unpack, lz4_unpack_to
from kudu_core._ext.files.descriptors cimport Descriptor
from kudu_core._ext.files.cached_pages cimport Reader
from kudu_core._ext.pages.cell cimport plain_cell, strings_open
from kudu_core._ext.pages.head cimport (
    BLOCK_BITS,
    BLOCK_HEAD_BYTES,
    CLASS_BINARY,
    CLASS_FIXED,
    STRING_PLAIN,
    Page,
    page_head_bytes,
    page_open,
    page_values,
)

cdef enum:
    HEAD = 8                    # rows, class, width, flags, blocks
    NULLS = 1                   # the flag of a payload that some of its rows are null
    LZ4 = 1                     # codecs that are unpacked here
    LZ4_WITH_TEXT = 4
    LONG = 64 << 10             # of bytes whose CRC is computed while others may run


cdef bint _reach(BriefPage* brief, int64_t wanted) noexcept nogil:
    """Unpack as far as that; whether so much is there."""
    if wanted > brief.limit:
        return False
    if not brief.packed or brief.rest.out - brief.rest.first >= wanted:
        return True
    return lz4_unpack_to(&brief.rest, wanted) >= 0 and brief.rest.out - brief.rest.first >= wanted


cdef int brief_cell(BriefPage* brief, int64_t row, const uint8_t** start, int64_t* size) noexcept nogil:
    """Where the cell of a row of the page lies: 0, 1 where it is null, or -1: the general path must say."""
    cdef:
        int64_t i = row, at = 0
        const Page* page = &brief.page
    if row < 0 or row >= page.rows:
        return -1
    if page.bits != NULL:
        if not kc_bit(page.bits, row):
            return 1
        i = page_values(page, 0, row)
    if plain_cell(&brief.part, i, start, size, &at) < 0:
        return -1
    return 0 if _reach(brief, start[0] + size[0] - brief.payload) else -1


cdef inline uint32_t _word(const uint8_t* at) noexcept nogil:
    cdef uint32_t found
    memcpy(&found, at, 4)
    return found


@cython.final
@cython.auto_pickle(False)
cdef class PageFetcher:
    """Fetches the pages of one stored column of an open file.

    Parameters
    ----------
    file : has ``descriptor``: a ``Descriptor``, None once it is closed
    id_crc : int
        CRC-32C of the file's id; a page's begins with that, its offset, and ``kind``, of sections.
    offsets, sizes, nulls : (pages,) int64
        Where each page lies, its bytes with the frame, and how many of its rows are null.
    rows, page_bits, width, encoding : int
        Of the column; a page has ``1 << page_bits`` rows, width 0: strings.
    decoders : [callable or None]
        By codec: ``decoder(stored, decompressed_size=n, asbytes=True)``; codec 0 stores as it is, and LZ4 is
        unpacked here.
    text : has ``place``, in the cache, and ``text()``; or None
        Of LZ4: what comes before each page that is packed with it.
    reader : Reader or None
        By which the text is found in the cache.
    most_bytes : int
        No page decompresses to more.
    """

    def __init__(
        self, file, uint32_t id_crc, uint16_t kind, const int64_t[::1] offsets not None,
        const int64_t[::1] sizes not None, const int64_t[::1] nulls not None, int64_t rows, int page_bits,
        int width, int encoding, list decoders not None, uint32_t most_bytes, text=None,
        Reader reader=None,
    ):
        cdef int64_t pages = offsets.shape[0]
        if sizes.shape[0] != pages or nulls.shape[0] != pages or not 0 <= page_bits <= 14:
            raise ValueError(f"{pages} offsets, {sizes.shape[0]} sizes, {nulls.shape[0]} counts of nulls")
        if rows < 0 or pages != (rows + (1 << page_bits) - 1) >> page_bits:
            raise ValueError(f"{pages} pages of 1 << {page_bits} of {rows} rows")
        self._file, self._decoders = file, list(decoders)
        self._text, self._reader = text, reader
        self._offset, self._size, self._null = offsets, sizes, nulls
        self._id_crc, self._kind, self._most_bytes = id_crc, kind, most_bytes
        self._rows, self._page_bits, self._width, self._encoding = rows, page_bits, width, encoding

    def fetch(self, int64_t number):
        """The checked payload of a page, decompressed; None: the general path must say.

        Raises IndexError for a page that is not there, OSError where the system cannot read.
        """
        cdef:
            int64_t size
            uint8_t frame[FRAME]
            bytes stored
        if number < 0 or number >= self._offset.shape[0]:
            raise IndexError(f"no page {number} of {self._offset.shape[0]}")
        descriptor = self._file.descriptor
        if descriptor is None:
            return None
        size = self._size[number] - FRAME
        if size < 0:
            return None
        # Nobody else knows these bytes yet, and ``descriptor`` stays open as long as this call has it.
        stored = PyBytes_FromStringAndSize(NULL, size)
        if (<Descriptor?>descriptor).read(
            <char*>frame, FRAME, PyBytes_AS_STRING(stored), size, self._offset[number]
        ) != size + FRAME:
            return None
        return self._opened(frame, stored, size, number)

    def ask(self, int64_t number, bint if_cold):
        """Have the system begin to read a page that will be fetched; whether it was asked.

        ``if_cold``: only where the fetch would wait for the disk.  Raises IndexError as ``fetch``.
        """
        if number < 0 or number >= self._offset.shape[0]:
            raise IndexError(f"no page {number} of {self._offset.shape[0]}")
        descriptor = self._file.descriptor
        if descriptor is None or if_cold and not (<Descriptor?>descriptor).waits(self._offset[number]):
            return False
        (<Descriptor?>descriptor).ask(self._offset[number], self._size[number])
        return True

    def opened(self, int64_t number, bytes data not None):
        """The same of a page that was read with others: ``data`` is all of it."""
        cdef Py_ssize_t size = len(data) - FRAME
        if number < 0 or number >= self._offset.shape[0]:
            raise IndexError(f"no page {number} of {self._offset.shape[0]}")
        if size < 0 or size + FRAME != self._size[number]:
            return None
        return self._opened(<const uint8_t*>PyBytes_AS_STRING(data), data[FRAME:], size, number)

    cdef object _opened(self, const uint8_t* frame, bytes stored, int64_t size, int64_t number):
        cdef:
            uint32_t raw = _word(frame + 8)
            int codec = frame[13]
        if not self._is_sound(frame, <const uint8_t*>PyBytes_AS_STRING(stored), size, number):
            return None
        payload = stored
        if codec:
            if raw > self._most_bytes:
                return None
            try:
                payload = self._unpacked(codec, stored, raw)
            except (OSError, ValueError):
                return None
        if type(payload) is not bytes or len(payload) != raw:
            return None
        return payload if self._fits(<const uint8_t*>PyBytes_AS_STRING(payload), raw, number) else None

    cdef bint _is_sound(
        self, const uint8_t* frame, const uint8_t* stored, int64_t size, int64_t number
    ) noexcept:
        """Whether the page matches its CRC, and its frame says what the column says."""
        cdef:
            uint8_t place[10]
            uint64_t offset = <uint64_t>self._offset[number]
            uint32_t crc
        memcpy(place, &offset, 8)
        memcpy(place + 8, &self._kind, 2)
        if size < LONG:
            crc = crc32c_of(crc32c_of(self._id_crc, place, 10), frame + 4, FRAME - 4)
            crc = crc32c_of(crc, stored, <size_t>size)
        else:
            with nogil:
                crc = crc32c_of(crc32c_of(self._id_crc, place, 10), frame + 4, FRAME - 4)
                crc = crc32c_of(crc, stored, <size_t>size)
        if crc != _word(frame) or _word(frame + 4) != size:
            return False
        return frame[12] == self._encoding and not frame[14] and not frame[15]

    # ---- single cells ----

    cdef bytes brief(self, int64_t number, BriefPage* out):
        """Read a page of strings for some of its cells (``brief_cell``); None: the general path must say.

        What is returned is to be kept as long as ``out`` is used.  Raises as ``fetch``.
        """
        cdef int64_t size
        if number < 0 or number >= self._offset.shape[0]:
            raise IndexError(f"no page {number} of {self._offset.shape[0]}")
        size = self._size[number]
        descriptor = self._file.descriptor
        if descriptor is None or size < FRAME or size > <int64_t>sizeof(out.stored):
            return None
        if (<Descriptor?>descriptor).read(NULL, 0, <char*>out.stored, size, self._offset[number]) != size:
            return None
        return self.open_brief(number, out.stored, out)

    cdef bytes open_brief(self, int64_t number, const uint8_t* data, BriefPage* out):
        """The same of a page that was read: ``data`` is all of it, and stays where it is."""
        cdef:
            int64_t size = self._size[number] - FRAME, raw, rows, at = 0, head
            bytes text = b""
            int codec
        if self._width or self._page_bits > BLOCK_BITS or size < 0:
            return None
        raw, codec = _word(data + 8), data[13]
        if raw > <int64_t>sizeof(out.raw) or not self._is_sound(data, data + FRAME, size, number):
            return None
        rows = min(<int64_t>1 << self._page_bits, self._rows - (number << self._page_bits))
        head = page_head_bytes(rows, self._null[number] > 0) + BLOCK_HEAD_BYTES
        out.packed = codec != 0
        out.payload, out.limit = data + FRAME, raw
        if codec == LZ4 or codec == LZ4_WITH_TEXT:
            if codec == LZ4_WITH_TEXT:
                text = self._text_of_column()
                if text is None:
                    return None
            lz4_begin(
                &out.rest, data + FRAME, size, out.raw, raw, <const uint8_t*>PyBytes_AS_STRING(text),
                PyBytes_GET_SIZE(text),
            )
            out.payload = out.raw
        elif codec or raw != size:
            return None
        # Nothing is looked at before it is there.
        if raw < head or not _reach(out, head) or not self._fits(out.payload, raw, number):
            return None
        if page_open(&out.page, out.payload, raw, CLASS_BINARY, 0, &at) < 0 or out.page.blocks != 1:
            return None
        if _word(out.page.directory) != out.page.start or strings_open(&out.page, 0, &out.part, &at) < 0:
            return None
        if out.part.kind != STRING_PLAIN or not _reach(out, out.part.offset):
            return None
        return text

    cdef object _unpacked(self, int codec, bytes stored, uint32_t raw):
        cdef:
            bytes text = None, payload
            const uint8_t* at = <const uint8_t*>PyBytes_AS_STRING(stored)
            const uint8_t* before = NULL
            uint8_t* out
            int64_t size = PyBytes_GET_SIZE(stored), text_bytes = 0
            int status
        if codec != LZ4 and codec != LZ4_WITH_TEXT:
            if codec >= len(self._decoders) or self._decoders[codec] is None:
                return None
            return self._decoders[codec](stored, decompressed_size=raw, asbytes=True)
        if codec == LZ4_WITH_TEXT:
            text = self._text_of_column()
            if text is None:
                return None
            before, text_bytes = <const uint8_t*>PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text)
        if raw > 255 * size:    # a lie: no memory is taken for it
            return None
        payload = PyBytes_FromStringAndSize(NULL, raw)
        out = <uint8_t*>PyBytes_AS_STRING(payload)
        with nogil:
            status = lz4_unpack(at, size, out, raw, before, text_bytes)
        return None if status else payload

    cdef bytes _text_of_column(self):
        """From the cache, else by the general path; None where the column has none."""
        if self._text is None:
            return None
        found = None if self._reader is None else self._reader.look(self._text.place)
        return found if type(found) is bytes else self._text.text()

    cdef bint _fits(self, const uint8_t* payload, int64_t size, int64_t number) noexcept:
        """Whether the head of the payload says what the column and its page index say."""
        cdef int64_t rows = min(<int64_t>1 << self._page_bits, self._rows - (number << self._page_bits))
        if size < HEAD or _word(payload) != rows:
            return False
        if payload[4] != (CLASS_FIXED if self._width else CLASS_BINARY):
            return False
        if self._width and payload[5] != self._width:
            return False
        return (payload[6] & NULLS) == (self._null[number] > 0)

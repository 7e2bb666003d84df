"""What a page payload means (docs/format.md, "Page payload"), in plain Python.  Slow on purpose.

A page is a list of cells, each ``bytes`` or None.  ``decode`` reads every form of mini-block;
``encode`` writes the forms it is told to, not the smallest ones, so that it makes payloads that the
kernel's encoder never would.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Sequence

PLAIN, CONSTANT, FOR, DELTA, RLE, BITSHUFFLE, STRING_PLAIN, STRING_PREFIX = range(8)
BLOCK_ROWS = 1024
NO_SCALE = 255
RESTART = 16
HEAD = struct.Struct("<BBBBHHQ")

Cell = bytes | None


def padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 8)


# ------------------------------------------------------------------------------------- packing


def pack(numbers: Sequence[int], width: int, bits: int) -> bytes:
    """Numbers of ``bits`` bits; 1,024 of them in lanes of ``width`` bytes."""
    if len(numbers) != BLOCK_ROWS:
        word = sum(number << (i * bits) for i, number in enumerate(numbers))
        return word.to_bytes((len(numbers) * bits + 63) // 64 * 8, "little")
    lanes = BLOCK_ROWS // (8 * width)
    streams = [
        sum(numbers[i] << (i // lanes * bits) for i in range(lane, BLOCK_ROWS, lanes))
        for lane in range(lanes)
    ]
    mask = (1 << 8 * width) - 1
    return b"".join(
        (streams[lane] >> (8 * width * row) & mask).to_bytes(width, "little")
        for row in range(bits)
        for lane in range(lanes)
    )


def unpack(data: bytes, count: int, width: int, bits: int) -> tuple[list[int], int]:
    """The numbers, and how many bytes they took."""
    mask = (1 << bits) - 1
    if count != BLOCK_ROWS:
        size = (count * bits + 63) // 64 * 8
        word = int.from_bytes(data[:size], "little")
        return [word >> (i * bits) & mask for i in range(count)], size
    lanes = BLOCK_ROWS // (8 * width)
    streams = [0] * lanes
    for row in range(bits):
        for lane in range(lanes):
            at = (row * lanes + lane) * width
            streams[lane] |= int.from_bytes(data[at : at + width], "little") << (8 * width * row)
    return [streams[i % lanes] >> (i // lanes * bits) & mask for i in range(BLOCK_ROWS)], 128 * bits


# ---------------------------------------------------------------------------- numbers and cells


def number(cell: bytes) -> int:
    return int.from_bytes(cell, "little")


def cell_of(value: int, width: int) -> bytes:
    return (value & ((1 << 8 * width) - 1)).to_bytes(width, "little")


def signed(value: int, width: int) -> int:
    sign = 1 << (8 * width - 1)
    return ((value & (2 * sign - 1)) ^ sign) - sign


def scaled(value: int, width: int, scale: int) -> bytes:
    """integer / 10**scale as a float, correctly rounded."""
    integer = signed(value, width)
    if width == 8:
        return struct.pack("<d", integer / 10.0**scale)
    # A quotient of two floats, rounded to double and then to float, is the correctly rounded one.
    single: float = struct.unpack("<f", struct.pack("<f", integer))[0]
    return struct.pack("<f", single / 10.0**scale)


# ------------------------------------------------------------------------------------ decoding


def decode_block(block: bytes, count: int, width: int) -> list[bytes]:
    kind, bits, scale, flags, held, exceptions, base = HEAD.unpack_from(block)
    assert held == count
    body = block[HEAD.size :]
    stored = 8 if flags & 1 else width
    raws: list[bytes] = []
    if kind == STRING_PLAIN:
        ends, at = (
            unpack(body, count, 4, bits)
            if bits
            else ([base // max(count, 1) * (i + 1) for i in range(count)], 0)
        )
        return [body[at + lower : at + upper] for lower, upper in itertools.pairwise([0, *ends])]
    if kind == STRING_PREFIX:
        return _decode_prefix(body, count)
    if kind == PLAIN:
        raws = [body[i * stored : (i + 1) * stored] for i in range(count)]
    elif kind == RLE:
        ends = list(struct.unpack_from(f"<{base}H", body))
        at = len(padded(bytes(2 * base)))
        for run, (lower, upper) in enumerate(itertools.pairwise([0, *ends])):
            raws += [body[at + run * stored : at + (run + 1) * stored]] * (upper - lower)
    elif kind == BITSHUFFLE:
        stride = (count + 7) // 8
        raws = [
            cell_of(sum((body[b * stride + i // 8] >> i % 8 & 1) << b for b in range(8 * stored)), stored)
            for i in range(count)
        ]
    else:
        at = 0
        least = base
        if kind == DELTA:
            least, at = number(body[:8]), 8
        numbers = [0] * count
        if bits:
            numbers, size = unpack(body[at:], count, stored, bits)
            at += size
        numbers = [least + n for n in numbers]
        raws = [cell_of(n, stored) if scale == NO_SCALE else scaled(n, stored, scale) for n in numbers]
        positions = struct.unpack_from(f"<{exceptions}H", body, at)
        at += len(padded(bytes(2 * exceptions)))
        for k, position in enumerate(positions):
            raws[position] = body[at + k * stored : at + (k + 1) * stored]
        if kind == DELTA and count:
            total = base
            for i in range(count):
                total += number(raws[i]) if i else 0
                raws[i] = cell_of(total, stored)
    if flags & 1:
        return [cell_of(signed(number(raw), 8), 16) for raw in raws]
    return raws


def _decode_prefix(body: bytes, count: int) -> list[bytes]:
    at = len(padded(bytes(4 * ((count + RESTART - 1) // RESTART))))
    cells: list[bytes] = []
    for _ in range(count):
        lengths = []
        for _ in range(2):
            value = shift = 0
            while True:
                byte = body[at]
                at += 1
                value |= (byte & 127) << shift
                shift += 7
                if byte < 128:
                    break
            lengths.append(value)
        shared, rest = lengths
        cells.append((cells[-1][:shared] if shared else b"") + body[at : at + rest])
        at += rest
    return cells


def decode(payload: bytes) -> list[Cell]:
    rows, _, width, flags, blocks = struct.unpack_from("<IBBBB", payload)
    at = 8
    valid = [True] * rows
    if flags & 1:
        valid = [bool(payload[at + i // 8] >> i % 8 & 1) for i in range(rows)]
        at += len(padded(bytes((rows + 7) // 8)))
    directory = struct.unpack_from(f"<{blocks + 1}I", payload, at)
    assert directory[-1] == len(payload)
    cells: list[Cell] = []
    for block in range(blocks):
        here = valid[block * BLOCK_ROWS : (block + 1) * BLOCK_ROWS]
        held = iter(decode_block(payload[directory[block] : directory[block + 1]], sum(here), width))
        cells += [next(held) if flag else None for flag in here]
    return cells


# ------------------------------------------------------------------------------------ encoding


def _patched(
    kind: int,
    numbers: Sequence[int],
    raws: Sequence[bytes],
    width: int,
    least: int,
    bits: int,
    *,
    scale: int = NO_SCALE,
    flags: int = 0,
    bad: frozenset[int] = frozenset(),
) -> bytes:
    """A CONSTANT, FOR or DELTA block; what is not within least .. least + 2**bits - 1 is an exception."""
    offsets = [(n - least) % (1 << 8 * width) for n in numbers]
    outside = [i for i, offset in enumerate(offsets) if offset >> bits or i in bad]
    inside = [0 if i in outside else offset for i, offset in enumerate(offsets)]
    head = HEAD.pack(kind, bits, scale, flags, len(numbers), len(outside), least % (1 << 64))
    body = pack(inside, width, bits) if bits else b""
    body += padded(struct.pack(f"<{len(outside)}H", *outside))
    return head + body + padded(b"".join(raws[i] for i in outside))


def plain(cells: Sequence[bytes], width: int) -> bytes:
    return HEAD.pack(PLAIN, 0, NO_SCALE, 0, len(cells), 0, 0) + padded(b"".join(cells))


def frame(cells: Sequence[bytes], width: int, base: int = 0, bits: int = 0) -> bytes:
    return _patched(FOR if bits else CONSTANT, [number(cell) for cell in cells], cells, width, base, bits)


def narrow_frame(cells: Sequence[bytes], base: int, bits: int) -> bytes:
    """16-byte cells that fit into 8 bytes."""
    short = [cell[:8] for cell in cells]
    return _patched(FOR if bits else CONSTANT, [number(c) for c in short], short, 8, base, bits, flags=1)


def decimals(cells: Sequence[bytes], width: int, scale: int, base: int = 0, bits: int = 0) -> bytes:
    """Floats as integers / 10**scale; the others are exceptions."""
    numbers, bad = [], set()
    for i, cell in enumerate(cells):
        value = struct.unpack("<d" if width == 8 else "<f", cell)[0]
        integer = round(value * 10.0**scale) if abs(value) < 1e15 else 0
        if not abs(integer) < (1 << (53 if width == 8 else 24)) or scaled(integer, width, scale) != cell:
            integer = base
            bad.add(i)
        numbers.append(integer)
    kind = FOR if bits else CONSTANT
    return _patched(kind, numbers, cells, width, base, bits, scale=scale, bad=frozenset(bad))


def deltas(cells: Sequence[bytes], width: int, least: int = 0, bits: int = 0) -> bytes:
    numbers = [number(cell) for cell in cells]
    steps = [least, *(b - a for a, b in itertools.pairwise(numbers))][: len(numbers)]
    block = _patched(DELTA, steps, [cell_of(step, width) for step in steps], width, least, bits)
    first = struct.pack("<Q", numbers[0] if numbers else 0)
    return block[:8] + first + struct.pack("<Q", least % (1 << 64)) + block[16:]


def runs(cells: Sequence[bytes], width: int, longest: int = BLOCK_ROWS) -> bytes:
    """Runs of at most ``longest`` cells: neighbours may be equal."""
    ends: list[int] = []
    values: list[bytes] = []
    for i, cell in enumerate(cells):
        if values and values[-1] == cell and i - (ends[-2] if len(ends) > 1 else 0) < longest:
            ends[-1] = i + 1
        else:
            ends.append(i + 1)
            values.append(cell)
    head = HEAD.pack(RLE, 0, NO_SCALE, 0, len(cells), 0, len(ends))
    return head + padded(struct.pack(f"<{len(ends)}H", *ends)) + padded(b"".join(values))


def planes(cells: Sequence[bytes], width: int) -> bytes:
    stride = (len(cells) + 7) // 8
    out = bytearray(8 * width * stride)
    for i, cell in enumerate(cells):
        for b in range(8 * width):
            out[b * stride + i // 8] |= (cell[b // 8] >> b % 8 & 1) << i % 8
    return HEAD.pack(BITSHUFFLE, 0, NO_SCALE, 0, len(cells), 0, 0) + padded(bytes(out))


def strings(cells: Sequence[bytes], bits: int | None = None) -> bytes:
    """``bits`` None: as few as the ends need; wider is allowed."""
    ends, total = [], 0
    for cell in cells:
        total += len(cell)
        ends.append(total)
    if bits is None:
        bits = total.bit_length()
        if len({len(cell) for cell in cells}) < 2:
            bits = 0
    packed = pack(ends, 4, bits) if bits else b""
    return HEAD.pack(STRING_PLAIN, bits, NO_SCALE, 0, len(cells), 0, total) + packed + padded(b"".join(cells))


def prefixed(cells: Sequence[bytes]) -> bytes:
    def uleb(value: int) -> bytes:
        out = bytearray()
        while value > 127:
            out.append(value & 127 | 128)
            value >>= 7
        return bytes(out) + bytes((value,))

    entries = bytearray()
    restarts = []
    for i, cell in enumerate(cells):
        shared = 0
        if i % RESTART == 0:
            restarts.append(len(entries))
        else:
            before = cells[i - 1]
            while shared < min(len(cell), len(before)) and cell[shared] == before[shared]:
                shared += 1
        entries += uleb(shared) + uleb(len(cell) - shared) + cell[shared:]
    head = HEAD.pack(STRING_PREFIX, 0, NO_SCALE, 0, len(cells), 0, len(entries))
    return head + padded(struct.pack(f"<{len(restarts)}I", *restarts)) + padded(bytes(entries))


def encode(cells: Sequence[Cell], width: int, form: Callable[[Sequence[bytes]], bytes]) -> bytes:
    """A payload whose mini-blocks are made by ``form`` from the cells that are not null; width 0: strings."""
    blocks = [
        padded(form([cell for cell in cells[i : i + BLOCK_ROWS] if cell is not None]))
        for i in range(0, len(cells), BLOCK_ROWS)
    ]
    bitmap = b""
    if None in cells:
        bits = bytearray((len(cells) + 7) // 8)
        for i, cell in enumerate(cells):
            bits[i // 8] |= (cell is not None) << i % 8
        bitmap = padded(bytes(bits))
    head = struct.pack("<IBBBB", len(cells), int(width == 0), width, int(bool(bitmap)), len(blocks)) + bitmap
    at = len(head) + 4 * (len(blocks) + 1)
    at += -at % 8
    directory = [at]
    for block in blocks:
        directory.append(directory[-1] + len(block))
    return padded(head + struct.pack(f"<{len(directory)}I", *directory)) + b"".join(blocks)

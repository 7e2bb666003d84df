"""What ``_ext.pages.dictionary`` means: sorted distinct words, and each cell's place among them."""

from __future__ import annotations


def build(cells: list[bytes | None]) -> tuple[list[int], list[bytes]]:
    """(codes, words); a null cell has code 0."""
    words = sorted({cell for cell in cells if cell is not None})
    place = {word: code for code, word in enumerate(words)}
    return [0 if cell is None else place[cell] for cell in cells], words


def expand(codes: list[int], valid: list[bool], words: list[bytes]) -> list[bytes]:
    """The cells again; a null one is empty."""
    return [words[code] if present else b"" for code, present in zip(codes, valid, strict=True)]

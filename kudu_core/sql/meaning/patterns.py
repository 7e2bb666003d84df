"""``LIKE`` and its kin.  A pattern that is a prefix becomes the test of one, which is a range of keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from kudu_core.errors import InvalidArgument
from kudu_core.sql.meaning.comparing import compared
from kudu_core.sql.meaning.typed import Typed, constant, is_text, must_be, null_of, refused
from kudu_core.sql.sqlglot_trees import quoted

if TYPE_CHECKING:
    from sqlglot import exp

_BOOL = pa.bool_()
_SPECIAL = "%_\\"


def like(
    tree: exp.Expr, text: Typed, pattern: Typed, escape: str | None = None, *, ignore_case: bool = False
) -> Typed:
    """``text LIKE pattern``: ``%`` is any characters, ``_`` one; after ``escape`` they are themselves."""
    if text.is_null or pattern.is_null:
        return null_of(tree, _BOOL)
    must_be(text, is_text(text.type), "text")
    must_be(pattern, is_text(pattern.type), "a pattern")
    if pattern.constant is None:
        raise refused(tree, "the pattern of LIKE is written down, or given as a $parameter")
    pieces = _pieces(tree, pattern.constant.as_py(), escape)
    wild = [place for place, (_, is_wild) in enumerate(pieces) if is_wild]
    plain = "".join(one for one, is_wild in pieces if not is_wild)
    if not ignore_case and not wild:
        return compared(tree, "eq", text, constant(tree, pa.scalar(plain)))
    if not ignore_case and wild == [len(pieces) - 1] and pieces[-1][0] == "%":
        return Typed(tree, _BOOL, pc.starts_with(text.expression, plain))
    spelled = "".join(
        f"\\{one}" if not is_wild and one in _SPECIAL else one for one, is_wild in pieces
    )
    return Typed(tree, _BOOL, pc.match_like(text.expression, spelled, ignore_case=ignore_case))


def _pieces(tree: exp.Expr, pattern: str, escape: str | None) -> list[tuple[str, bool]]:
    """The characters of a pattern, and of each whether it stands for others."""
    found: list[tuple[str, bool]] = []
    rest = iter(pattern)
    for one in rest:
        if one == escape:
            following = next(rest, None)
            if following is None:
                raise InvalidArgument(f"SQL: {quoted(tree)}: the pattern ends with its escape character")
            found.append((following, False))
        else:
            found.append((one, one in "%_"))
    return found


def prefix_of(pattern: str) -> str:
    """With what the texts begin that match a pattern without an escape character."""
    ends = [place for place in (pattern.find("%"), pattern.find("_")) if place >= 0]
    return pattern[: min(ends, default=len(pattern))]


def after_prefix(prefix: str) -> str | None:
    """The first text after all that begin with a prefix; None: there is none."""
    for length in range(len(prefix), 0, -1):
        code = ord(prefix[length - 1]) + 1
        if 0xD800 <= code <= 0xDFFF:
            code = 0xE000
        if code <= 0x10FFFF:
            return prefix[: length - 1] + chr(code)
    return None


__all__ = ["after_prefix", "like", "prefix_of"]

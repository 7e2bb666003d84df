"""What ``_ext.rules.decide`` means: a store that is a dict, and rows applied to it one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

OPS = [verb + suffix for verb in ("insert", "upsert", "update", "delete") for suffix in ("", "_ignore")]
DEFAULT = "default"
Row = tuple[object, ...]


@dataclass
class Outcome:
    codes: list[str] = field(default_factory=list)
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    ignored: int = 0
    errors: int = 0


def apply_call(
    store: dict[int, Row],
    keys: Sequence[int],
    ops: Sequence[str],
    values: Sequence[Mapping[int, object]],
    refused: Sequence[bool],
    ncols: int,
    required_missing: bool,
) -> Outcome:
    """``values[i]``: the columns that row i gives.  The store is changed."""
    out = Outcome()
    for key, op, given, skip in zip(keys, ops, values, refused, strict=True):
        verb, error = op.split("_")[0], None
        if skip:
            out.codes.append("refused")
            continue
        if key in store and verb == "insert":
            error = "already_present"
        elif key in store and verb == "delete":
            del store[key]
            out.deleted += 1
        elif key in store:
            store[key] = tuple(given.get(c, store[key][c]) for c in range(ncols))
            out.updated += 1
        elif verb in ("update", "delete"):
            error = "not_found"
        elif required_missing:
            error = "null_in_required"
        else:
            store[key] = tuple(given.get(c, DEFAULT) for c in range(ncols))
            out.inserted += 1
        ignored = error not in (None, "null_in_required") and op.endswith("_ignore")
        out.ignored += ignored
        out.errors += error is not None and not ignored
        out.codes.append("ignored" if ignored else error or "ok")
    return out

"""Random predicates, and what they are for pyarrow."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pyarrow.compute as pc

from tests.support import cells
from tests.support.differential.cases import Case, Predicate


def random_predicate(rng: random.Random, case: Case, depth: int = 2) -> Predicate:
    """Any kind of predicate over any column."""
    if depth == 2 and rng.random() < 0.15:
        return (
            "dnf",
            [[_triple(rng, case) for _ in range(rng.randint(1, 3))] for _ in range(rng.randint(1, 3))],
        )
    if depth and rng.random() < 0.45:
        kind = rng.choice(("and", "and", "or", "not"))
        if kind == "not":
            return (kind, random_predicate(rng, case, depth - 1))
        return (kind, random_predicate(rng, case, depth - 1), random_predicate(rng, case, depth - 1))
    column = rng.choice(case.columns)
    pool = cells.ugly(column.arrow)
    x = rng.random()
    if x < 0.5:
        return ("cmp", column.name, rng.choice(("==", "!=", "<", "<=", ">", ">=")), rng.choice(pool))
    if x < 0.65:
        listed = rng.sample(list(pool), min(len(pool), rng.choice((1, 2, 4))))
        return ("in", column.name, [*listed, None] if rng.random() < 0.2 else listed)
    if x < 0.8:
        return (rng.choice(("null", "valid")), column.name)
    if x < 0.85:
        return ("const", rng.random() < 0.5)
    if x < 0.9:
        same = [c.name for c in case.columns if c.type == column.type]
        return ("same", column.name, rng.choice(same))
    if column.type == "string":
        return (rng.choice(("starts", "contains")), column.name, rng.choice(("", "a", "https", "\0", "é")))
    if column.type in ("float32", "float64"):
        return ("nan", column.name)
    if column.type == "bool":
        return ("flag", column.name)
    return ("valid", column.name)


def _triple(rng: random.Random, case: Case) -> tuple[str, str, Any]:
    column = rng.choice(case.columns)
    pool = list(cells.ugly(column.arrow))
    op = rng.choice(("=", "==", "!=", "<", "<=", ">", ">=", "in", "not in"))
    return (column.name, op, rng.sample(pool, min(2, len(pool))) if "in" in op else rng.choice(pool))


_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}
_COMPARE["="] = _COMPARE["=="]


def expression(case: Case, p: Predicate, named: Callable[[str], pc.Expression] = pc.field) -> pc.Expression:
    """The predicate for pyarrow, which says what it means.  ``named``: what a column is in it."""
    kind = p[0]
    if kind == "dnf":
        result = None
        for group in p[1]:
            every = None
            for name, op, given in group:
                one = _triple_expression(case, name, op, given)
                every = one if every is None else every & one
            result = every if result is None else result | every
        return result
    if kind in ("and", "or"):
        left, right = expression(case, p[1], named), expression(case, p[2], named)
        return left & right if kind == "and" else left | right
    if kind == "not":
        return ~expression(case, p[1], named)
    if kind == "const":
        return pc.scalar(p[1])
    field = named(p[1])
    if kind == "same":
        return field == named(p[2])
    if kind == "cmp":
        return _COMPARE[p[2]](field, pc.scalar(cells.scalar(p[3], case.by_name(p[1]).arrow)))
    if kind == "in":
        return field.isin(cells.to_arrow(p[2], case.by_name(p[1]).arrow))
    simple = {
        "null": lambda: field.is_null(),
        "valid": lambda: field.is_valid(),
        "nan": lambda: pc.is_nan(field),
        "flag": lambda: field,
        "starts": lambda: pc.starts_with(field, p[2]),
        "contains": lambda: pc.match_substring(field, p[2]),
    }
    return simple[kind]()


def _triple_expression(case: Case, name: str, op: str, given: Any) -> pc.Expression:
    type_ = case.by_name(name).arrow
    if op in ("in", "not in"):
        found = pc.field(name).isin(cells.to_arrow(given, type_))
        return ~found if op == "not in" else found
    return _COMPARE[op](pc.field(name), pc.scalar(cells.scalar(given, type_)))


def argument(case: Case, p: Predicate) -> Any:
    """The predicate as ``where=`` is given it."""
    if p[0] != "dnf":
        return expression(case, p)
    return [
        [
            (name, op, cells.to_arrow(given, case.by_name(name).arrow))
            if isinstance(given, list)
            else (name, op, cells.scalar(given, case.by_name(name).arrow))
            for name, op, given in group
        ]
        for group in p[1]
    ]

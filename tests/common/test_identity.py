"""What tells predicates apart: types, zeros, NaN, and what changes after it was given."""

from __future__ import annotations

import datetime as dt
import itertools
import math
import random
import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from kudu_core.common.where.identity import MOST_VALUES, identity_of, size_of

VALUES: list[Any] = [
    *(1, 0, 1 << 70, -(1 << 63), True, False, 1.0, 0.0, -0.0, math.nan, math.inf, None),
    *("1", b"1", "", b"", dt.date(2000, 1, 1), np.int64(1), np.int32(1), np.float64(1), np.bool_(True)),
    *(np.array([1, 2]), np.array([1, 2], np.int32), np.array([1, 2], ">i8"), np.array(1), np.array([1])),
    *([], [1], [1, 2], [True], [1.0], [0.0], [-0.0], ["1"], [b"1"], [None], [1, None], [1, True], [1, 1.0]),
    *([1 << 70], [dt.date(2000, 1, 1)], [np.int64(1)], [math.nan], [2, 1]),
]
UNKNOWN: list[Any] = [
    *(pa.scalar(1), pa.array([1]), dt.datetime(2000, 1, 1), [[1]], iter([1]), object(), bytearray(b"1")),
    *(np.ma.array([1, 2], mask=[True, False]), np.datetime64(1, "s"), [dt.datetime(2000, 1, 1)]),
    *([0] * (MOST_VALUES + 1), np.zeros(MOST_VALUES + 1), np.zeros((1, 1))),
]


def spelled(value: Any) -> Any:
    """The oracle: a value with its types and bits, as text."""
    if isinstance(value, list | tuple | set | frozenset):
        return f"[{', '.join(map(spelled, value))}]"
    if isinstance(value, np.ndarray | np.generic):
        return f"{type(value).__name__} {value.dtype.str} {value.shape} {value.tolist()}"
    if type(value) is float:
        return f"float {struct.pack('<d', value)!r}"
    return f"{type(value).__name__} {value!r}"


@pytest.mark.parametrize("form", [lambda v: ("a", "=", v), lambda v: [[("a", "=", v)], [("b", "in", v)]]])
def test_values_of_other_types_and_other_bits_are_other_predicates(form: Any) -> None:
    known = [identity_of(form(value)) for value in VALUES]
    assert None not in known
    for (one, left), (other, right) in itertools.product(zip(VALUES, known, strict=True), repeat=2):
        assert (left == right and hash(left) == hash(right)) == (spelled(one) == spelled(other))


def test_random_lists() -> None:
    rng = random.Random(5)
    scalars = [v for v in VALUES if not isinstance(v, list | np.ndarray)]
    made: dict[Any, str] = {}
    for _ in range(4000):
        values = rng.choices(scalars[:12] if rng.random() < 0.5 else scalars, k=rng.randrange(3))
        where = [("a", rng.choice(("in", "not in")), values)]
        text = f"{where[0][1]} {spelled(values)}"
        known = identity_of(where)
        assert known is not None and made.setdefault(known, text) == text
    assert len(set(made.values())) == len(made)


def test_forms_that_are_not_told_from_others() -> None:
    for value in UNKNOWN:
        assert identity_of([("a", "=", value)]) is None, value
        assert identity_of([("a", "=", 1), ("b", "=", value)]) is None, value
    for where in (None, "a", 1, {"a": 1}, ("a", 1, 1), [("a", "=", 1), "b"], iter([("a", "=", 1)])):
        assert identity_of(where) is None


def test_the_form_belongs_to_it() -> None:
    triple = ("a", "=", 1)
    forms: list[Any] = [
        triple,
        list(triple),
        [triple],
        (triple,),
        [[triple]],
        [triple, triple],
        [[triple], [triple]],
    ]
    known = [identity_of(form) for form in forms]
    assert len(set(known)) == len(forms)


def test_it_shares_nothing_with_what_was_given() -> None:
    for values in ([1, 2], ["x", "y"], [1, None], np.array([1, 2])):
        where = [("a", "in", values)]
        known = identity_of(where)
        values[0] = values[1]
        assert identity_of(where) != known and hash(known) == hash(known)


def test_its_size() -> None:
    numbers = identity_of([("a", "in", list(range(1000)))])
    words = identity_of([("a", "in", ["x" * 100] * 1000)])
    assert numbers is not None and words is not None
    assert 8000 <= size_of(numbers) <= 9000 and 100_000 <= size_of(words) <= 200_000
    assert size_of(b"x" * 77) == 77

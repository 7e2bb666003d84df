"""Random merges, conditional writes and batches that read, over tables of every state: the engine and a plain
model of the rules give equal answers (``tests/support/differential/merges.py`` is the model).

A seed that fails is shrunk, and the failure prints a program that repeats it.  ``--seed`` chooses where the
seeds begin, ``--long`` runs 200 cases of 100 steps, also in an object store whose requests meet fates.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from kudu_core.table.merge import decision, merge_rows, merge_source
from tests.support.differential import (
    If,
    Merge,
    ReadingBatch,
    Store,
    code_of,
    failure_of,
    merging_case,
    shrink,
)

SHORT = (8, 40)
LONG = (200, 100)
IN_STORE = 4
"""One case of so many is also run in a store."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "case_seed" in metafunc.fixturenames:
        first = metafunc.config.getoption("--seed")
        cases, steps = LONG if metafunc.config.getoption("--long") else SHORT
        if metafunc.function is test_rows_that_wait_in_a_file_come_to_the_same:
            cases //= 2
        metafunc.parametrize("case_seed", range(first, first + cases))
        metafunc.parametrize("steps", [steps], ids=str)


@pytest.mark.timeout(1800)
def test_engine_and_model_agree(case_seed: int, steps: int) -> None:
    case = merging_case(case_seed, steps)
    failure = failure_of(case)
    if failure is not None:
        tries = 3 if case.options["maintenance"] == "background" else 1
        small = shrink(case, lambda c: any(failure_of(c) is not None for _ in range(tries)))
        pytest.fail(
            f"seed {case_seed}: {failure}\n\nShortest found ({failure_of(small)}):\n\n{code_of(small)}\n",
            pytrace=False,
        )
    if case_seed % IN_STORE == 0:
        stored = dataclasses.replace(case, options={**case.options, "durability": "sync"})
        failure = failure_of(stored, Store(case_seed, 0.02, "unordered"))
        if failure is not None:
            pytest.fail(f"seed {case_seed}, in a store: {failure}\n\n{code_of(stored)}\n", pytrace=False)


@pytest.mark.timeout(1800)
def test_rows_that_wait_in_a_file_come_to_the_same(
    case_seed: int, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if no rows fitted into memory: they are read from their file, a few at a time."""
    monkeypatch.setattr(merge_rows, "KEPT_DIVISOR", 1 << 62)
    monkeypatch.setattr(merge_source, "PART_BYTES", 1)
    case = merging_case(1000 + case_seed, steps // 2)
    failure = failure_of(case)
    if failure is not None:
        pytest.fail(f"seed {1000 + case_seed}: {failure}\n\n{code_of(case)}\n", pytrace=False)


def test_a_case_is_its_code() -> None:
    """What a failure prints makes the same case again."""
    case = merging_case(3, 60)
    names: dict[str, object] = {}
    exec("from tests.support.differential import *", names)
    code = code_of(case).split("\n\n", 1)[1]
    assert eval(code.removeprefix("replay(").removesuffix(")"), names) == case
    assert {Merge, If, ReadingBatch} <= {type(step) for step in case.steps}


def test_shrinking_leaves_what_a_failure_needs() -> None:
    case = next(
        c for c in (merging_case(seed, 30) for seed in range(50)) if any(_is_large(s) for s in c.steps)
    )
    small = shrink(case, lambda c: any(_is_large(step, 3) for step in c.steps))
    [step] = small.steps
    assert isinstance(step, Merge) and len(step.rows) == 3


def _is_large(step: object, rows: int = 12) -> bool:
    return isinstance(step, Merge) and len(step.rows) >= rows


def _second_clause(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last clause that holds is taken, not the first."""
    of = decision._Checked.of
    monkeypatch.setattr(decision._Checked, "of", lambda checked, kind: of(checked, kind)[::-1])


def _null_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A condition that is NULL holds."""
    passing = decision.passing

    def also_null(where: Any, column: Any, rows: int, place: str) -> np.ndarray:
        inverse = dataclasses.replace(where, expression=~where.expression)
        return ~passing(inverse, column, rows, place)

    monkeypatch.setattr(decision, "passing", also_null)


def _repeats_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of several rows of a key that count each is applied."""
    call = decision._Hit.call

    def not_alone(hit: Any, *, continues: bool) -> Any:
        return dataclasses.replace(call(hit, continues=continues), alone=False)

    monkeypatch.setattr(decision._Hit, "call", not_alone)


def _any_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of several rows of a key all count, where the last was asked for."""
    monkeypatch.setattr(merge_source, "last_rows", lambda *_: None)


@pytest.mark.parametrize("broken", [_second_clause, _null_passes, _repeats_count, _any_row])
def test_a_broken_engine_is_noticed(broken: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison itself can fail."""
    broken(monkeypatch)
    assert any(failure_of(merging_case(seed, 40)) is not None for seed in range(20))

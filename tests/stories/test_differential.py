"""Random operations on random tables: the engine and a dict of rows give equal answers.

A seed that fails is shrunk, and the failure prints a program that repeats it.  ``--seed`` chooses
where the seeds begin, ``--long`` runs 10,000 steps.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from kudu_core.tablet.view.rowset_tree import RowSetTree
from tests.support.differential import (
    Apply,
    Batch,
    Case,
    Col,
    Do,
    Write,
    code_of,
    failure_of,
    random_case,
    shrink,
)

SHORT = (12, 50)
LONG = (100, 100)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "case_seed" in metafunc.fixturenames:
        first = metafunc.config.getoption("--seed")
        cases, steps = LONG if metafunc.config.getoption("--long") else SHORT
        metafunc.parametrize("case_seed", range(first, first + cases))
        metafunc.parametrize("steps", [steps], ids=str)


@pytest.mark.timeout(1800)
def test_engine_and_model_agree(case_seed: int, steps: int) -> None:
    case = random_case(case_seed, steps)
    failure = failure_of(case)
    if failure is None:
        return
    # Beside background threads a failure may need more than one try.
    tries = 3 if case.options["maintenance"] == "background" else 1
    small = shrink(case, lambda c: any(failure_of(c) is not None for _ in range(tries)))
    pytest.fail(
        f"seed {case_seed}: {failure}\n\nShortest found ({failure_of(small)}):\n\n{code_of(small)}\n",
        pytrace=False,
    )


def test_a_case_is_its_code() -> None:
    """What a failure prints makes the same case again."""
    case = random_case(7, 60)
    names: dict[str, object] = {}
    exec("from tests.support.differential import *", names)
    code = code_of(case).split("\n\n", 1)[1]
    assert eval(code.removeprefix("replay(").removesuffix(")"), names) == case
    assert random_case(7, 60) == case


def test_shrinking_leaves_what_a_failure_needs() -> None:
    rows = [(i,) for i in range(20)]
    case = Case(
        (Col("k", "int64"),),
        ("k",),
        hashes=((("k",), 3),),
        steps=[
            Do("flush"),
            Write("insert", ("k",), rows),
            Do("reopen"),
            Batch([Write("upsert", ("k",), rows), Write("delete", ("k",), [(3,)])]),
            Apply(["delete"] * 20, ("k",), rows),
            Do("flush"),
        ],
    )

    def fails(c: Case) -> bool:
        writes = [s for s in c.steps if isinstance(s, Write)]
        return any((7,) in w.rows for w in writes) and Do("reopen") in c.steps

    small = shrink(case, fails)
    assert small.steps == [Write("insert", ("k",), [(7,)]), Do("reopen")]
    assert small.hashes == ()


@pytest.mark.parametrize("broken", ["lost update", "wrong order", "extra row"])
def test_a_broken_engine_is_noticed(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison itself can fail."""
    import kudu_core.rowset.scan.ordered as ordered
    import kudu_core.table.write.log_walk as write

    if broken == "lost update":
        whole = write.decide_net

        def without_updates(prepared: Any, live: Any) -> Any:
            decided, net = whole(prepared, live)
            return decided, dataclasses.replace(net, updates=[])

        monkeypatch.setattr(write, "decide_net", without_updates)
    elif broken == "wrong order":
        backwards = lambda those: (s for r in those[::-1] for s in r.begin())  # noqa: E731
        monkeypatch.setattr(ordered, "merge_ordered", backwards)
    else:
        monkeypatch.setattr(
            RowSetTree, "range", lambda tree, lower, upper: np.arange(len(tree) if upper is not None else 0)
        )
    seeds = range(20)
    assert any(failure_of(random_case(seed, 40)) is not None for seed in seeds)
